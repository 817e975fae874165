//! The keys that the shape of a row may have.

use crate::ListedKind;
use serde::Deserialize;
use serde::de::{self, Deserializer, IgnoredAny, SeqAccess, Visitor};
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

macro_rules! shape {
    ($($key:ident: $kind:ty,)*) => {
        /// Every key that any operator's shape may have; others are errors.
        #[derive(Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(super) struct Shape {
            $(pub(super) $key: Option<$kind>,)*
        }

        impl Shape {
            /// All keys.
            pub(super) const KEYS: &[&str] = &[$(stringify!($key)),*];

            /// The first key that has a value and is not one of these.
            pub(super) fn other_than(&self, known: &[&str]) -> Option<&'static str> {
                $(if self.$key.is_some() && !known.contains(&stringify!($key)) {
                    return Some(stringify!($key));
                })*
                None
            }
        }
    };
}

impl Shape {
    /// A size of an operator of the table, by its key.
    pub(super) fn listed(&self, key: &str) -> Option<u64> {
        match key {
            "rows" => self.rows,
            "cols" => self.cols,
            "width" => self.width,
            "area" => self.area,
            "b" => self.b,
            "c" => match self.c {
                Some(Channels::One(c)) => Some(c),
                _ => None,
            },
            "d" => self.d,
            "h" => self.h,
            "ci" => self.ci,
            "co" => self.co,
            "groups" => self.groups,
            "hidden" => self.hidden,
            "k" => self.k,
            "l" => self.l,
            "m" => self.m,
            "n" => self.n,
            "parts" => self.parts,
            "s" => self.s,
            "v" => self.v,
            "w" => self.w,
            _ => None,
        }
    }
}

shape! {
    b: u64,
    m: u64,
    n: u64,
    k: u64,
    bias: bool,
    layout: GemmLayout,
    ci: u64,
    co: u64,
    hw: u64,
    r: u64,
    s: u64,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    groups: u64,
    channels_last: bool,
    native: bool,
    input: u64,
    hidden: u64,
    layers: u64,
    bidirectional: bool,
    h: u64,
    w: u64,
    kv: u64,
    kv_len: u64,
    dropout: f64,
    d: u64,
    causal: bool,
    rows: u64,
    cols: u64,
    c: Channels,
    v: u64,
    parts: u64,
    boxes: u64,
    rois: u64,
    size: u64,
    sampling: u64,
    scale: Scale,
    mode: String,
    out: u64,
    width: u64,
    area: u64,
    l: u64,
    // Measured files say how a call was made; these do not change its model.
    mask: IgnoredAny,
    out_pad: IgnoredAny,
    backend: IgnoredAny,
    train: IgnoredAny,
    to: IgnoredAny,
    fast_accum: IgnoredAny,
}

const GEMM: &[&str] = &["b", "m", "n", "k", "bias", "layout", "scale", "fast_accum"];
const CONV: &[&str] = &[
    "b",
    "ci",
    "co",
    "hw",
    "h",
    "w",
    "k",
    "r",
    "s",
    "stride",
    "pad",
    "dilation",
    "groups",
    "channels_last",
    "bias",
    "out_pad",
];
const ATTENTION: &[&str] =
    &["b", "h", "kv", "s", "d", "kv_len", "causal", "dropout", "backend", "layout", "train", "mask"];
const RNN: &[&str] = &["b", "s", "input", "hidden", "layers", "bidirectional", "bias", "dropout", "train"];
const ROWWISE: &[&str] = &["rows", "cols"];
const SPATIAL: &[&str] =
    &["b", "c", "hw", "h", "w", "k", "stride", "pad", "groups", "channels_last", "native", "out", "train"];
const TABLE: &[&str] = &["v", "d", "n"];
const OPTIMIZER: &[&str] = &["n", "parts"];
const MOVEMENT: &[&str] =
    &["rows", "cols", "b", "s", "h", "w", "d", "c", "hw", "n", "v", "to", "channels_last"];
const VISION: &[&str] = &[
    "b",
    "c",
    "hw",
    "h",
    "w",
    "scale",
    "mode",
    "rois",
    "size",
    "out",
    "sampling",
    "boxes",
    "n",
    "channels_last",
];
const ELEMENTWISE: &[&str] = &["n", "rows", "cols", "to"];

/// The keys that an operator's shape may have.
pub(super) fn of(op: &str) -> &'static [&'static str] {
    match op {
        "mm" | "linear" | "bmm" => GEMM,
        "conv2d" | "conv_transpose2d" => CONV,
        "sdpa" => ATTENTION,
        "lstm" | "gru" | "rnn" => RNN,
        "softmax" | "log_softmax" | "layernorm" | "rmsnorm" | "sum" | "mean" | "argmax" | "sum_cols"
        | "sum_channels" => ROWWISE,
        "batchnorm" | "batchnorm_native" | "batchnorm_eval" | "groupnorm" | "maxpool" | "avgpool"
        | "adaptive_avgpool" | "gap" => SPATIAL,
        "embedding" | "cross_entropy" => TABLE,
        "adam" | "adam_single" | "adam_foreach" | "sgd_foreach" | "sgd_plain" => OPTIMIZER,
        "transpose" | "cat" | "cat_channels" | "cat_strided" | "permute_copy" | "gather" | "roll"
        | "layout_conversion" | "to_channels_last" => MOVEMENT,
        "interpolate" | "roi_align" | "nms" => VISION,
        _ => ListedKind::from_name(op).map_or(ELEMENTWISE, ListedKind::keys),
    }
}

/// A resize factor, or the scaling mode of an fp8 product.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Scale {
    Factor(f64),
    Mode(IgnoredAny),
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
