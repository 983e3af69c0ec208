//! portcullis-client
