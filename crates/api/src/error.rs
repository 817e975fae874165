//! What can be wrong with a question. Each message is one line, and says what to do where that is not plain.

use preflop_cluster::ClusterError;
use preflop_core::cost::CostError;
use preflop_core::delta::DeltaError;
use preflop_core::explore::AreaError;
use preflop_core::gpu::GpuError;
use preflop_core::model::ModelError;
use serde_json::json;

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// Not JSON, or not of the shape that the question has.
    #[error("malformed question: {detail}")]
    Malformed {
        /// What the reader said.
        detail: String,
    },
    /// No such question.
    #[error("unknown question `{name}`; there are {known}")]
    Question {
        /// As asked.
        name: String,
        /// All there are.
        known: String,
    },
    /// A name or a value that cannot be.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        message: String,
        /// What to do.
        hint: Option<&'static str>,
    },
    /// The tool's own data are at fault.
    #[error("{message}")]
    Internal {
        /// What is wrong.
        message: String,
    },
}

impl ApiError {
    /// A value that cannot be, without a hint.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), hint: None }
    }

    /// A short name that programs can tell errors apart by.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "malformed",
            Self::Question { .. } => "unknown_question",
            Self::Invalid { .. } => "invalid",
            Self::Internal { .. } => "internal",
        }
    }

    /// The error as an answer: `{"error": {"kind", "message", "hint"}}`.
    pub fn json(&self) -> String {
        let hint = match self {
            Self::Invalid { hint, .. } => *hint,
            Self::Malformed { .. } => Some("the OpenAPI document lists the fields of every question"),
            _ => None,
        };
        error_json(self.kind(), &self.to_string(), hint)
    }
}

/// An error as an answer, for shells that have errors of their own.
pub fn error_json(kind: &str, message: &str, hint: Option<&str>) -> String {
    // Messages may quote input: they stay on one line, short and without control characters.
    let message: String = message.chars().filter(|c| !c.is_control()).take(600).collect();
    json!({ "error": { "kind": kind, "message": message, "hint": hint } }).to_string()
}

impl From<ModelError> for ApiError {
    fn from(error: ModelError) -> Self {
        let hint = matches!(error, ModelError::Unknown { .. }).then_some("ask `models` for all names");
        Self::Invalid { message: error.to_string(), hint }
    }
}

impl From<GpuError> for ApiError {
    fn from(error: GpuError) -> Self {
        let hint = matches!(error, GpuError::Unknown { .. }).then_some("ask `gpus` for all names");
        Self::Invalid { message: error.to_string(), hint }
    }
}

impl From<DeltaError> for ApiError {
    fn from(error: DeltaError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<CostError> for ApiError {
    fn from(error: CostError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<ClusterError> for ApiError {
    fn from(error: ClusterError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<AreaError> for ApiError {
    fn from(error: AreaError) -> Self {
        Self::Internal { message: error.to_string() }
    }
}

impl From<serde_json::Error> for ApiError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed { detail: error.to_string() }
    }
}
