//! DCGAN, generator and discriminator in one pass (Radford et al. 2015, arXiv:1511.06434).

use super::super::Rule;
use super::super::builder::{Builder, Built, ConvSpec};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

pub(super) const MODELS: &[Entry] = &[Entry {
    info: ModelInfo {
        name: "dcgan",
        title: "DCGAN: generator and discriminator",
        family: "gan",
        input: "noise vector of 100",
        default_batch: 128,
        default_seq: None,
        max_seq: None,
        parameters: 6_342_272,
        optimizer: Rule::Adam,
    },
    build,
}];

fn build(s: Sizes) -> Built<Graph> {
    let mut b = Builder::new(s.name, s.batch);
    let z = b.input(&[s.batch, 100, 1, 1])?;
    let x = b.module("g", z, |b, z| {
        let mut x = z;
        for (i, (channels, stride, pad)) in
            [(512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)].into_iter().enumerate()
        {
            let conv = ConvSpec::new(channels, 4).stride(stride).pad(pad).no_bias().transposed();
            x = b.conv2d(&(3 * i).to_string(), x, conv)?;
            x = b.batch_norm(&(3 * i + 1).to_string(), x)?;
            x = b.relu_(x)?;
        }
        x = b.conv2d("12", x, ConvSpec::new(3, 4).stride(2).pad(1).no_bias().transposed())?;
        b.activation("13", x, Unary::Tanh, false)
    })?;
    let x = b.module("d", x, |b, x| {
        let mut x = b.conv2d("0", x, ConvSpec::new(64, 4).stride(2).pad(1).no_bias())?;
        x = b.activation("1", x, Unary::LeakyRelu, true)?;
        for (i, channels) in [128, 256, 512].into_iter().enumerate() {
            x =
                b.conv2d(&(3 * i + 2).to_string(), x, ConvSpec::new(channels, 4).stride(2).pad(1).no_bias())?;
            x = b.batch_norm(&(3 * i + 3).to_string(), x)?;
            x = b.activation(&(3 * i + 4).to_string(), x, Unary::LeakyRelu, true)?;
        }
        x = b.conv2d("11", x, ConvSpec::new(1, 4).no_bias())?;
        b.activation("12", x, Unary::Sigmoid, false)
    })?;
    let x = b.view(x, &[s.batch])?;
    b.finish_with_bce(x)
}
