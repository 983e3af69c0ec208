//! One operation at a time.
