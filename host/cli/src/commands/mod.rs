//! The commands: one file each, with its arguments and what it does.

pub(crate) mod brick;
pub(crate) mod cat;
pub(crate) mod compile_policy;
pub(crate) mod demo;
pub(crate) mod find;
pub(crate) mod gateway;
pub(crate) mod identity;
pub(crate) mod ls;
pub(crate) mod mount;
pub(crate) mod policy;
pub(crate) mod serve;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod tar;
