//! ResNet, ResNeXt and Wide ResNet as in torchvision (He et al. 2015, arXiv:1512.03385).

use super::super::builder::{Builder, Built, ConvSpec, Tensor};
use super::super::graph::{Graph, Window};
use super::{Entry, Sizes, classifier};

pub(super) const MODELS: &[Entry] = &[
    Entry { info: classifier("resnet18", "ResNet-18", 64, 11_689_512), build },
    Entry { info: classifier("resnet34", "ResNet-34", 64, 21_797_672), build },
    Entry { info: classifier("resnet50", "ResNet-50", 64, 25_557_032), build },
    Entry { info: classifier("resnet101", "ResNet-101", 64, 44_549_160), build },
    Entry { info: classifier("resnet152", "ResNet-152", 64, 60_192_808), build },
    Entry { info: classifier("resnext50_32x4d", "ResNeXt-50 32x4d", 64, 25_028_904), build },
    Entry { info: classifier("resnext101_32x8d", "ResNeXt-101 32x8d", 64, 88_791_336), build },
    Entry { info: classifier("wide_resnet50_2", "Wide ResNet-50-2", 64, 68_883_240), build },
    Entry { info: classifier("wide_resnet101_2", "Wide ResNet-101-2", 64, 126_886_696), build },
];

/// Blocks per stage, bottleneck or basic, groups, width of a group at 64 channels.
pub(super) struct Plan {
    blocks: [usize; 4],
    bottleneck: bool,
    groups: u64,
    width: u64,
}

pub(super) fn plan(name: &str) -> Plan {
    let p = |blocks, bottleneck, groups, width| Plan { blocks, bottleneck, groups, width };
    match name {
        "resnet18" => p([2, 2, 2, 2], false, 1, 64),
        "resnet34" => p([3, 4, 6, 3], false, 1, 64),
        "resnet101" => p([3, 4, 23, 3], true, 1, 64),
        "resnet152" => p([3, 8, 36, 3], true, 1, 64),
        "resnext50_32x4d" => p([3, 4, 6, 3], true, 32, 4),
        "resnext101_32x8d" => p([3, 4, 23, 3], true, 32, 8),
        "wide_resnet50_2" => p([3, 4, 6, 3], true, 1, 128),
        "wide_resnet101_2" => p([3, 4, 23, 3], true, 1, 128),
        _ => p([3, 4, 6, 3], true, 1, 64),
    }
}

fn build(s: Sizes) -> Built<Graph> {
    let plan = plan(s.name);
    let mut b = Builder::new(s.name, s.batch);
    let x = b.images(3, 224, 224)?;
    let x = b.conv2d("conv1", x, ConvSpec::new(64, 7).stride(2).pad(3).no_bias())?;
    let x = b.batch_norm("bn1", x)?;
    let x = b.relu_(x)?;
    let mut x = b.max_pool("maxpool", x, Window { size: 3, stride: 2, pad: 1, ceil: false })?;
    for stage in 0..4 {
        x = layer(&mut b, x, &plan, stage)?;
    }
    let x = b.adaptive_avg_pool("avgpool", x, 1, 1)?;
    let x = b.flatten(x, 1)?;
    let x = b.linear("fc", x, 1000, true)?;
    b.finish_with_cross_entropy(x)
}

/// One of the four stages.
pub(super) fn layer(b: &mut Builder, x: Tensor, plan: &Plan, stage: usize) -> Built {
    let planes = 64 << stage;
    b.module(&format!("layer{}", stage + 1), x, |b, x| {
        let mut x = x;
        for i in 0..plan.blocks[stage] {
            let stride = if stage > 0 && i == 0 { 2 } else { 1 };
            x = b.module(&i.to_string(), x, |b, x| block(b, x, plan, planes, stride))?;
        }
        Ok(x)
    })
}

fn block(b: &mut Builder, x: Tensor, plan: &Plan, planes: u64, stride: u64) -> Built {
    let (out, y) = if plan.bottleneck {
        let width = planes * plan.width / 64 * plan.groups;
        let y = b.conv2d("conv1", x, ConvSpec::new(width, 1).no_bias())?;
        let y = b.batch_norm("bn1", y)?;
        let y = b.relu_(y)?;
        let y = b.conv2d(
            "conv2",
            y,
            ConvSpec::new(width, 3).stride(stride).pad(1).groups(plan.groups).no_bias(),
        )?;
        let y = b.batch_norm("bn2", y)?;
        let y = b.relu_(y)?;
        let y = b.conv2d("conv3", y, ConvSpec::new(planes * 4, 1).no_bias())?;
        (planes * 4, b.batch_norm("bn3", y)?)
    } else {
        let y = b.conv2d("conv1", x, ConvSpec::new(planes, 3).stride(stride).pad(1).no_bias())?;
        let y = b.batch_norm("bn1", y)?;
        let y = b.relu_(y)?;
        let y = b.conv2d("conv2", y, ConvSpec::new(planes, 3).pad(1).no_bias())?;
        (planes, b.batch_norm("bn2", y)?)
    };
    let identity = if stride != 1 || b.dim(x, 1) != out {
        b.module("downsample", x, |b, x| {
            let d = b.conv2d("0", x, ConvSpec::new(out, 1).stride(stride).no_bias())?;
            b.batch_norm("1", d)
        })?
    } else {
        x
    };
    let y = b.add_(y, identity)?;
    b.relu_(y)
}
