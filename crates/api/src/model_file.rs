//! Models that somebody dropped or sent: told apart by their contents, kept within bounds, built for any batch they allow.

use crate::engine::{Engine, text};
use crate::error::ApiError;
use preflop_core::capture::Capture;
use preflop_core::model::zoo::config::HubConfig;
use preflop_core::model::zoo::config::Stored;
use preflop_core::model::zoo::decoder::Plan;
use preflop_core::model::{Graph, Stage};
use preflop_import::exported::{Bindings, read_onnx, read_pt2};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};
use utoipa::ToSchema;

/// What names of such models start with.
pub const PREFIX: &str = "file:";

/// Bytes of all files that are kept; the oldest go first. One larger than this is refused.
pub const KEPT_BYTES: usize = 512 << 20;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// An ONNX model.
    Onnx,
    /// A `torch.export` archive.
    Pt2,
    /// A Hugging Face `config.json`.
    Config,
    /// A step that the Python package recorded.
    RecordedStep,
    /// A graph in JSON.
    Graph,
}

/// A file, in memory.
#[derive(Debug)]
pub struct ModelFile {
    name: String,
    kind: FileKind,
    bytes: Vec<u8>,
}

/// What was kept, under which name to ask about it, and what can be chosen.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ModelFileAnswer)]
pub struct Answer {
    /// The `model` of questions about it.
    model: String,
    /// The network's name.
    title: String,
    /// `onnx`, `pt2`, `config`, `recorded-step` or `graph`.
    #[schema(value_type = String)]
    kind: FileKind,
    parameters: u64,
    batch: u64,
    seq: Option<u64>,
    /// Can another batch be asked for?
    any_batch: bool,
    /// Can prompts and answers be asked for?
    generates: bool,
}

/// What kind of JSON it is.
#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow)]
    format: Option<Cow<'a, str>>,
    #[serde(borrow)]
    model_type: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "traceEvents")]
    trace: Option<&'a serde_json::value::RawValue>,
}

/// Why a file is none of ours.
const HINT: &str =
    "a model is an .onnx, a .pt2, a Hugging Face config.json or a step recorded by the Python package";

fn refused(message: String) -> ApiError {
    ApiError::Invalid { message, hint: Some(HINT) }
}

impl ModelFile {
    /// Tells what it is, by its first bytes and its name.
    pub fn read(name: &str, bytes: Vec<u8>) -> Result<Self, ApiError> {
        let name: String = name.rsplit(['/', '\\']).next().unwrap_or_default().chars().take(100).collect();
        if bytes.is_empty() {
            return Err(refused(format!("`{name}` is empty")));
        }
        if bytes.len() > KEPT_BYTES {
            return Err(ApiError::Invalid {
                message: format!("`{name}` has more than {} MiB", KEPT_BYTES >> 20),
                hint: Some("ask the command line about it: `preflop predict FILE --gpu GPU`"),
            });
        }
        let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
        let kind = if bytes.starts_with(b"PK\x03\x04") {
            FileKind::Pt2
        } else if name.rsplit('.').next().is_some_and(|end| end.eq_ignore_ascii_case("onnx")) {
            FileKind::Onnx
        } else if first == Some(&b'{') {
            let probe: Probe<'_> =
                serde_json::from_slice(&bytes).map_err(|e| refused(format!("`{name}` is no JSON: {e}")))?;
            match (probe.format.as_deref(), probe.model_type, probe.trace) {
                (_, _, Some(_)) => return Err(refused(format!("`{name}` is a recording, not a model"))),
                (_, Some(_), _) => FileKind::Config,
                (Some("preflop-capture"), ..) => FileKind::RecordedStep,
                _ => FileKind::Graph,
            }
        } else {
            return Err(refused(format!("`{name}` is no model that is known here")));
        };
        Ok(Self { name, kind, bytes })
    }

    fn stem(&self) -> &str {
        self.name.split('.').next().filter(|s| !s.is_empty()).unwrap_or("model")
    }

    fn config(&self) -> Result<HubConfig, ApiError> {
        serde_json::from_slice(&self.bytes)
            .map_err(|e| refused(format!("`{}` is no model configuration: {e}", self.name)))
    }

    /// The network with these sizes, where the file leaves them open.
    pub fn graph(&self, batch: Option<u64>, seq: Option<u64>, stage: Stage) -> Result<Graph, ApiError> {
        let (file, sizes) = (&self.name, Bindings { batch, seq, ..Bindings::default() });
        let said = |e: &dyn std::fmt::Display| refused(format!("{file}: {e}"));
        if self.kind == FileKind::Config {
            return self.config()?.build_stage(self.stem(), batch, seq, stage).map_err(|e| said(&e));
        }
        if stage != Stage::Full {
            let message = format!("{file}: a recorded or exported program writes no tokens");
            return Err(ApiError::Invalid {
                message,
                hint: Some("take a language model by name or by its config.json"),
            });
        }
        let program = match self.kind {
            FileKind::Onnx => read_onnx(Cursor::new(&self.bytes), file, self.stem(), &sizes),
            FileKind::Pt2 => read_pt2(Cursor::new(&self.bytes), file, self.stem(), &sizes),
            _ => return self.recorded(batch, seq),
        };
        program.map_err(|e| refused(e.to_string()))?.into_graph().map_err(|e| said(&e))
    }

