//! EfficientNet-B0 as in torchvision (Tan and Le 2019, arXiv:1905.11946).

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] =
    &[Entry { info: classifier("efficientnet_b0", "EfficientNet-B0", 64, 5_288_548), build }];

/// Expansion, filter, first stride, channels, repeats (Table 1 of the paper).
const STAGES: [(u64, u64, u64, u64, usize); 7] = [
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
];

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let mut x = conv_norm(b, "0", x, ConvSpec::new(32, 3).stride(2).pad(1), true)?;
        for (i, (expand, kernel, first, channels, repeats)) in STAGES.into_iter().enumerate() {
            x = b.module(&(i + 1).to_string(), x, |b, x| {
                let mut x = x;
                for j in 0..repeats {
                    let stride = if j == 0 { first } else { 1 };
                    x =
                        b.module(&j.to_string(), x, |b, x| mb_conv(b, x, expand, kernel, stride, channels))?;
                }
                Ok(x)
            })?;
        }
        conv_norm(b, "8", x, ConvSpec::new(1280, 1), true)
    })?;
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.flatten(x, 1)?;
    let x = b.module("classifier", x, |b, x| {
        let x = b.dropout_(x)?;
        b.linear("1", x, 1000, true)
    })?;
    b.finish_with_cross_entropy(x)
}

fn conv_norm(b: &mut Builder, name: &str, x: Tensor, conv: ConvSpec, activate: bool) -> Built {
    b.module(name, x, |b, x| {
        let x = b.conv2d("0", x, conv.no_bias())?;
        let x = b.batch_norm("1", x)?;
        if activate { b.activation("2", x, Unary::Silu, true) } else { Ok(x) }
    })
}

fn mb_conv(b: &mut Builder, x: Tensor, expand: u64, kernel: u64, stride: u64, channels: u64) -> Built {
    let input = b.dim(x, 1);
    let hidden = input * expand;
    let y = b.module("block", x, |b, x| {
        let mut y = x;
        let mut index = 0;
        if expand != 1 {
            y = conv_norm(b, "0", y, ConvSpec::new(hidden, 1), true)?;
            index += 1;
        }
        let depthwise = ConvSpec::new(hidden, kernel).stride(stride).pad(kernel / 2).groups(hidden);
        y = conv_norm(b, &index.to_string(), y, depthwise, true)?;
        y = b.module(&(index + 1).to_string(), y, |b, y| squeeze_excitation(b, y, (input / 4).max(1)))?;
        conv_norm(b, &(index + 2).to_string(), y, ConvSpec::new(channels, 1), false)
    })?;
    if stride != 1 || input != channels {
        return Ok(y);
    }
    // Only the very first block has a probability of 0, and it has no shortcut.
    let y = b.stochastic_depth(y)?;
    b.add_(y, x)
}

fn squeeze_excitation(b: &mut Builder, x: Tensor, squeezed: u64) -> Built {
    let channels = b.dim(x, 1);
    let s = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let s = b.conv2d("fc1", s, ConvSpec::new(squeezed, 1))?;
    let s = b.activation("activation", s, Unary::Silu, true)?;
    let s = b.conv2d("fc2", s, ConvSpec::new(channels, 1))?;
    let s = b.activation("scale_activation", s, Unary::Sigmoid, false)?;
    b.mul(s, x)
}
