//! Inception v3 as in torchvision (Szegedy et al. 2015, arXiv:1512.00567), with its auxiliary head in training.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary, When, Window};
use super::{Entry, ModelInfo, Sizes, classifier};

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        input: "3 x 299 x 299 image",
        ..classifier("inception_v3", "Inception v3", 64, 27_161_264)
    },
    build,
}];

fn basic(b: &mut Builder, name: &str, x: Tensor, conv: ConvSpec) -> Built {
    b.module(name, x, |b, x| {
        let x = b.conv2d("conv", x, conv.no_bias())?;
        let x = b.batch_norm("bn", x)?;
        b.unary_(x, Unary::Relu)
    })
}

fn one(co: u64) -> ConvSpec {
    ConvSpec::new(co, 1)
}

/// 1 x 7 or 7 x 1.
fn row(co: u64, k: u64) -> ConvSpec {
    ConvSpec::rect(co, 1, k).pad_hw(0, k / 2)
}

fn column(co: u64, k: u64) -> ConvSpec {
    ConvSpec::rect(co, k, 1).pad_hw(k / 2, 0)
}

const HALVE: Window = Window { size: 3, stride: 2, pad: 0, ceil: false };
const SMOOTH: Window = Window { size: 3, stride: 1, pad: 1, ceil: false };

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 299, 299)?;
    let x = basic(&mut b, "Conv2d_1a_3x3", x, ConvSpec::new(32, 3).stride(2))?;
    let x = basic(&mut b, "Conv2d_2a_3x3", x, ConvSpec::new(32, 3))?;
    let x = basic(&mut b, "Conv2d_2b_3x3", x, ConvSpec::new(64, 3).pad(1))?;
    let x = b.max_pool("maxpool1", x, HALVE)?;
    let x = basic(&mut b, "Conv2d_3b_1x1", x, one(80))?;
    let x = basic(&mut b, "Conv2d_4a_3x3", x, ConvSpec::new(192, 3))?;
    let mut x = b.max_pool("maxpool2", x, HALVE)?;
    for (name, pool) in [("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)] {
        x = b.module(name, x, |b, x| block_a(b, x, pool))?;
    }
    x = b.module("Mixed_6a", x, block_b)?;
    for (name, c7) in [("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)] {
        x = b.module(name, x, |b, x| block_c(b, x, c7))?;
    }
    let aux = b.only(When::Train, |b| b.module("AuxLogits", x, auxiliary))?;
    x = b.module("Mixed_7a", x, block_d)?;
    for name in ["Mixed_7b", "Mixed_7c"] {
        x = b.module(name, x, block_e)?;
    }
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.dropout(x)?;
    let x = b.flatten(x, 1)?;
    let x = b.linear("fc", x, 1000, true)?;
    b.keep(aux);
    b.finish_with_cross_entropy(x)
}

fn functional_pool(b: &mut Builder, x: Tensor, window: Window, max: bool) -> Built {
    if max { b.functional_max_pool(x, window) } else { b.functional_avg_pool(x, window) }
}

fn block_a(b: &mut Builder, x: Tensor, pool: u64) -> Built {
    let b1 = basic(b, "branch1x1", x, one(64))?;
    let b5 = basic(b, "branch5x5_1", x, one(48))?;
    let b5 = basic(b, "branch5x5_2", b5, ConvSpec::new(64, 5).pad(2))?;
    let b3 = basic(b, "branch3x3dbl_1", x, one(64))?;
    let b3 = basic(b, "branch3x3dbl_2", b3, ConvSpec::new(96, 3).pad(1))?;
    let b3 = basic(b, "branch3x3dbl_3", b3, ConvSpec::new(96, 3).pad(1))?;
    let bp = functional_pool(b, x, SMOOTH, false)?;
    let bp = basic(b, "branch_pool", bp, one(pool))?;
    b.cat(&[b1, b5, b3, bp], 1)
}

fn block_b(b: &mut Builder, x: Tensor) -> Built {
    let b3 = basic(b, "branch3x3", x, ConvSpec::new(384, 3).stride(2))?;
    let bd = basic(b, "branch3x3dbl_1", x, one(64))?;
    let bd = basic(b, "branch3x3dbl_2", bd, ConvSpec::new(96, 3).pad(1))?;
    let bd = basic(b, "branch3x3dbl_3", bd, ConvSpec::new(96, 3).stride(2))?;
    let bp = functional_pool(b, x, HALVE, true)?;
    b.cat(&[b3, bd, bp], 1)
}

fn block_c(b: &mut Builder, x: Tensor, c7: u64) -> Built {
    let b1 = basic(b, "branch1x1", x, one(192))?;
    let b7 = basic(b, "branch7x7_1", x, one(c7))?;
    let b7 = basic(b, "branch7x7_2", b7, row(c7, 7))?;
    let b7 = basic(b, "branch7x7_3", b7, column(192, 7))?;
    let bd = basic(b, "branch7x7dbl_1", x, one(c7))?;
    let bd = basic(b, "branch7x7dbl_2", bd, column(c7, 7))?;
    let bd = basic(b, "branch7x7dbl_3", bd, row(c7, 7))?;
    let bd = basic(b, "branch7x7dbl_4", bd, column(c7, 7))?;
    let bd = basic(b, "branch7x7dbl_5", bd, row(192, 7))?;
    let bp = functional_pool(b, x, SMOOTH, false)?;
    let bp = basic(b, "branch_pool", bp, one(192))?;
    b.cat(&[b1, b7, bd, bp], 1)
}

fn block_d(b: &mut Builder, x: Tensor) -> Built {
    let b3 = basic(b, "branch3x3_1", x, one(192))?;
    let b3 = basic(b, "branch3x3_2", b3, ConvSpec::new(320, 3).stride(2))?;
    let b7 = basic(b, "branch7x7x3_1", x, one(192))?;
    let b7 = basic(b, "branch7x7x3_2", b7, row(192, 7))?;
    let b7 = basic(b, "branch7x7x3_3", b7, column(192, 7))?;
    let b7 = basic(b, "branch7x7x3_4", b7, ConvSpec::new(192, 3).stride(2))?;
    let bp = functional_pool(b, x, HALVE, true)?;
    b.cat(&[b3, b7, bp], 1)
}

fn block_e(b: &mut Builder, x: Tensor) -> Built {
    let b1 = basic(b, "branch1x1", x, one(320))?;
    let b3 = basic(b, "branch3x3_1", x, one(384))?;
    let b3a = basic(b, "branch3x3_2a", b3, row(384, 3))?;
    let b3b = basic(b, "branch3x3_2b", b3, column(384, 3))?;
    let b3 = b.cat(&[b3a, b3b], 1)?;
    let bd = basic(b, "branch3x3dbl_1", x, one(448))?;
    let bd = basic(b, "branch3x3dbl_2", bd, ConvSpec::new(384, 3).pad(1))?;
    let bda = basic(b, "branch3x3dbl_3a", bd, row(384, 3))?;
    let bdb = basic(b, "branch3x3dbl_3b", bd, column(384, 3))?;
    let bd = b.cat(&[bda, bdb], 1)?;
    let bp = functional_pool(b, x, SMOOTH, false)?;
    let bp = basic(b, "branch_pool", bp, one(192))?;
    b.cat(&[b1, b3, bd, bp], 1)
}

fn auxiliary(b: &mut Builder, x: Tensor) -> Built {
    let x = b.functional_avg_pool(x, Window { size: 5, stride: 3, pad: 0, ceil: false })?;
    let x = basic(b, "conv0", x, one(128))?;
    let x = basic(b, "conv1", x, ConvSpec::new(768, 5))?;
    let x = b.adaptive_avg_pool("pool", x, 1, 1)?;
    let x = b.flatten(x, 1)?;
    b.linear("fc", x, 1000, true)
}
