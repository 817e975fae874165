//! Questions about a file: its bytes stand beside the question, in the memory of the shell.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::profile::ProfileOptions;
use serde::Deserialize;

/// A question about a file.
#[derive(Debug, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase", deny_unknown_fields)]
enum About {
    /// Keep this model.
    Model { name: String },
    /// Explain this recording and carry it to other GPUs.
    Profile { name: String, from: Option<String>, to: Option<Vec<String>>, host: Option<f64> },
}

impl Engine {
    /// A question about a file as JSON, answered as JSON. Errors are answers too.
    pub fn ask_about(&self, question: &str, bytes: Vec<u8>) -> String {
        let asked: Result<About, _> = serde_json::from_str(question);
        let answer = asked.map_err(ApiError::from).and_then(|about| match about {
            About::Model { name } => self.model_file(&name, bytes),
            About::Profile { name, from, to, host } => {
                self.recording(&name, &bytes, &ProfileOptions { from, to, host })
            }
        });
        answer.unwrap_or_else(|error| error.json())
    }

    /// Reads a recording from memory, explains it and carries it to other GPUs.
    pub fn recording(&self, name: &str, bytes: &[u8], options: &ProfileOptions) -> Result<String, ApiError> {
        let profile = preflop_import::import_bytes(bytes, name).map_err(|error| ApiError::Invalid {
            message: error.to_string(),
            hint: Some(
                "take the file as it is: PyTorch profiler JSON, Nsight Compute CSV, Chakra, .gz or .zst",
            ),
        })?;
        self.profile(&profile, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const TRACE: &str = r#"{"deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}], "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 40,
         "args": {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 10, "dur": 6, "args": {"correlation": 7}},
        {"ph": "X", "cat": "kernel", "name": "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "pid": 0, "tid": 7, "ts": 20, "dur": 190,
         "args": {"device": 0, "correlation": 7, "grid": [132, 1, 1], "block": [384, 1, 1]}}]}"#;

    #[test]
    fn a_recording_in_memory_is_explained_and_carried_over() {
        let engine = Engine::new(None).unwrap();
        let question = r#"{"ask": "profile", "name": "trace.json", "to": ["a100", "l4"]}"#;
        let answer: Value = serde_json::from_str(&engine.ask_about(question, TRACE.into())).unwrap();
        assert_eq!(answer["transfer"]["targets"].as_array().map(Vec::len), Some(2), "{answer}");
        assert!(answer["explanation"]["gpu_busy_ms"].as_f64() > Some(0.1));
    }

    #[test]
    fn wrong_questions_and_files_are_answered_in_one_line() {
        let engine = Engine::new(None).unwrap();
        for (question, bytes) in [
            ("{", ""),
            (r#"{"ask": "predict", "name": "x"}"#, ""),
            (r#"{"ask": "profile", "name": "x", "form": "h100"}"#, TRACE),
            (r#"{"ask": "profile", "name": "x"}"#, "hello"),
            (r#"{"ask": "profile", "name": "x", "to": ["nothing"]}"#, TRACE),
            (r#"{"ask": "profile", "name": "x", "host": 0}"#, TRACE),
            (r#"{"ask": "model", "name": "x"}"#, TRACE),
        ] {
            let answer: Value = serde_json::from_str(&engine.ask_about(question, bytes.into())).unwrap();
            assert!(answer["error"]["message"].is_string(), "{question}: {answer}");
        }
    }
}
