//! The native inlining policies, by name.

use std::str::FromStr;

use super::{Fixed, InliningPolicy, Learnt};

/// The policies that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InliningChoice {
    /// No content travels along, and nothing is counted.
    #[default]
    Nothing,
    /// [`Fixed`].
    Fixed,
    /// [`Learnt`].
    Learnt,
}

impl InliningChoice {
    /// What works in place of a component that failed.
    pub const FALLBACK: Self = Self::Fixed;

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Fixed => Fixed::NAME,
            Self::Learnt => Learnt::NAME,
        }
    }

    /// A policy; `None` where nothing is to be asked.
    pub fn policy(self) -> Option<Box<dyn InliningPolicy>> {
        match self {
            Self::Nothing => None,
            Self::Fixed => Some(Box::<Fixed>::default()),
            Self::Learnt => Some(Box::<Learnt>::default()),
        }
    }
}

impl FromStr for InliningChoice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut known = [Self::Nothing, Self::Fixed, Self::Learnt].into_iter();
        let found = known.find(|choice| choice.name() == name);
        let what = || format!("{name} is no inlining policy: there are none, fixed and learnt");
        found.ok_or_else(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_name() {
        for choice in [InliningChoice::Nothing, InliningChoice::Fixed, InliningChoice::Learnt] {
            assert_eq!(choice.name().parse(), Ok(choice));
            assert_eq!(choice.policy().is_none(), choice == InliningChoice::Nothing);
        }
        let error = "gdsf".parse::<InliningChoice>().unwrap_err();
        assert!(error.contains("none, fixed and learnt"), "{error}");
    }
}
