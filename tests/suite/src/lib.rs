//! portcullis-suite
