//! portcullis-fuse
