//! S3-FIFO.