    /// A graph whose sizes are built in.
    fn recorded(&self, batch: Option<u64>, seq: Option<u64>) -> Result<Graph, ApiError> {
        let file = &self.name;
        let said = |e: &dyn std::fmt::Display| refused(format!("{file}: {e}"));
        let graph = match self.kind {
            FileKind::RecordedStep => Capture::parse(&self.bytes).map_err(|e| said(&e))?.into_graph(),
            _ => serde_json::from_slice(&self.bytes).map_err(|e| said(&e))?,
        };
        if batch.is_some_and(|b| b != graph.samples) || (seq.is_some() && seq != graph.seq) {
            let message = format!("{file}: its batch and sequence are built in: {}", graph.samples);
            return Err(ApiError::Invalid { message, hint: Some("record the step with another batch") });
        }
        Ok(graph)
    }

    /// The plan of a decoder, its parameters and the format of the checkpoint's weights, where it is one.
    pub fn plan(&self) -> Result<Option<(Plan, u64, Option<Stored>)>, ApiError> {
        if self.kind != FileKind::Config {
            return Ok(None);
        }
        let plan = self.config()?.plan().map_err(|e| refused(format!("{}: {e}", self.name)))?;
        let Some(plan) = plan else { return Ok(None) };
        let graph = self.graph(Some(1), Some(1), Stage::Full)?;
        Ok(Some((plan, graph.parameter_count(), graph.stored)))
    }
}

/// The files kept, the latest first.
#[derive(Debug, Default)]
pub struct ModelFiles(Mutex<VecDeque<(String, Arc<ModelFile>)>>);

impl ModelFiles {
    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<(String, Arc<ModelFile>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a file; gives the name to ask with. The name holds a number made of the contents: answers may be kept by it.
    fn keep(&self, file: Arc<ModelFile>) -> String {
        let number = foldhash::quality::FixedState::default().hash_one(&file.bytes);
        let mut kept = self.kept();
        let mut turn = 0_u64;
        let name = loop {
            let name = format!("{PREFIX}{:016x}/{}", number.wrapping_add(turn), file.name);
            match kept.iter().find(|(known, _)| *known == name) {
                Some((_, other)) if other.bytes != file.bytes => turn += 1,
                _ => break name,
            }
        };
        kept.retain(|(known, _)| *known != name);
        kept.push_front((name.clone(), file));
        let mut bytes = 0;
        kept.retain(|(_, f)| {
            bytes += f.bytes.len();
            bytes <= KEPT_BYTES
        });
        name
    }

    /// The file of a name.
    pub fn find(&self, name: &str) -> Result<Arc<ModelFile>, ApiError> {
        let found = self.kept().iter().find(|(known, _)| known == name).map(|(_, file)| Arc::clone(file));
        found.ok_or_else(|| ApiError::Invalid {
            message: format!("`{}` is not here any more", name.chars().take(140).collect::<String>()),
            hint: Some("drop or send the file again"),
        })
    }
}

impl Engine {
    /// Keeps a model that somebody sent, and says what it is. Questions name it by the `model` of the answer.
    pub fn model_file(&self, name: &str, bytes: Vec<u8>) -> Result<String, ApiError> {
        let file = Arc::new(ModelFile::read(name, bytes)?);
        let graph = file.graph(None, None, Stage::Full)?;
        let other = graph.samples.saturating_add(1);
        let answer = Answer {
            title: graph.name.clone(),
            kind: file.kind,
            parameters: graph.parameter_count(),
            batch: graph.samples,
            seq: graph.seq,
            any_batch: file.graph(Some(other), None, Stage::Full).is_ok_and(|g| g.samples == other),
            generates: file.graph(Some(1), Some(16), Stage::Prefill).is_ok(),
            model: self.jobs.files.keep(file),
        };
        text(&answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}"#;

    fn kept(engine: &Engine, name: &str, bytes: &[u8]) -> Value {
        serde_json::from_str(&engine.model_file(name, bytes.to_vec()).unwrap()).unwrap()
    }

    #[test]
    fn a_configuration_is_kept_and_asked_by_its_name() {
        let engine = Engine::new(None).unwrap();
        let file = kept(&engine, "folder/config.json", CONFIG.as_bytes());
        assert_eq!(
            (&file["kind"], &file["generates"], &file["any_batch"]),
            (&json!("config"), &json!(true), &json!(true))
        );
        let ask = |batch: u64| -> Value {
            let question = json!({"ask": "predict", "model": file["model"], "gpu": "h100", "batch": batch});
            serde_json::from_str(&engine.ask(&question.to_string())).unwrap()
        };
        let (few, many) = (ask(2), ask(64));
        assert!(many["iteration_ms"].as_f64() > few["iteration_ms"].as_f64(), "{few} {many}");
        let same = kept(&engine, "config.json", CONFIG.as_bytes());
        assert_eq!(same["model"], file["model"]);
        let other = kept(&engine, "config.json", CONFIG.replace("512", "1024").as_bytes());
        assert_ne!(other["model"], file["model"]);
    }

    #[test]
    fn what_is_no_model_is_refused_with_what_is_one() {
        let engine = Engine::new(None).unwrap();
        for (name, bytes) in [
            ("a.json", "{".as_bytes()),
            ("a.json", b"{}"),
            ("a.json", br#"{"traceEvents": []}"#),
            ("a.onnx", b"\xff\xff"),
            ("a.pt2", b"PK\x03\x04"),
            ("a.txt", b"hello"),
            ("", b""),
        ] {
            let error = engine.model_file(name, bytes.to_vec()).unwrap_err();
            assert!(error.json().contains("config.json"), "{name}: {error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        let gone = engine.ask(r#"{"ask": "predict", "model": "file:0/x", "gpu": "h100"}"#);
        assert!(gone.contains("not here any more"), "{gone}");
    }
}
