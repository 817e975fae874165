//! AlexNet as in torchvision (the one-tower variant, Krizhevsky 2014, arXiv:1404.5997).

use super::super::builder::{Builder, Built, ConvSpec};
use super::super::graph::{Graph, Window};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] =
    &[Entry { info: classifier("alexnet", "AlexNet", 128, 61_100_840), build }];

fn build(s: Sizes) -> Built<Graph> {
    let pool = Window { size: 3, stride: 2, pad: 0, ceil: false };
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let x = b.conv2d("0", x, ConvSpec::new(64, 11).stride(4).pad(2))?;
        let x = b.relu_(x)?;
        let x = b.max_pool("2", x, pool)?;
        let x = b.conv2d("3", x, ConvSpec::new(192, 5).pad(2))?;
        let x = b.relu_(x)?;
        let x = b.max_pool("5", x, pool)?;
        let x = b.conv2d("6", x, ConvSpec::new(384, 3).pad(1))?;
        let x = b.relu_(x)?;
        let x = b.conv2d("8", x, ConvSpec::new(256, 3).pad(1))?;
        let x = b.relu_(x)?;
        let x = b.conv2d("10", x, ConvSpec::new(256, 3).pad(1))?;
        let x = b.relu_(x)?;
        b.max_pool("12", x, pool)
    })?;
    let x = b.adaptive_avg_pool("avgpool", x, 6, 6)?;
    let x = b.flatten(x, 1)?;
    let x = b.module("classifier", x, |b, x| {
        let x = b.dropout(x)?;
        let x = b.linear("1", x, 4096, true)?;
        let x = b.relu_(x)?;
        let x = b.dropout(x)?;
        let x = b.linear("4", x, 4096, true)?;
        let x = b.relu_(x)?;
        b.linear("6", x, 1000, true)
    })?;
    b.finish_with_cross_entropy(x)
}
