//! portcullis-plugin-s3fifo
