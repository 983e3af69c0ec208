//! The dentry cache.
