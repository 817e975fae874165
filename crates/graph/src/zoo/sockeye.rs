//! A Sockeye translator for IWSLT15 English-Vietnamese (Hieber et al. 2017, arXiv:1712.05690, section 2.1): five LSTM
//! layers of 512, three in the encoder (the first in both directions, 256 each) and two in the decoder, whose
//! time steps are a loop: input feeding makes each step wait for the attention of the one before.
//!
//! Encoder layers run in cuDNN. A decoder cell is two products and its gates operator by operator, as the
//! unfused cells of Sockeye's MXNet code; attention is the additive one (Bahdanau et al. 2014, arXiv:1409.0473).
//! Vocabularies are those of the Stanford preprocessing of IWSLT15: 17,191 English and 7,709 Vietnamese words.

use super::super::Rule;
use super::super::builder::{Builder, Built, Param, RnnSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        name: "sockeye",
        title: "Sockeye: 5-layer LSTM translator with attention",
        family: "rnn",
        input: "sentence pair",
        default_batch: 64,
        default_seq: Some(25),
        // Each target word is a piece of graph of its own.
        max_seq: Some(1024),
        parameters: 29_834_269,
        optimizer: Rule::Adam,
    },
    build,
}];

const SOURCE_WORDS: u64 = 17_191;
const TARGET_WORDS: u64 = 7709;
const WIDTH: u64 = 512;
const DECODER_LAYERS: usize = 2;

/// Weight and bias.
type Layer = (Param, Param);

fn layer(b: &mut Builder, name: &str, out: u64, features: u64) -> Layer {
    (b.parameter(&format!("{name}.weight"), &[out, features]), b.parameter(&format!("{name}.bias"), &[out]))
}

/// Weights of the decoder, used at every step.
struct Decoder {
    cells: Vec<[Layer; 2]>,
    query: Param,
    score: Param,
    combine: Layer,
}

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let source = b.tokens(&[s.seq, s.batch])?;
    let target = b.tokens(&[s.seq, s.batch])?;
    let memory = b.scope("encoder", |b| {
        let (x, _) = b.embedding("embedding", source, SOURCE_WORDS, WIDTH)?;
        let x = b.rnn("birnn", x, RnnSpec { bidirectional: true, ..RnnSpec::lstm(WIDTH / 2, 1) })?;
        let x = b.rnn("rnn", x, RnnSpec::lstm(WIDTH, 2))?;
        let x = b.transpose(x, 0, 1)?;
        b.contiguous(x)
    })?;
    let states = b.scope("decoder", |b| decode(b, target, memory, s))?;
    b.hold(memory);
    let states = b.view(states, &[s.seq * s.batch, WIDTH])?;
    let logits = b.linear("output", states, TARGET_WORDS, true)?;
    b.finish_with_cross_entropy(logits)
}

/// The attended states `[seq, batch, width]` of all steps.
fn decode(b: &mut Builder, target: Tensor, memory: Tensor, s: Sizes) -> Built {
    let (words, _) = b.embedding("embedding", target, TARGET_WORDS, WIDTH)?;
    // The encoder's last state starts both states of each layer.
    let last = b.select(memory, 1)?;
    let mut states = Vec::with_capacity(DECODER_LAYERS);
    for i in 0..DECODER_LAYERS {
        let mut pair = [last; 2];
        for (state, name) in pair.iter_mut().zip(["h", "c"]) {
            let x = b.linear(&format!("init.{i}.{name}"), last, WIDTH, true)?;
            *state = b.unary(x, Unary::Tanh)?;
        }
        states.push(pair);
    }
    let decoder = Decoder {
        cells: (0..DECODER_LAYERS)
            .map(|i| {
                let input = if i == 0 { 2 * WIDTH } else { WIDTH };
                [
                    layer(b, &format!("cell.{i}.i2h"), 4 * WIDTH, input),
                    layer(b, &format!("cell.{i}.h2h"), 4 * WIDTH, WIDTH),
                ]
            })
            .collect(),
        query: b.parameter("attention.query.weight", &[WIDTH, WIDTH]),
        score: b.parameter("attention.score.weight", &[1, WIDTH]),
        combine: layer(b, "attention.combine", WIDTH, 2 * WIDTH),
    };
    let keys = b.linear("attention.key", memory, WIDTH, false)?;
    let mut attended = b.create("attended", &[s.batch, WIDTH])?;
    let mut outputs = Vec::with_capacity(s.seq as usize);
    for t in 0..s.seq {
        attended = b.scope(&format!("step.{t}"), |b| {
            let word = b.select(words, 0)?;
            let mut x = b.cat(&[word, attended], 1)?;
            for (weights, state) in decoder.cells.iter().zip(&mut states) {
                *state = cell(b, x, *state, weights)?;
                x = state[0];
            }
            attend(b, x, keys, memory, &decoder)
        })?;
        outputs.push(b.view(attended, &[1, s.batch, WIDTH])?);
    }
    b.cat(&outputs, 0)
}

/// An LSTM cell: hidden and cell state of the next step.
fn cell(b: &mut Builder, x: Tensor, [h, c]: [Tensor; 2], weights: &[Layer; 2]) -> Built<[Tensor; 2]> {
    let a = b.linear_with("i2h", x, weights[0].0, Some(weights[0].1))?;
    let r = b.linear_with("h2h", h, weights[1].0, Some(weights[1].1))?;
    let gates = b.add(a, r)?;
    let gates = b.chunk(gates, 4, 1)?;
    let input = b.unary(gates[0], Unary::Sigmoid)?;
    let forget = b.unary(gates[1], Unary::Sigmoid)?;
    let candidate = b.unary(gates[2], Unary::Tanh)?;
    let output = b.unary(gates[3], Unary::Sigmoid)?;
    let kept = b.mul(forget, c)?;
    let new = b.mul(input, candidate)?;
    let c = b.add(kept, new)?;
    let shown = b.unary(c, Unary::Tanh)?;
    Ok([b.mul(output, shown)?, c])
}

/// Additive attention of one state `[batch, width]` over the source, and its combination with the state.
fn attend(b: &mut Builder, h: Tensor, keys: Tensor, memory: Tensor, d: &Decoder) -> Built {
    let [batch, len] = [b.dim(keys, 0), b.dim(keys, 1)];
    let q = b.linear_with("query", h, d.query, None)?;
    let q = b.view(q, &[batch, 1, WIDTH])?;
    let mixed = b.add(keys, q)?;
    let mixed = b.unary(mixed, Unary::Tanh)?;
    let scores = b.linear_with("score", mixed, d.score, None)?;
    let scores = b.view(scores, &[batch, 1, len])?;
    let weights = b.softmax(scores)?;
    let context = b.matmul(weights, memory)?;
    let context = b.view(context, &[batch, WIDTH])?;
    let joined = b.cat(&[context, h], 1)?;
    let combined = b.linear_with("combine", joined, d.combine.0, Some(d.combine.1))?;
    b.unary(combined, Unary::Tanh)
}
