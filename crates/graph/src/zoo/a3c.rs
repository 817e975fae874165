//! A3C's feed-forward network for Atari 2600 (Mnih et al. 2016, arXiv:1602.01783, section 5.1): four stacked frames of
//! 84 x 84, 16 filters of 8 x 8 with stride 4, 32 of 4 x 4 with stride 2, 256 units, then policy and value side by side.
//!
//! A sample is one step of an actor; a batch is the 20 steps between two updates. Six actions, as Pong has. The loss
//! is the policy's log-likelihood, the squared error of the value and the policy's entropy. The paper's
//! shared RMSProp keeps one state per parameter; Adam, which keeps two, stands in for it.

use super::super::Rule;
use super::super::builder::{Builder, Built, ConvSpec};
use super::super::graph::{Graph, GraphOp, Unary, When};
use super::{Entry, ModelInfo, Sizes};

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        name: "a3c",
        title: "A3C actor-critic for Atari, 4 layers",
        family: "reinforcement",
        input: "4 frames of 84 x 84",
        default_batch: 20,
        default_seq: None,
        max_seq: None,
        parameters: 677_943,
        optimizer: Rule::Adam,
    },
    build,
}];

const ACTIONS: u64 = 6;

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(4, 84, 84)?;
    let x = b.conv2d("conv1", x, ConvSpec::new(16, 8).stride(4))?;
    let x = b.unary(x, Unary::Relu)?;
    let x = b.conv2d("conv2", x, ConvSpec::new(32, 4).stride(2))?;
    let x = b.unary(x, Unary::Relu)?;
    let x = b.flatten(x, 1)?;
    let x = b.linear("fc", x, 256, true)?;
    let x = b.unary(x, Unary::Relu)?;
    let policy = b.linear("policy", x, ACTIONS, true)?;
    let value = b.linear("value", x, 1, true)?;
    b.keep(value);
    let loss = b.scope("loss", |b| {
        b.only(When::Train, |b| {
            let actions = b.tokens(&[s.batch])?;
            let returns = b.input(&[s.batch, 1])?;
            let gain = b.call("policy", GraphOp::CrossEntropy, &[policy, actions], &[], &[1])?;
            let error = b.call("value", GraphOp::MseLoss, &[value, returns], &[], &[1])?;
            let error = b.unary(error, Unary::MulScalar)?;
            let probabilities = b.softmax(policy)?;
            let surprise = b.mul(probabilities, policy)?;
            let entropy = b.mean(surprise, &[0, 1], true)?;
            let entropy = b.view(entropy, &[1])?;
            let entropy = b.unary(entropy, Unary::MulScalar)?;
            let loss = b.add(gain, error)?;
            b.add(loss, entropy)
        })
    })?;
    Ok(b.finish_with_loss(policy, loss))
}
