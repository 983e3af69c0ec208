//! portcullis-sim
