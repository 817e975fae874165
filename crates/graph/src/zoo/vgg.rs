//! VGG as in torchvision (Simonyan and Zisserman 2014, arXiv:1409.1556).

use super::super::builder::{Builder, Built, ConvSpec};
use super::super::graph::{Graph, Window};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] = &[
    Entry { info: classifier("vgg11", "VGG-11", 32, 132_863_336), build },
    Entry { info: classifier("vgg11_bn", "VGG-11 with batch norm", 32, 132_868_840), build },
    Entry { info: classifier("vgg13", "VGG-13", 32, 133_047_848), build },
    Entry { info: classifier("vgg13_bn", "VGG-13 with batch norm", 32, 133_053_736), build },
    Entry { info: classifier("vgg16", "VGG-16", 32, 138_357_544), build },
    Entry { info: classifier("vgg16_bn", "VGG-16 with batch norm", 32, 138_365_992), build },
    Entry { info: classifier("vgg19", "VGG-19", 32, 143_667_240), build },
    Entry { info: classifier("vgg19_bn", "VGG-19 with batch norm", 32, 143_678_248), build },
];

fn build(s: Sizes) -> Built<Graph> {
    let (base, norm) = s.name.strip_suffix("_bn").map_or((s.name, false), |n| (n, true));
    let per_stage: [u64; 5] = match base {
        "vgg11" => [1, 1, 2, 2, 2],
        "vgg13" => [2, 2, 2, 2, 2],
        "vgg16" => [2, 2, 3, 3, 3],
        _ => [2, 2, 4, 4, 4],
    };
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.module("features", x, |b, x| {
        let mut x = x;
        let mut index = 0;
        for (&convs, channels) in per_stage.iter().zip([64, 128, 256, 512, 512]) {
            for _ in 0..convs {
                x = b.conv2d(&index.to_string(), x, ConvSpec::new(channels, 3).pad(1))?;
                if norm {
                    x = b.batch_norm(&(index + 1).to_string(), x)?;
                    index += 1;
                }
                x = b.relu_(x)?;
                index += 2;
            }
            x = b.max_pool(&index.to_string(), x, Window { size: 2, stride: 2, pad: 0, ceil: false })?;
            index += 1;
        }
        Ok(x)
    })?;
    let x = b.adaptive_avg_pool("avgpool", x, 7, 7)?;
    let x = b.flatten(x, 1)?;
    let x = b.module("classifier", x, |b, x| {
        let x = b.linear("0", x, 4096, true)?;
        let x = b.relu_(x)?;
        let x = b.dropout(x)?;
        let x = b.linear("3", x, 4096, true)?;
        let x = b.relu_(x)?;
        let x = b.dropout(x)?;
        b.linear("6", x, 1000, true)
    })?;
    b.finish_with_cross_entropy(x)
}
