//! Swin transformers as in torchvision (Liu et al. 2021, arXiv:2103.14030): attention in windows of 7 x 7, shifted in every second
//! block. Bias and mask are added to the scores operator by operator, so no fused attention runs; paddings by
//! nothing are copies; the shift's mask is made anew in each call.

use super::super::Rule;
use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes, classifier};

const fn info(name: &'static str, title: &'static str, batch: u64, parameters: u64) -> ModelInfo {
    ModelInfo { family: "transformer", optimizer: Rule::Adam, ..classifier(name, title, batch, parameters) }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("swin_t", "Swin tiny", 64, 28_288_354), build },
    Entry { info: info("swin_s", "Swin small", 64, 49_606_258), build },
    Entry { info: info("swin_b", "Swin base", 64, 87_768_224), build },
];

/// Side of a window.
const WINDOW: u64 = 7;
/// Tokens of a window.
const TOKENS: u64 = WINDOW * WINDOW;

fn build(s: Sizes) -> Built<Graph> {
    let (width, heads, third) = match s.name {
        "swin_s" => (96, 3, 18),
        "swin_b" => (128, 4, 18),
        _ => (96, 3, 6),
    };
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let mut x = b.module("0", x, |b, x| {
            let x = b.conv2d("0", x, ConvSpec::new(width, 4).stride(4))?;
            b.count_module();
            let x = b.permute(x, &[0, 2, 3, 1])?;
            b.layer_norm("2", x)
        })?;
        for (stage, blocks) in [2, 2, third, 2].into_iter().enumerate() {
            x = b.module(&(2 * stage + 1).to_string(), x, |b, x| {
                let mut x = x;
                for i in 0..blocks {
                    let block = Block { heads: heads << stage, shifted: i % 2 == 1, drops: stage + i > 0 };
                    x = b.module(&i.to_string(), x, |b, x| block.forward(b, x))?;
                }
                Ok(x)
            })?;
            if stage < 3 {
                x = b.module(&(2 * stage + 2).to_string(), x, patch_merging)?;
            }
        }
        Ok(x)
    })?;
    let x = b.layer_norm("norm", x)?;
    b.count_module();
    let x = b.permute(x, &[0, 3, 1, 2])?;
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    b.count_module();
    let x = b.flatten(x, 1)?;
    let x = b.linear("head", x, 1000, true)?;
    b.finish_with_cross_entropy(x)
}

/// Four neighbours side by side, then half as many channels.
fn patch_merging(b: &mut Builder, x: Tensor) -> Built {
    let shape = b.shape(x);
    let channels = b.dim(x, 3);
    let x = b.reorder("pad", x, &shape)?;
    let mut parts = Vec::with_capacity(4);
    for _ in 0..4 {
        let rows = b.strided_slice(x, 1, 2)?;
        parts.push(b.strided_slice(rows, 2, 2)?);
    }
    let x = b.cat(&parts, 3)?;
    let x = b.layer_norm("norm", x)?;
    b.linear("reduction", x, 2 * channels, false)
}

/// A block: attention and multilayer perceptron, each with a shortcut.
#[derive(Clone, Copy)]
struct Block {
    heads: u64,
    shifted: bool,
    /// Is the probability of stochastic depth above 0?
    drops: bool,
}

impl Block {
    fn forward(self, b: &mut Builder, x: Tensor) -> Built {
        let width = b.dim(x, 3);
        let y = b.layer_norm("norm1", x)?;
        let y = b.module("attn", y, |b, y| self.attention(b, y))?;
        let y = if self.drops { b.stochastic_depth(y)? } else { y };
        let x = b.add(x, y)?;
        let y = b.layer_norm("norm2", x)?;
        let y = b.module("mlp", y, |b, y| {
            let y = b.linear("0", y, 4 * width, true)?;
            let y = b.gelu(y)?;
            b.count_module();
            let y = b.linear("3", y, width, true)?;
            b.count_module();
            Ok(y)
        })?;
        let y = if self.drops { b.stochastic_depth(y)? } else { y };
        b.add(x, y)
    }

