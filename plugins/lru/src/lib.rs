//! portcullis-plugin-lru
