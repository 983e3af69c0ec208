//! A change that was acknowledged is seen by the next request, wherever it was made.
//!
//! [`case`] has what is changed and looked at, [`matrix`] the checks, each change by each way of
//! looking; [`cut_off`] what a mount answers that nothing reaches any more.

mod case;
mod cut_off;
mod matrix;
