//! An eight-layer LSTM translator with attention, 1024 wide (Wu et al. 2016, arXiv:1609.08144).
//!
//! `gnmt` is the network of published training runs (NVIDIA's GNMT v2): attention by a sum through tanh, its context beside the input of the decoder's upper
//! layers, residuals, an output layer of 1024 x 32,317. `gnmt-wide` is the one that was measured on the H200 for this project:
//! one stack of decoder layers, attention by products after it, an output layer of 2048 x 32,317.

use super::super::Rule;
use super::super::builder::{Builder, Built, RnnSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

const PUBLISHED: ModelInfo = ModelInfo {
    name: "gnmt",
    title: "GNMT: 8-layer LSTM encoder and decoder with attention",
    family: "rnn",
    input: "sentence pair",
    default_batch: 64,
    default_seq: Some(50),
    max_seq: None,
    parameters: 160_665_149,
    optimizer: Rule::Adam,
};

pub(super) const MODELS: &[Entry] = &[
    Entry { info: PUBLISHED, build: published },
    Entry {
        info: ModelInfo {
            name: "gnmt-wide",
            title: "GNMT as measured on the H200: attention after the decoder, output twice as wide",
            parameters: 180_124_221,
            ..PUBLISHED
        },
        build: wide,
    },
];

const VOCABULARY: u64 = 32_317;
const WIDTH: u64 = 1024;

/// A layer with dropout before it.
fn layer(b: &mut Builder, name: &str, x: Tensor) -> Built {
    let x = b.dropout(x)?;
    b.rnn(name, x, RnnSpec::lstm(WIDTH, 1))
}

/// softmax(v tanh(W q + U k)) of every query over every key, times the values: sequences come first in `queries` and `keys`.
fn attention(b: &mut Builder, queries: Tensor, keys: Tensor, s: Sizes) -> Built {
    let q = b.transpose(queries, 0, 1)?;
    let k = b.transpose(keys, 0, 1)?;
    let one = b.linear("attention.query", q, WIDTH, false)?;
    let other = b.linear("attention.memory", k, WIDTH, false)?;
    let one = b.view(one, &[s.batch, s.seq, 1, WIDTH])?;
    let other = b.view(other, &[s.batch, 1, s.seq, WIDTH])?;
    let sum = b.add(one, other)?;
    let bias = b.parameter("attention.bias", &[WIDTH]);
    let bias = b.use_parameter(bias)?;
    let sum = b.add(sum, bias)?;
    let sum = b.unary(sum, Unary::Tanh)?;
    let scores = b.linear("attention.score", sum, 1, false)?;
    let scores = b.view(scores, &[s.batch, s.seq, s.seq])?;
    let weights = b.softmax(scores)?;
    let context = b.matmul(weights, k)?;
    b.transpose(context, 0, 1)
}

fn published(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let source = b.tokens(&[s.seq, s.batch])?;
    let target = b.tokens(&[s.seq, s.batch])?;
    let (x, table) = b.embedding("embedder", source, VOCABULARY, WIDTH)?;
    let x = b.dropout(x)?;
    let x = b.rnn("encoder.0", x, RnnSpec { bidirectional: true, ..RnnSpec::lstm(WIDTH, 1) })?;
    let mut x = layer(&mut b, "encoder.1", x)?;
    for name in ["encoder.2", "encoder.3"] {
        let y = layer(&mut b, name, x)?;
        x = b.add(y, x)?;
    }
    let y = b.embedding_with("embedder", target, table)?;
    let mut y = layer(&mut b, "decoder.0", y)?;
    let context = attention(&mut b, y, x, s)?;
    for (number, name) in ["decoder.1", "decoder.2", "decoder.3"].into_iter().enumerate() {
        let joined = b.cat(&[y, context], 2)?;
        let out = layer(&mut b, name, joined)?;
        y = if number == 0 { out } else { b.add(out, y)? };
    }
    let logits = b.linear("classifier", y, VOCABULARY, true)?;
    b.finish_with_cross_entropy(logits)
}

fn wide(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let source = b.tokens(&[s.seq, s.batch])?;
    let target = b.tokens(&[s.seq, s.batch])?;
    let (x, table) = b.embedding("e", source, VOCABULARY, WIDTH)?;
    let x = b.rnn("bi", x, RnnSpec { bidirectional: true, ..RnnSpec::lstm(WIDTH, 1) })?;
    let x = b.rnn("enc", x, RnnSpec::lstm(WIDTH, 3))?;
    let y = b.embedding_with("e", target, table)?;
    let y = b.rnn("dec", y, RnnSpec::lstm(WIDTH, 4))?;
    let q = b.linear("q", y, WIDTH, false)?;
    let q = b.transpose(q, 0, 1)?;
    let keys = b.permute(x, &[1, 2, 0])?;
    let scores = b.matmul(q, keys)?;
    let weights = b.softmax(scores)?;
    let values = b.transpose(x, 0, 1)?;
    let context = b.matmul(weights, values)?;
    let context = b.transpose(context, 0, 1)?;
    let joined = b.cat(&[y, context], 2)?;
    let logits = b.linear("o", joined, VOCABULARY, true)?;
    for local in [x, y, weights, context] {
        b.hold(local);
    }
    b.finish_with_cross_entropy(logits)
}
