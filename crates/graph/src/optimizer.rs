//! The optimizer that a user chose: a rule, and which of PyTorch's implementations runs it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// SGD with momentum.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    Adamw,
    /// No step: gradients only.
    None,
}

impl Rule {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 4] = [Self::Sgd, Self::Adam, Self::Adamw, Self::None];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Adam => "adam",
            Self::Adamw => "adamw",
            Self::None => "none",
        }
    }
}

/// How PyTorch runs it: they launch very different numbers of kernels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Implementation {
    /// One tensor at a time (`foreach=False`; `fused=False` alone means it too).
    Single,
    /// Over lists of tensors: PyTorch's default on a GPU.
    #[default]
    Foreach,
    /// The whole step in one kernel for each list (`fused=True`).
    Fused,
    /// bitsandbytes: states in 8 bits with a scale for every 256, one kernel for each tensor.
    EightBit,
    /// bitsandbytes: states in 32 bits that may move to the host's memory.
    Paged,
    /// bitsandbytes: states in 8 bits that may move to the host's memory.
    PagedEightBit,
}

impl Implementation {
    /// All, in the order of the command line's help.
    pub const ALL: [Self; 6] =
        [Self::Single, Self::Foreach, Self::Fused, Self::EightBit, Self::Paged, Self::PagedEightBit];

    /// Are states kept in 8 bits?
    pub fn narrow(self) -> bool {
        matches!(self, Self::EightBit | Self::PagedEightBit)
    }

    /// May states move to the host's memory?
    pub fn paged(self) -> bool {
        matches!(self, Self::Paged | Self::PagedEightBit)
    }

    /// What a reader of a prediction with it should know.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::Single | Self::Foreach | Self::Fused => None,
            Self::EightBit => {
                Some("no step of an 8-bit optimizer was measured: its time follows from its bytes")
            }
            Self::Paged | Self::PagedEightBit => Some(
                "no step of a paged optimizer was measured: its states count as the host's memory, and what they take to move where the GPU is full is not in the time",
            ),
        }
    }

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Foreach => "foreach",
            Self::Fused => "fused",
            Self::EightBit => "8bit",
            Self::Paged => "paged",
            Self::PagedEightBit => "paged-8bit",
        }
    }
}

/// Rule and implementation, written `adam` or `adam:fused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OptimizerChoice {
    /// What a step computes.
    pub rule: Rule,
    /// How; without meaning where there is no step.
    pub implementation: Implementation,
}

impl OptimizerChoice {
    /// SGD with momentum as PyTorch runs it by default.
    pub const SGD: Self = Self::of(Rule::Sgd);
    /// Adam as PyTorch runs it by default.
    pub const ADAM: Self = Self::of(Rule::Adam);
    /// Adam with decoupled weight decay as PyTorch runs it by default.
    pub const ADAMW: Self = Self::of(Rule::Adamw);
    /// Gradients only.
    pub const NONE: Self = Self::of(Rule::None);

    /// Every spelling.
    pub const SPELLINGS: [(&'static str, Self); 19] = [
        ("sgd", Self::SGD),
        ("sgd:single", Self::SGD.by(Implementation::Single)),
        ("sgd:foreach", Self::SGD.by(Implementation::Foreach)),
        ("sgd:fused", Self::SGD.by(Implementation::Fused)),
        ("adam", Self::ADAM),
        ("adam:single", Self::ADAM.by(Implementation::Single)),
        ("adam:foreach", Self::ADAM.by(Implementation::Foreach)),
        ("adam:fused", Self::ADAM.by(Implementation::Fused)),
        ("adam:8bit", Self::ADAM.by(Implementation::EightBit)),
        ("adam:paged", Self::ADAM.by(Implementation::Paged)),
        ("adam:paged-8bit", Self::ADAM.by(Implementation::PagedEightBit)),
        ("adamw", Self::ADAMW),
        ("adamw:single", Self::ADAMW.by(Implementation::Single)),
        ("adamw:foreach", Self::ADAMW.by(Implementation::Foreach)),
        ("adamw:fused", Self::ADAMW.by(Implementation::Fused)),
        ("adamw:8bit", Self::ADAMW.by(Implementation::EightBit)),
        ("adamw:paged", Self::ADAMW.by(Implementation::Paged)),
        ("adamw:paged-8bit", Self::ADAMW.by(Implementation::PagedEightBit)),
        ("none", Self::NONE),
    ];

    /// A rule as PyTorch runs it by default.
    pub const fn of(rule: Rule) -> Self {
        Self { rule, implementation: Implementation::Foreach }
    }

    /// The same rule in another implementation.
    #[must_use]
    pub const fn by(self, implementation: Implementation) -> Self {
        Self { implementation, ..self }
    }

    /// As the iterations of the measured sets ran it: `Adam(fused=False)`, which is one tensor at a time, and SGD over lists.
    #[must_use]
    pub const fn as_measured(self) -> Self {
        match self.rule {
            Rule::Adam => self.by(Implementation::Single),
            _ => self,
        }
    }

    /// The implementation's name, where there is a step.
    pub fn implementation_name(self) -> Option<&'static str> {
        (self.rule != Rule::None).then(|| self.implementation.name())
    }
}

impl fmt::Display for OptimizerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.implementation_name() {
            Some(how) => write!(f, "{}:{how}", self.rule.name()),
            None => f.write_str(self.rule.name()),
        }
    }
}

impl FromStr for OptimizerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::SPELLINGS.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, choice)| choice).ok_or_else(|| {
            format!(
                "`{text}` is no optimizer: take `sgd`, `adam`, `adamw` or `none`, the first three with `:single`, `:foreach` or `:fused` \
                 behind them or nothing, Adam also with `:8bit`, `:paged` or `:paged-8bit`"
            )
        })
    }
}

impl Serialize for OptimizerChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OptimizerChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_alone_runs_over_lists_as_pytorch_does() {
        assert_eq!("adam".parse(), Ok(OptimizerChoice::ADAM));
        assert_eq!(OptimizerChoice::ADAM.to_string(), "adam:foreach");
    }

    #[test]
    fn every_spelling_reads_back() {
        for (name, choice) in OptimizerChoice::SPELLINGS {
            assert_eq!(name.parse(), Ok(choice));
            assert_eq!(choice.to_string().parse(), Ok(choice));
            assert!(choice.to_string().starts_with(name));
        }
    }

    #[test]
    fn what_is_misspelt_is_named() {
        for wrong in ["adm", "adam:fast", "none:fused", "sgd:8bit", "adam:", ""] {
            let said = wrong.parse::<OptimizerChoice>().unwrap_err();
            assert!(said.contains(&format!("`{wrong}` is no optimizer")), "{said}");
        }
    }
}
