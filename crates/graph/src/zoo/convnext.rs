//! ConvNeXt as in torchvision (Liu et al. 2022, arXiv:2201.03545). Its layer norms leave the feature maps
//! channels-last in memory from the stem on, so all later convolutions run in that layout.

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::Graph;
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] = &[
    Entry { info: classifier("convnext_tiny", "ConvNeXt tiny", 64, 28_589_128), build },
    Entry { info: classifier("convnext_small", "ConvNeXt small", 64, 50_223_688), build },
    Entry { info: classifier("convnext_base", "ConvNeXt base", 64, 88_591_464), build },
    Entry { info: classifier("convnext_large", "ConvNeXt large", 32, 197_767_336), build },
];

fn build(s: Sizes) -> Built<Graph> {
    let (width, third) = match s.name {
        "convnext_small" => (96, 27),
        "convnext_base" => (128, 27),
        "convnext_large" => (192, 27),
        _ => (96, 9),
    };
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let mut x = b.module("0", x, |b, x| {
            let x = b.conv2d("0", x, ConvSpec::new(width, 4).stride(4))?;
            b.layer_norm_2d("1", x)
        })?;
        for (stage, blocks) in [3, 3, third, 3].into_iter().enumerate() {
            x = b.module(&(2 * stage + 1).to_string(), x, |b, x| {
                let mut x = x;
                for i in 0..blocks {
                    // The probability of stochastic depth grows from 0 in the first block of all.
                    let drops = stage > 0 || i > 0;
                    x = b.module(&i.to_string(), x, |b, x| block(b, x, drops))?;
                }
                Ok(x)
            })?;
            if stage < 3 {
                x = b.module(&(2 * stage + 2).to_string(), x, |b, x| {
                    let out = 2 * b.dim(x, 1);
                    let x = b.layer_norm_2d("0", x)?;
                    b.conv2d("1", x, ConvSpec::new(out, 2).stride(2))
                })?;
            }
        }
        Ok(x)
    })?;
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.module("classifier", x, |b, x| {
        let x = b.layer_norm_2d("0", x)?;
        b.count_module();
        let x = b.flatten(x, 1)?;
        b.linear("2", x, 1000, true)
    })?;
    b.finish_with_cross_entropy(x)
}

fn block(b: &mut Builder, x: Tensor, drops: bool) -> Built {
    let width = b.dim(x, 1);
    let scale = b.parameter("layer_scale", &[width, 1, 1]);
    let y = b.module("block", x, |b, x| {
        let y = b.conv2d("0", x, ConvSpec::new(width, 7).pad(3).groups(width))?;
        b.count_module();
        let y = b.permute(y, &[0, 2, 3, 1])?;
        let y = b.layer_norm("2", y)?;
        let y = b.linear("3", y, 4 * width, true)?;
        let y = b.gelu(y)?;
        let y = b.linear("5", y, width, true)?;
        b.count_module();
        b.permute(y, &[0, 3, 1, 2])
    })?;
    let scale = b.use_parameter(scale)?;
    let y = b.mul(scale, y)?;
    let y = if drops { b.stochastic_depth(y)? } else { y };
    b.add_(y, x)
}
