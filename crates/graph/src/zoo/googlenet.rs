//! GoogLeNet as in torchvision (Szegedy et al. 2014, arXiv:1409.4842): batch norm, 3 x 3 instead of 5 x 5 filters, and
//! both auxiliary heads in training. Only the main output enters the loss, so the heads run forward only.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary, When, Window};
use super::{Entry, Sizes, classifier};

/// 6,624,904 of them without the auxiliary heads, as torchvision counts its trained weights.
pub(super) const MODELS: &[Entry] =
    &[Entry { info: classifier("googlenet", "GoogLeNet", 64, 13_004_888), build }];

/// Name, 1x1, 3x3 reduced, 3x3, "5x5" reduced, "5x5", pool projection (Table 1 of the paper).
type Block = (&'static str, u64, [u64; 2], [u64; 2], u64);

const THIRD: [Block; 2] =
    [("inception3a", 64, [96, 128], [16, 32], 32), ("inception3b", 128, [128, 192], [32, 96], 64)];
const FOURTH: [Block; 5] = [
    ("inception4a", 192, [96, 208], [16, 48], 64),
    ("inception4b", 160, [112, 224], [24, 64], 64),
    ("inception4c", 128, [128, 256], [24, 64], 64),
    ("inception4d", 112, [144, 288], [32, 64], 64),
    ("inception4e", 256, [160, 320], [32, 128], 128),
];
const FIFTH: [Block; 2] =
    [("inception5a", 256, [160, 320], [32, 128], 128), ("inception5b", 384, [192, 384], [48, 128], 128)];

const HALVE: Window = Window { size: 3, stride: 2, pad: 0, ceil: true };

fn basic(b: &mut Builder, name: &str, x: Tensor, conv: ConvSpec) -> Built {
    b.module(name, x, |b, x| {
        let x = b.conv2d("conv", x, conv.no_bias())?;
        let x = b.batch_norm("bn", x)?;
        b.unary_(x, Unary::Relu)
    })
}

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = basic(&mut b, "conv1", x, ConvSpec::new(64, 7).stride(2).pad(3))?;
    let x = b.max_pool("maxpool1", x, HALVE)?;
    let x = basic(&mut b, "conv2", x, ConvSpec::new(64, 1))?;
    let x = basic(&mut b, "conv3", x, ConvSpec::new(192, 3).pad(1))?;
    let mut x = b.max_pool("maxpool2", x, HALVE)?;
    for block in THIRD {
        x = inception(&mut b, x, block)?;
    }
    x = b.max_pool("maxpool3", x, HALVE)?;
    let mut heads = Vec::with_capacity(2);
    for (i, block) in FOURTH.into_iter().enumerate() {
        x = inception(&mut b, x, block)?;
        if i == 0 || i == 3 {
            let name = if i == 0 { "aux1" } else { "aux2" };
            heads.push(b.only(When::Train, |b| b.module(name, x, auxiliary))?);
        }
    }
    x = b.max_pool("maxpool4", x, Window { size: 2, ..HALVE })?;
    for block in FIFTH {
        x = inception(&mut b, x, block)?;
    }
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.flatten(x, 1)?;
    let x = b.dropout(x)?;
    let x = b.linear("fc", x, 1000, true)?;
    for head in heads {
        b.keep(head);
    }
    b.finish_with_cross_entropy(x)
}

fn inception(b: &mut Builder, x: Tensor, (name, one, three, five, pool): Block) -> Built {
    b.module(name, x, |b, x| {
        let b1 = basic(b, "branch1", x, ConvSpec::new(one, 1))?;
        let mut parts = vec![b1];
        for (branch, [reduced, out]) in [("branch2", three), ("branch3", five)] {
            parts.push(b.module(branch, x, |b, x| {
                let y = basic(b, "0", x, ConvSpec::new(reduced, 1))?;
                basic(b, "1", y, ConvSpec::new(out, 3).pad(1))
            })?);
        }
        parts.push(b.module("branch4", x, |b, x| {
            let y = b.max_pool("0", x, Window { size: 3, stride: 1, pad: 1, ceil: true })?;
            basic(b, "1", y, ConvSpec::new(pool, 1))
        })?);
        b.cat(&parts, 1)
    })
}

fn auxiliary(b: &mut Builder, x: Tensor) -> Built {
    let x = b.adaptive_avg_pool("pool", x, 4, 4)?;
    let x = basic(b, "conv", x, ConvSpec::new(128, 1))?;
    let x = b.flatten(x, 1)?;
    let x = b.linear("fc1", x, 1024, true)?;
    let x = b.unary_(x, Unary::Relu)?;
    let x = b.dropout(x)?;
    b.linear("fc2", x, 1000, true)
}
