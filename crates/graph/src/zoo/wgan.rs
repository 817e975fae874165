//! The 101-layer Wasserstein GAN for 64 x 64 images: generator and critic of 33 bottleneck blocks each, three
//! convolutions a block, with a linear layer at one end and a convolution at the other (Gulrajani et al. 2017,
//! arXiv:1704.00028, appendix: "101-layer ResNet generator and discriminator").
//!
//! One iteration is one pass of noise through both networks, the critic's mean as loss, and a step of all weights, as in
//! `dcgan`; the gradient penalty, which differentiates twice, is left out. The critic normalises over whole samples
//! (layer norm with one scale per channel). Upsampling blocks use transposed 4 x 4 filters, where the authors'
//! code has 3 x 3 with output padding, and a nearest-neighbour resize before the 1 x 1 shortcut.

use super::super::Rule;
use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Unary, When};
use super::{Entry, ModelInfo, Sizes};
use preflop_ops::Resize;

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        name: "wgan",
        title: "WGAN: 101-layer ResNet generator and critic, 64 x 64",
        family: "gan",
        input: "noise vector of 128",
        default_batch: 64,
        default_seq: None,
        max_seq: None,
        parameters: 16_589_348,
        optimizer: Rule::Adam,
    },
    build,
}];

const WIDTH: u64 = 64;

#[derive(Clone, Copy, PartialEq)]
enum Resample {
    None,
    Up,
    Down,
}

#[derive(Clone, Copy, PartialEq)]
enum Norm {
    Batch,
    Sample,
}

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let z = b.input(&[s.batch, 128])?;
    let image = b.module("generator", z, generator)?;
    let score = b.module("critic", image, critic)?;
    let score = b.view(score, &[s.batch])?;
    let loss = b.scope("loss", |b| b.only(When::Train, |b| b.mean(score, &[0], true)))?;
    Ok(b.finish_with_loss(score, loss))
}

fn generator(b: &mut Builder, z: Tensor) -> Built {
    let batch = b.batch();
    let x = b.linear("input", z, 16 * 8 * WIDTH, true)?;
    let mut x = b.view(x, &[batch, 8 * WIDTH, 4, 4])?;
    let mut channels = 8 * WIDTH;
    for (stage, blocks) in [6, 6, 6, 6, 5].into_iter().enumerate() {
        if stage > 0 {
            channels /= 2;
            x =
                b.module(&format!("up{stage}"), x, |b, x| block(b, x, channels, Resample::Up, Norm::Batch))?;
        }
        for i in 0..blocks {
            x = b.module(&format!("stage{stage}.{i}"), x, |b, x| {
                block(b, x, channels, Resample::None, Norm::Batch)
            })?;
        }
    }
    let x = b.conv2d("output", x, ConvSpec::new(3, 1))?;
    let x = b.unary(x, Unary::MulScalar)?;
    b.unary(x, Unary::Tanh)
}

fn critic(b: &mut Builder, image: Tensor) -> Built {
    let mut channels = WIDTH / 2;
    let mut x = b.conv2d("input", image, ConvSpec::new(channels, 1))?;
    for (stage, blocks) in [5, 6, 6, 6, 6].into_iter().enumerate() {
        if stage > 0 {
            channels *= 2;
            x = b.module(&format!("down{stage}"), x, |b, x| {
                block(b, x, channels, Resample::Down, Norm::Sample)
            })?;
        }
        for i in 0..blocks {
            x = b.module(&format!("stage{stage}.{i}"), x, |b, x| {
                block(b, x, channels, Resample::None, Norm::Sample)
            })?;
        }
    }
    let x = b.flatten(x, 1)?;
    let x = b.linear("output", x, 1, true)?;
    b.unary(x, Unary::MulScalar)
}

/// Shortcut + 0.3 times (1 x 1 to half the channels, 3 x 3, 1 x 1, norm), each convolution after a rectifier.
fn block(b: &mut Builder, x: Tensor, out: u64, resample: Resample, norm: Norm) -> Built {
    let [ci, h, w] = [b.dim(x, 1), b.dim(x, 2), b.dim(x, 3)];
    let shortcut = match resample {
        Resample::None => x,
        Resample::Down => b.conv2d("shortcut", x, ConvSpec::new(out, 1).stride(2))?,
        Resample::Up => {
            let y = b.interpolate(x, 2 * h, 2 * w, Resize::Nearest)?;
            b.conv2d("shortcut", y, ConvSpec::new(out, 1))?
        }
    };
    let middle = match resample {
        Resample::None => ConvSpec::new(out / 2, 3).pad(1),
        Resample::Down => ConvSpec::new(out / 2, 3).pad(1).stride(2),
        Resample::Up => ConvSpec::new(out / 2, 4).pad(1).stride(2).transposed(),
    };
    let y = b.unary(x, Unary::Relu)?;
    let y = b.conv2d("conv1", y, ConvSpec::new(ci / 2, 1))?;
    let y = b.unary(y, Unary::Relu)?;
    let y = b.conv2d("conv1b", y, middle)?;
    let y = b.unary(y, Unary::Relu)?;
    let y = b.conv2d("conv2", y, ConvSpec::new(out, 1).no_bias())?;
    let y = match norm {
        Norm::Batch => b.batch_norm("norm", y)?,
        Norm::Sample => b.group_norm("norm", y, 1)?,
    };
    let y = b.unary(y, Unary::MulScalar)?;
    b.add(shortcut, y)
}
