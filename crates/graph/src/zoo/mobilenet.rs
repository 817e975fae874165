//! MobileNetV2 as in torchvision (Sandler et al. 2018, arXiv:1801.04381).

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] =
    &[Entry { info: classifier("mobilenet_v2", "MobileNetV2", 64, 3_504_872), build }];

/// Expansion, channels, repeats, first stride (Table 2 of the paper).
const STAGES: [(u64, u64, usize, u64); 7] = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
];

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let mut x = conv_norm_act(b, "0", x, ConvSpec::new(32, 3).stride(2).pad(1))?;
        let mut index = 1;
        for (expand, channels, repeats, first) in STAGES {
            for i in 0..repeats {
                let stride = if i == 0 { first } else { 1 };
                x = b.module(&index.to_string(), x, |b, x| {
                    inverted_residual(b, x, expand, channels, stride)
                })?;
                index += 1;
            }
        }
        conv_norm_act(b, "18", x, ConvSpec::new(1280, 1))
    })?;
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.flatten(x, 1)?;
    let x = b.module("classifier", x, |b, x| {
        let x = b.dropout(x)?;
        b.linear("1", x, 1000, true)
    })?;
    b.finish_with_cross_entropy(x)
}

fn conv_norm_act(b: &mut Builder, name: &str, x: Tensor, conv: ConvSpec) -> Built {
    b.module(name, x, |b, x| {
        let x = b.conv2d("0", x, conv.no_bias())?;
        let x = b.batch_norm("1", x)?;
        b.activation("2", x, Unary::Relu6, true)
    })
}

fn inverted_residual(b: &mut Builder, x: Tensor, expand: u64, channels: u64, stride: u64) -> Built {
    let input = b.dim(x, 1);
    let hidden = input * expand;
    let y = b.module("conv", x, |b, x| {
        let mut y = x;
        let mut index = 0;
        if expand != 1 {
            y = conv_norm_act(b, "0", y, ConvSpec::new(hidden, 1))?;
            index += 1;
        }
        y = conv_norm_act(
            b,
            &index.to_string(),
            y,
            ConvSpec::new(hidden, 3).stride(stride).pad(1).groups(hidden),
        )?;
        y = b.conv2d(&(index + 1).to_string(), y, ConvSpec::new(channels, 1).no_bias())?;
        b.batch_norm(&(index + 2).to_string(), y)
    })?;
    if stride == 1 && input == channels { b.add(x, y) } else { Ok(y) }
}
