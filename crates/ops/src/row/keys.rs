//! The keys that the shape of a row may have.

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// A size that may be given once or as [height, width].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair(pub(super) [u64; 2]);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> Visitor<'de> for V {
            type Value = Pair;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a whole number or [height, width]")
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Pair, E> {
                Ok(Pair([v; 2]))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Pair, E> {
                u64::try_from(v).map(|v| Pair([v; 2])).map_err(|_| E::custom(format!("{v} is negative")))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pair, A::Error> {
                let missing = || de::Error::custom("needs two numbers");
                let h = seq.next_element()?.ok_or_else(missing)?;
                let w = seq.next_element()?.ok_or_else(missing)?;
                if seq.next_element::<u64>()?.is_some() {
                    return Err(missing());
                }
                Ok(Pair([h, w]))
            }
        }
        d.deserialize_any(V)
    }
}

/// Every key that any operator's shape may have.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Shape {
    pub(super) b: Option<u64>,
    pub(super) m: Option<u64>,
    pub(super) n: Option<u64>,
    pub(super) k: Option<u64>,
    pub(super) bias: Option<bool>,
    pub(super) layout: Option<GemmLayout>,
    pub(super) ci: Option<u64>,
    pub(super) co: Option<u64>,
    pub(super) hw: Option<u64>,
    pub(super) r: Option<u64>,
    pub(super) s: Option<u64>,
    pub(super) stride: Option<Pair>,
    pub(super) pad: Option<Pair>,
    pub(super) dilation: Option<Pair>,
    pub(super) groups: Option<u64>,
    pub(super) channels_last: Option<bool>,
    pub(super) native: Option<bool>,
    pub(super) input: Option<u64>,
    pub(super) hidden: Option<u64>,
    pub(super) layers: Option<u64>,
    pub(super) bidirectional: Option<bool>,
    pub(super) h: Option<u64>,
    pub(super) w: Option<u64>,
    pub(super) kv: Option<u64>,
    pub(super) kv_len: Option<u64>,
    pub(super) dropout: Option<f64>,
    pub(super) d: Option<u64>,
    pub(super) causal: Option<bool>,
    pub(super) rows: Option<u64>,
    pub(super) cols: Option<u64>,
    pub(super) c: Option<Channels>,
    pub(super) v: Option<u64>,
    pub(super) parts: Option<u64>,
    pub(super) boxes: Option<u64>,
    pub(super) rois: Option<u64>,
    pub(super) size: Option<u64>,
    pub(super) sampling: Option<u64>,
    pub(super) scale: Option<Scale>,
    pub(super) mode: Option<String>,
    pub(super) out: Option<u64>,
}

/// A resize factor, or the scaling mode of an fp8 product.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Scale {
    Factor(f64),
    Mode(serde::de::IgnoredAny),
}

/// Channels of one tensor, or of each tensor that is joined.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Channels {
    One(u64),
    Many(Vec<u64>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GemmLayout {
    Linear,
    Nn,
    Tn,
    /// Layouts of other operators, which do not change their model.
    #[serde(other)]
    Other,
}
