//! DenseNet as in torchvision (Huang et al. 2016, arXiv:1608.06993), without its checkpointing option.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary, Window};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] = &[
    Entry { info: classifier("densenet121", "DenseNet-121", 64, 7_978_856), build },
    Entry { info: classifier("densenet161", "DenseNet-161", 64, 28_681_000), build },
    Entry { info: classifier("densenet169", "DenseNet-169", 64, 14_149_480), build },
    Entry { info: classifier("densenet201", "DenseNet-201", 64, 20_013_928), build },
];

/// Channels of a bottleneck per channel of growth.
const BOTTLENECK: u64 = 4;

fn build(s: Sizes) -> Built<Graph> {
    let (growth, blocks, stem) = match s.name {
        "densenet161" => (48, [6, 12, 36, 24], 96),
        "densenet169" => (32, [6, 12, 32, 32], 64),
        "densenet201" => (32, [6, 12, 48, 32], 64),
        _ => (32, [6, 12, 24, 16], 64),
    };
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let x = b.conv2d("conv0", x, ConvSpec::new(stem, 7).stride(2).pad(3).no_bias())?;
        let x = b.batch_norm("norm0", x)?;
        let x = b.relu_(x)?;
        let mut x = b.max_pool("pool0", x, Window { size: 3, stride: 2, pad: 1, ceil: false })?;
        for (i, layers) in blocks.into_iter().enumerate() {
            x = b.module(&format!("denseblock{}", i + 1), x, |b, x| dense_block(b, x, layers, growth))?;
            if i + 1 < blocks.len() {
                x = b.module(&format!("transition{}", i + 1), x, transition)?;
            }
        }
        b.batch_norm("norm5", x)
    })?;
    let x = b.unary_(x, Unary::Relu)?;
    let x = b.mean(x, &[2, 3], true)?;
    let x = b.flatten(x, 1)?;
    let x = b.linear("classifier", x, 1000, true)?;
    b.finish_with_cross_entropy(x)
}

/// Every layer reads all that came before, copied together.
fn dense_block(b: &mut Builder, x: Tensor, layers: usize, growth: u64) -> Built {
    let mut features = vec![x];
    for i in 0..layers {
        b.count_module();
        let new = b.scope(&format!("denselayer{}", i + 1), |b| {
            let all = b.cat(&features, 1)?;
            let y = b.batch_norm("norm1", all)?;
            let y = b.relu_(y)?;
            let narrow = b.conv2d("conv1", y, ConvSpec::new(BOTTLENECK * growth, 1).no_bias())?;
            b.hold(all);
            let y = b.batch_norm("norm2", narrow)?;
            let y = b.relu_(y)?;
            let new = b.conv2d("conv2", y, ConvSpec::new(growth, 3).pad(1).no_bias())?;
            b.hold(narrow);
            Ok(new)
        })?;
        features.push(new);
    }
    b.cat(&features, 1)
}

fn transition(b: &mut Builder, x: Tensor) -> Built {
    let half = b.dim(x, 1) / 2;
    let x = b.batch_norm("norm", x)?;
    let x = b.relu_(x)?;
    let x = b.conv2d("conv", x, ConvSpec::new(half, 1).no_bias())?;
    b.avg_pool("pool", x, Window { size: 2, stride: 2, pad: 0, ceil: false })
}
