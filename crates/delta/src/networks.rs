//! The paper's networks with the paper's layer names.

use super::networks_data::{ALEXNET, GOOGLENET, Row, VGG16};
use super::{DeltaError, Layer};
use preflop_units::names::did_you_mean;

/// Names of the networks.
pub const NAMES: [&str; 5] = ["alexnet-original", "vgg16", "googlenet", "resnet50", "resnet152"];

/// A layer and its name in the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedLayer {
    /// Name.
    pub name: String,
    /// Shape.
    pub layer: Layer,
}

/// The convolution layers of a network, in order, repeated ones included.
pub fn find(name: &str, batch: u64) -> Result<Vec<NamedLayer>, DeltaError> {
    match name.to_lowercase().as_str() {
        "alexnet-original" => Ok(table(ALEXNET, batch)),
        "vgg16" => Ok(table(VGG16, batch)),
        "googlenet" => Ok(table(GOOGLENET, batch)),
        "resnet50" => Ok(resnet(&[3, 4, 6, 3], batch)),
        "resnet152" => Ok(resnet(&[3, 8, 36, 3], batch)),
        ALL => all(batch),
        other => Err(DeltaError::Network {
            name: name.to_string(),
            hint: did_you_mean(other, NAMES),
            known: NAMES.join(", "),
        }),
    }
}

/// The name of the paper's four networks together.
pub const ALL: &str = "delta-paper";

/// The layers of the four networks, each with its network's name before its own.
fn all(batch: u64) -> Result<Vec<NamedLayer>, DeltaError> {
    let mut layers = Vec::new();
    for network in ["alexnet-original", "vgg16", "googlenet", "resnet152"] {
        let named = |l: NamedLayer| NamedLayer { name: format!("{network}-{}", l.name), ..l };
        layers.extend(find(network, batch)?.into_iter().map(named));
    }
    Ok(layers)
}

/// The fully connected layers of a network, which the paper's figures leave out: (name, inputs, outputs).
fn fully_connected(name: &str) -> &'static [(&'static str, u64, u64)] {
    match name {
        "alexnet-original" => &[("fc6", 9216, 4096), ("fc7", 4096, 4096), ("fc8", 4096, 1000)],
        "vgg16" => &[("fc1", 25_088, 4096), ("fc2", 4096, 4096), ("fc3", 4096, 1000)],
        "googlenet" => &[("fc", 1024, 1000)],
        "resnet50" | "resnet152" => &[("fc", 2048, 1000)],
        _ => &[],
    }
}

/// The network with its fully connected layers: 1x1 filters on 1x1 maps (paper, Sec. IV-B).
pub fn find_with_fc(name: &str, batch: u64) -> Result<Vec<NamedLayer>, DeltaError> {
    let mut layers = find(name, batch)?;
    layers.extend(fully_connected(&name.to_lowercase()).iter().map(|&(name, inputs, outputs)| NamedLayer {
        name: name.to_string(),
        layer: Layer::square(batch, inputs, 1, outputs, 1, 1, 0),
    }));
    Ok(layers)
}

fn table(rows: &[Row], batch: u64) -> Vec<NamedLayer> {
    rows.iter()
        .map(|&(name, ci, hw, co, filter, stride, pad)| NamedLayer {
            name: name.to_string(),
            layer: Layer::square(batch, ci, hw, co, filter, stride, pad),
        })
        .collect()
}

/// Bottleneck ResNets (He et al. 2016, Table 1): `conv2` to `conv5` with so many blocks of 1x1, 3x3, 1x1
/// (`_a`, `_b`, `_c`); the first block of a stage has the projection `_ds` and, after `conv2`, stride 2 in
/// `_a` and `_ds`.
fn resnet(blocks: &[u64; 4], batch: u64) -> Vec<NamedLayer> {
    let mut layers =
        vec![NamedLayer { name: "conv1".into(), layer: Layer::square(batch, 3, 224, 64, 7, 2, 3) }];
    let (mut channels, mut map) = (64, 56);
    for (stage, &count) in (2..).zip(blocks) {
        let width = 64 << (stage - 2);
        for block in 1..=count {
            let stride = if block == 1 && stage > 2 { 2 } else { 1 };
            let small = map / stride;
            let mut push = |part: &str, layer| {
                layers.push(NamedLayer { name: format!("conv{stage}_{block}_{part}"), layer });
            };
            push("a", Layer::square(batch, channels, map, width, 1, stride, 0));
            push("b", Layer::square(batch, width, small, width, 3, 1, 1));
            push("c", Layer::square(batch, width, small, 4 * width, 1, 1, 0));
            if block == 1 {
                push("ds", Layer::square(batch, channels, map, 4 * width, 1, stride, 0));
            }
            (channels, map) = (4 * width, small);
        }
    }
    layers
}

/// Distinct shapes with their number, in order of first appearance.
pub fn counted(layers: &[NamedLayer]) -> Vec<(NamedLayer, u64)> {
    let mut out: Vec<(NamedLayer, u64)> = Vec::new();
    for named in layers {
        match out.iter_mut().find(|(seen, _)| seen.layer == named.layer) {
            Some((_, count)) => *count += 1,
            None => out.push((named.clone(), 1)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_and_distinct_shapes() {
        for (name, layers, distinct) in [
            ("alexnet-original", 5, 5),
            ("vgg16", 13, 9),
            ("googlenet", 57, 49),
            // 1 + 3 per block + 4 projections
            ("resnet50", 1 + 3 * 16 + 4, 20),
            ("resnet152", 1 + 3 * 50 + 4, 20),
        ] {
            let found = find(name, 256).unwrap();
            assert_eq!((found.len(), counted(&found).len()), (layers, distinct), "{name}");
            assert_eq!(counted(&found).iter().map(|c| c.1).sum::<u64>(), layers as u64, "{name}");
            for l in found {
                l.layer.check().unwrap();
            }
        }
    }

    #[test]
    fn fully_connected_layers_are_products() {
        for (name, more) in
            [("alexnet-original", 3), ("vgg16", 3), ("googlenet", 1), ("resnet50", 1), ("resnet152", 1)]
        {
            let (without, with) = (find(name, 256).unwrap(), find_with_fc(name, 256).unwrap());
            assert_eq!(with.len(), without.len() + more, "{name}");
        }
        // fc6 of AlexNet: M = 256 images, N = 4096, K = 256 channels of 6x6.
        let fc6 = find_with_fc("alexnet-original", 256).unwrap()[5].layer.gemm();
        assert_eq!((fc6.m, fc6.n, fc6.k), (256.0, 4096.0, 9216.0));
    }

    #[test]
    fn resnet50_has_its_flops() {
        // 3.86 G multiply-adds per image in the original (stride in the first 1x1) ResNet-50; 3.8 in He et al.
        let macs: f64 =
            find("resnet50", 1).unwrap().iter().map(|l| l.layer.gemm()).map(|g| g.m * g.n * g.k).sum();
        assert!((macs / 3.86e9 - 1.0).abs() < 0.01, "{macs}");
    }

    #[test]
    fn misspelt_names_get_a_hint() {
        let e = find("resnet51", 1).unwrap_err().to_string();
        assert!(e.contains("did you mean `resnet50`"), "{e}");
    }
}
