//! Formats in which checkpoints keep their weights, as `quantization_config` says them.

use super::super::super::error::ModelError;
use super::fields::{Fields, wrong};

/// Format of a checkpoint's weights, where it is not 16 or 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// 8-bit floats with a scale for each output or for a whole matrix.
    Fp8,
    /// 8-bit floats with a scale for each block of 128 x 128 (`weight_block_size`), as DeepSeek-V3's.
    Fp8Block,
    /// 8-bit integers.
    Int8,
    /// 4 bits with a scale for a group: integers (GPTQ, AWQ) or NF4.
    Int4,
    /// 4-bit floats with a scale for every 16.
    Nvfp4,
    /// 4-bit floats with a scale for every 32.
    Mxfp4,
    /// By a method that is not known here.
    Other,
}

/// Where formats are said.
const FIELD: &str = "quantization_config";

impl Stored {
    /// Its name, as a server's weights have it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp8 => "fp8",
            Self::Fp8Block => "fp8_block",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Other => "a format of its own",
        }
    }

    /// The format that a configuration says; `None` where it says none.
    pub(super) fn read(config: &Fields) -> Result<Option<Self>, ModelError> {
        let f = config.below(FIELD);
        let Some(method) = f.word(&["quant_method"]) else { return Ok(None) };
        let found = match method {
            "fp8" => Self::fp8(&f, "weight_block_size")?,
            "fbgemm_fp8" => Self::Fp8,
            "mxfp4" => Self::Mxfp4,
            "gptq" | "awq" | "auto-round" => Self::integers(f.number(&["bits", "w_bit"])?.unwrap_or(4))?,
            "bitsandbytes" => Self::integers(if f.flag(&["load_in_8bit"], false)? { 8 } else { 4 })?,
            "compressed-tensors" => Self::group(&f)?,
            "modelopt" | "modelopt_fp4" => match f.word(&["quant_algo"]).map(str::to_uppercase).as_deref() {
                Some("NVFP4") => Self::Nvfp4,
                Some("FP8") => Self::Fp8,
                Some(other) => return Err(unknown("quant_algo", other, "NVFP4 and FP8")),
                None => Self::group(&f)?,
            },
            _ => Self::Other,
        };
        Ok(Some(found))
    }

    /// 8-bit floats, in blocks where the file gives their size.
    fn fp8(f: &Fields, field: &str) -> Result<Self, ModelError> {
        match f.list(field).as_deref() {
            None if f.has(field) => Err(said(field, "must be a list of two numbers".to_string())),
            None => Ok(Self::Fp8),
            Some([128, 128]) => Ok(Self::Fp8Block),
            Some(other) => Err(said(field, format!("{other:?} is not known; blocks are [128, 128]"))),
        }
    }

    fn integers(bits: u64) -> Result<Self, ModelError> {
        match bits {
            8 => Ok(Self::Int8),
            4 => Ok(Self::Int4),
            other => Err(unknown("bits", &other.to_string(), "4 and 8")),
        }
    }

    /// The weights of the first of `config_groups`.
    fn group(f: &Fields) -> Result<Self, ModelError> {
        let groups = f.below("config_groups");
        let Some(first) = groups.names().next() else {
            return Err(said("config_groups", "must have a group with `weights`".to_string()));
        };
        let w = groups.below(first).below("weights");
        let bits = w.number(&["num_bits"])?.unwrap_or(8);
        if w.word(&["type"]).unwrap_or("int") == "int" {
            return Self::integers(bits);
        }
        match (bits, w.number(&["group_size"])?) {
            (8, _) if w.word(&["strategy"]) == Some("block") => Self::fp8(&w, "block_structure"),
            (8, _) => Ok(Self::Fp8),
            (4, Some(32)) => Ok(Self::Mxfp4),
            (4, _) => Ok(Self::Nvfp4),
            (other, _) => Err(unknown("num_bits", &other.to_string(), "4 and 8")),
        }
    }
}

fn said(field: &str, problem: String) -> ModelError {
    wrong(&format!("{FIELD}.{field}"), problem)
}

fn unknown(field: &str, value: &str, known: &str) -> ModelError {
    let value: String = value.chars().take(40).collect();
    said(field, format!("`{value}` is not known; {known} are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Option<Stored>, ModelError> {
        let fields = serde_json::from_str(&format!(r#"{{"quantization_config": {json}}}"#)).unwrap();
        Stored::read(&fields)
    }

    #[test]
    fn formats_of_published_checkpoints_are_read() {
        for (json, format) in [
            // DeepSeek-V3, Qwen3-FP8
            (
                r#"{"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}"#,
                Stored::Fp8Block,
            ),
            (r#"{"activation_scheme": "static", "quant_method": "fp8"}"#, Stored::Fp8),
            // Llama 3.1 405B FP8
            (r#"{"activation_scale_ub": 1200.0, "quant_method": "fbgemm_fp8"}"#, Stored::Fp8),
            // gpt-oss
            (
                r#"{"modules_to_not_convert": ["model.layers.*.self_attn"], "quant_method": "mxfp4"}"#,
                Stored::Mxfp4,
            ),
            (r#"{"bits": 4, "group_size": 128, "quant_method": "awq", "zero_point": true}"#, Stored::Int4),
            (r#"{"bits": 8, "group_size": -1, "quant_method": "gptq"}"#, Stored::Int8),
            (
                r#"{"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}"#,
                Stored::Int4,
            ),
            (
                r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}}}"#,
                Stored::Fp8,
            ),
            (
                r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}}}"#,
                Stored::Int4,
            ),
            (
                r#"{"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}"#,
                Stored::Nvfp4,
            ),
            (r#"{"quant_method": "modelopt", "quant_algo": "NVFP4"}"#, Stored::Nvfp4),
            (r#"{"quant_method": "aqlm", "nbits_per_codebook": 16}"#, Stored::Other),
        ] {
            assert_eq!(read(json).unwrap(), Some(format), "{json}");
        }
        assert_eq!(Stored::read(&Fields::default()).unwrap(), None);
        assert_eq!(read("null").unwrap(), None);
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        for (json, field) in [
            (r#"{"quant_method": "fp8", "weight_block_size": [64, 64]}"#, "weight_block_size"),
            (r#"{"quant_method": "fp8", "weight_block_size": 128}"#, "weight_block_size"),
            (r#"{"quant_method": "gptq", "bits": 3}"#, "bits"),
            (r#"{"quant_method": "compressed-tensors"}"#, "config_groups"),
            (r#"{"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}"#, "quant_algo"),
        ] {
            match read(json) {
                Err(ModelError::Config { field: named, .. }) => {
                    assert_eq!(named, format!("quantization_config.{field}"), "{json}");
                }
                other => panic!("{json}: {other:?}"),
            }
        }
    }
}