    fn attention(self, b: &mut Builder, x: Tensor) -> Built {
        let shape = b.shape(x);
        let [batch, height, width, channels] = [shape[0], shape[1], shape[2], shape[3]];
        let (down, across) = (height / WINDOW, width / WINDOW);
        let windows = down * across;
        let shifted = self.shifted && windows > 1;
        let split = [batch * windows, self.heads, TOKENS, channels / self.heads];
        let bias = self.position_bias(b)?;
        // A padding by nothing is a copy.
        let mut x = b.reorder("pad", x, &shape)?;
        if shifted {
            x = roll(b, x)?;
        }
        let x = b.view(x, &[batch, down, WINDOW, across, WINDOW, channels])?;
        let x = b.permute(x, &[0, 1, 3, 2, 4, 5])?;
        let x = b.view(x, &[batch * windows, TOKENS, channels])?;
        let qkv = b.linear("qkv", x, 3 * channels, true)?;
        let qkv = b.view(qkv, &[split[0], TOKENS, 3, self.heads, split[3]])?;
        let qkv = b.permute(qkv, &[2, 0, 3, 1, 4])?;
        let (q, k, v) = (b.select(qkv, 0)?, b.select(qkv, 0)?, b.select(qkv, 0)?);
        let q = b.unary(q, Unary::MulScalar)?;
        let k = b.transpose(k, 2, 3)?;
        let scores = b.matmul(q, k)?;
        let mut scores = b.add(scores, bias)?;
        if shifted {
            let mask = shift_mask(b, down, across)?;
            let by_window = b.view(scores, &[batch, windows, self.heads, TOKENS, TOKENS])?;
            let masked = b.add(by_window, mask)?;
            scores = b.view(masked, &[split[0], self.heads, TOKENS, TOKENS])?;
        }
        let weights = b.softmax(scores)?;
        let y = b.matmul(weights, v)?;
        let y = b.transpose(y, 1, 2)?;
        let y = b.view(y, &[split[0], TOKENS, channels])?;
        b.hold(x);
        let y = b.linear("proj", y, channels, true)?;
        let y = b.view(y, &[batch, down, across, WINDOW, WINDOW, channels])?;
        let y = b.permute(y, &[0, 1, 3, 2, 4, 5])?;
        let mut y = b.view(y, &shape)?;
        if shifted {
            y = roll(b, y)?;
        }
        // The function's variables live until it returns.
        for variable in [q, v, weights] {
            b.hold(variable);
        }
        Ok(y)
    }

    /// `[1, heads, 49, 49]` looked up in a table of the (2 * 7 - 1)^2 relative positions.
    fn position_bias(self, b: &mut Builder) -> Built {
        let side = 2 * WINDOW - 1;
        let table = b.parameter("relative_position_bias_table", &[side * side, self.heads]);
        let index = b.tokens(&[TOKENS * TOKENS])?;
        let bias = b.gather("relative_position_bias", index, table)?;
        let bias = b.view(bias, &[TOKENS, TOKENS, self.heads])?;
        let bias = b.permute(bias, &[2, 0, 1])?;
        let bias = b.contiguous(bias)?;
        b.view(bias, &[1, self.heads, TOKENS, TOKENS])
    }
}

/// `torch.roll` along two dimensions: one kernel each.
fn roll(b: &mut Builder, x: Tensor) -> Built {
    let shape = b.shape(x);
    let x = b.reorder("roll", x, &shape)?;
    b.reorder("roll", x, &shape)
}

/// Zeros, nine regions numbered, differences of all pairs within a window, and two fills by condition.
fn shift_mask(b: &mut Builder, down: u64, across: u64) -> Built {
    b.scope("mask", |b| {
        let m = b.create("zeros", &[down * WINDOW, across * WINDOW])?;
        // The nine regions cover the map once.
        for _ in 0..9 {
            b.create("region", &[(down * WINDOW * across * WINDOW / 9).max(1)])?;
        }
        let m = b.view(m, &[down, WINDOW, across, WINDOW])?;
        let m = b.permute(m, &[0, 2, 1, 3])?;
        let m = b.view(m, &[down * across, TOKENS])?;
        let row = b.view(m, &[down * across, 1, TOKENS])?;
        let column = b.view(m, &[down * across, TOKENS, 1])?;
        let mut m = b.binary(row, column, super::super::graph::Binary::Sub, false)?;
        let shape = b.shape(m);
        for _ in 0..2 {
            // Compare, copy, fill where it holds.
            b.unary(m, Unary::AddScalar)?;
            m = b.reorder("masked_fill", m, &shape)?;
            m = b.unary_(m, Unary::AddScalar)?;
        }
        b.view(m, &[1, down * across, 1, TOKENS, TOKENS])
    })
}
