//! An eight-layer LSTM translator with attention, 1024 wide: the shape of GNMT (Wu et al. 2016, arXiv:1609.08144).

use super::super::OptimizerChoice;
use super::super::builder::{Builder, Built, RnnSpec};
use super::super::graph::Graph;
use super::{Entry, ModelInfo, Sizes};

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        name: "gnmt",
        title: "GNMT: 8-layer LSTM encoder and decoder with attention",
        family: "rnn",
        input: "sentence pair",
        default_batch: 64,
        default_seq: Some(50),
        max_seq: None,
        parameters: 180_124_221,
        optimizer: OptimizerChoice::Adam,
    },
    build,
}];

const VOCABULARY: u64 = 32_317;
const WIDTH: u64 = 1024;

fn build(s: Sizes) -> Built<Graph> {
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
