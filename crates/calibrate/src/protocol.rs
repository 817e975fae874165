//! What the measuring process tells the one that started it: a line of JSON for every event.
//!
//! Measuring runs in a process of its own, so that a driver that hangs or crashes takes only that process with it.

use crate::driver::{Board, DeviceFacts};
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The GPU at hand.
    Device {
        /// What the driver says.
        facts: DeviceFacts,
        /// What the management library says.
        board: Board,
    },
    /// A step begins.
    Begin {
        /// What is measured, in words.
        what: String,
        /// Its number, from 0.
        step: usize,
        /// How many there are.
        steps: usize,
    },
    /// One figure, measured several times.
    Value {
        /// Key in the `[measured]` section of a GPU file.
        key: String,
        /// All measurements.
        samples: Vec<f64>,
    },
    /// A figure that this GPU or machine cannot give.
    Skip {
        /// Key, or what was to be measured.
        what: String,
        /// Why not.
        why: String,
    },
    /// Something worth knowing.
    Note(String),
    /// It cannot go on.
    Failed(String),
    /// All is done.
    End,
}

impl Line {
    /// As text without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|e| format!(r#"{{"failed":"internal: {e}"}}"#))
    }

    /// From text.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_trip() {
        let lines = [
            Line::Begin { what: "DRAM".into(), step: 1, steps: 9 },
            Line::Value { key: "dram_copy_gbs".into(), samples: vec![4300.5, 4299.0] },
            Line::Skip { what: "cuBLAS".into(), why: "not found".into() },
            Line::Failed("out of memory".into()),
            Line::End,
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_json()), Ok(line));
        }
        assert!(Line::parse("Segmentation fault").is_err());
    }
}
