//! portcullis-brick
