//! Faster R-CNN with a ResNet and a feature pyramid as torchvision builds it without trained weights (Ren et al. 2015,
//! arXiv:1506.01497; Lin et al. 2016, arXiv:1612.03144): batch norms are trained, as are all layers.
//!
//! What is assumed, since the work depends on the data:
//! - Images are 600 x 1000 (the paper's shorter side) and padded to 608 x 1024; torchvision's default is 800 x 1333.
//! - Proposals fall to the four levels of the pyramid in equal parts; every proposal slot is filled.
//! - 8 objects per image in training; as many detections as proposals reach the last suppression in inference.
//! - Arithmetic on boxes is elementwise kernels of the right length and about the right number; sorting for
//!   top-k is one copy of the scores.

use super::super::builder::{Builder, Built, ConvSpec, Param, Tensor};
use super::super::error::ModelError;
use super::super::graph::{ConvGeometry, Graph, GraphOp, Unary, When, Window};
use super::resnet::{layer, plan};
use super::{Entry, ModelInfo, Sizes, classifier};
use preflop_ops::Resize;

const fn info(name: &'static str, title: &'static str, parameters: u64) -> ModelInfo {
    ModelInfo { family: "detection", input: "3 x 600 x 1000 image", ..classifier(name, title, 1, parameters) }
}

/// torchvision publishes 41,755,286 for ResNet-50, where the 53,120 weights of the batch norms are frozen and not counted.
pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("faster-rcnn", "Faster R-CNN, ResNet-101 with pyramid", 60_800_534), build },
    Entry {
        info: info("fasterrcnn_resnet50_fpn", "Faster R-CNN, ResNet-50 with pyramid", 41_808_406),
        build,
    },
];

/// Images are handled one by one after the backbone, so a graph grows with the batch.
const MAX_IMAGES: u64 = 64;
const HEIGHT: u64 = 600;
const WIDTH: u64 = 1000;
/// Maps are padded to a multiple of this.
const ALIGN: u64 = 32;
/// Channels of the pyramid.
const CHANNELS: u64 = 256;
/// Anchors per place.
const ANCHORS: u64 = 3;
const CLASSES: u64 = 91;
/// Objects of an image.
const OBJECTS: u64 = 8;
/// Anchors that enter the loss, per image (`rpn_batch_size_per_image`).
const SAMPLED_ANCHORS: u64 = 256;
/// Kernels that turn deltas into boxes (`BoxCoder.decode_single`), each over one number per box.
const DECODE_KERNELS: usize = 29;
/// Kernels of an intersection-over-union matrix and of matching it (`box_iou`, `Matcher`), each over the matrix.
const MATCH_KERNELS: usize = 12;
/// Kernels that assign a proposal to a level (`LevelMapper`).
const LEVEL_KERNELS: usize = 10;

/// Proposals before and after suppression, and regions that reach the second stage, per image.
struct Counts {
    per_level: u64,
    regions: u64,
}

const TRAINING: Counts = Counts { per_level: 2000, regions: 512 };
const INFERENCE: Counts = Counts { per_level: 1000, regions: 1000 };

fn build(s: Sizes) -> Built<Graph> {
    if s.batch > MAX_IMAGES {
        return Err(ModelError::Size { what: "batch", value: s.batch, limit: MAX_IMAGES });
    }
    let mut b = Builder::new(s.name, s.batch);
    let x = transform(&mut b, s.batch)?;
    let pyramid = b.module("backbone", x, |b, x| backbone(b, x, s.name))?;
    let (scores, deltas) = b.scope("rpn.head", |b| proposal_head(b, &pyramid))?;
    for (when, counts) in [(When::Train, TRAINING), (When::Infer, INFERENCE)] {
        b.only(when, |b| b.scope("rpn", |b| filter(b, s.batch, &scores, &counts)))?;
    }
    let heads = RegionHeads::new(&mut b);
    let detections = b.only(When::Infer, |b| {
        b.scope("roi_heads", |b| {
            let (classes, boxes) = heads.forward(b, &pyramid[..4], s.batch * INFERENCE.regions)?;
            postprocess(b, s.batch, classes, boxes)
        })
    })?;
    let loss = b.only(When::Train, |b| {
        let first = b.scope("rpn", |b| proposal_loss(b, s.batch, &scores, &deltas))?;
        let second = b.scope("roi_heads", |b| {
            for _ in 0..s.batch {
                chain(b, "match", &[OBJECTS, TRAINING.per_level], MATCH_KERNELS)?;
            }
            let (classes, boxes) = heads.forward(b, &pyramid[..4], s.batch * TRAINING.regions)?;
            region_loss(b, classes, boxes)
        })?;
        b.scope("loss", |b| b.add(first, second))
    })?;
    Ok(b.finish_with_loss(detections, loss))
}

/// `n` kernels over one number per element of `shape`, the first of them a fill.
fn chain(b: &mut Builder, name: &str, shape: &[u64], n: usize) -> Built {
    let mut x = b.create(name, shape)?;
    for _ in 1..n {
        x = b.scope(name, |b| b.unary(x, Unary::AddScalar))?;
    }
    Ok(x)
}

/// `GeneralizedRCNNTransform`: normalise and resize each image, copy it into the padded batch.
fn transform(b: &mut Builder, batch: u64) -> Built {
    let pad = |n: u64| n.div_ceil(ALIGN) * ALIGN;
    b.scope("transform", |b| {
        let mut images = Vec::new();
        for _ in 0..batch {
            let x = b.input(&[1, 3, HEIGHT, WIDTH])?;
            let x = b.unary(x, Unary::AddScalar)?;
            let x = b.unary(x, Unary::MulScalar)?;
            images.push(b.interpolate(x, HEIGHT, WIDTH, Resize::Bilinear)?);
        }
        let padded = b.create("batch_images", &[batch, 3, pad(HEIGHT), pad(WIDTH)])?;
        for image in images {
            b.reorder("batch_images", image, &[1, 3, HEIGHT, WIDTH])?;
        }
        Ok(padded)
    })
}

fn backbone(b: &mut Builder, x: Tensor, name: &str) -> Built<Vec<Tensor>> {
    let plan = plan(if name == "fasterrcnn_resnet50_fpn" { "resnet50" } else { "resnet101" });
    let maps = b.module("body", x, |b, x| {
        let x = b.conv2d("conv1", x, ConvSpec::new(64, 7).stride(2).pad(3).no_bias())?;
        let x = b.batch_norm("bn1", x)?;
        let x = b.relu_(x)?;
        let mut x = b.max_pool("maxpool", x, Window { size: 3, stride: 2, pad: 1, ceil: false })?;
        let mut maps = Vec::with_capacity(4);
        for stage in 0..4 {
            x = layer(b, x, &plan, stage)?;
            maps.push(x);
        }
        Ok(maps)
    })?;
    b.count_module();
    b.scope("fpn", |b| {
        let mut top: Option<Tensor> = None;
        let mut out = Vec::with_capacity(5);
        for (i, &map) in maps.iter().enumerate().rev() {
            let mut inner = b.conv2d(&format!("inner_blocks.{i}.0"), map, ConvSpec::new(CHANNELS, 1))?;
            if let Some(top) = top {
                let (h, w) = (b.dim(inner, 2), b.dim(inner, 3));
                let up = b.interpolate(top, h, w, Resize::Nearest)?;
                inner = b.add(inner, up)?;
            }
            top = Some(inner);
            out.push(b.conv2d(&format!("layer_blocks.{i}.0"), inner, ConvSpec::new(CHANNELS, 3).pad(1))?);
        }
        out.reverse();
        let coarsest = out[3];
        out.push(b.functional_max_pool(coarsest, Window { size: 1, stride: 2, pad: 0, ceil: false })?);
        Ok(out)
    })
}

/// A convolution whose weights all levels share.
struct SharedConv {
    weight: Param,
    bias: Param,
    out: u64,
    pad: u64,
}

impl SharedConv {
    fn new(b: &mut Builder, name: &str, out: u64, k: u64) -> Self {
        Self {
            weight: b.parameter(&format!("{name}.weight"), &[out, CHANNELS, k, k]),
            bias: b.parameter(&format!("{name}.bias"), &[out]),
            out,
            pad: k / 2,
        }
    }

    fn forward(&self, b: &mut Builder, name: &str, x: Tensor) -> Built {
        let geometry = ConvGeometry {
            stride: [1; 2],
            pad: [self.pad; 2],
            dilation: [1; 2],
            groups: 1,
            transposed: false,
        };
        let shape = b.shape(x).with(1, self.out);
        b.count_module();
        b.call(name, GraphOp::Conv(geometry), &[x], &[self.weight, self.bias], &shape)
    }
}

/// Scores `[batch, n]` and deltas `[batch, n, 4]` of each level.
fn proposal_head(b: &mut Builder, pyramid: &[Tensor]) -> Built<(Vec<Tensor>, Vec<Tensor>)> {
    let conv = SharedConv::new(b, "conv.0.0", CHANNELS, 3);
    let classify = SharedConv::new(b, "cls_logits", ANCHORS, 1);
    let regress = SharedConv::new(b, "bbox_pred", 4 * ANCHORS, 1);
    let (mut scores, mut deltas) = (Vec::new(), Vec::new());
    for &map in pyramid {
        let (batch, places) = (b.dim(map, 0), b.dim(map, 2) * b.dim(map, 3));
        let t = conv.forward(b, "conv.0.0", map)?;
        let t = b.relu_(t)?;
        let s = classify.forward(b, "cls_logits", t)?;
        let s = b.permute(s, &[0, 2, 3, 1])?;
        scores.push(b.view(s, &[batch, places * ANCHORS])?);
        let d = regress.forward(b, "bbox_pred", t)?;
        let d = b.permute(d, &[0, 2, 3, 1])?;
        deltas.push(b.view(d, &[batch, places * ANCHORS, 4])?);
    }
    Ok((scores, deltas))
}

/// Anchors, decoding, the best of each level, and suppression image by image: by level where all boxes together are
/// more than 5000, else of all at once (`batched_nms`).
fn filter(b: &mut Builder, batch: u64, scores: &[Tensor], counts: &Counts) -> Built<()> {
    let mut best = Vec::with_capacity(scores.len());
    for &level in scores {
        let n = b.dim(level, 1);
        // Shifts of the grid, then the boxes.
        chain(b, "anchors", &[n, 4], 2)?;
        b.reorder("topk", level, &[batch, n])?;
        best.push(n.min(counts.per_level));
    }
    let boxes = b.cat(scores, 1)?;
    let all = b.dim(boxes, 1);
    chain(b, "decode", &[batch, all], DECODE_KERNELS)?;
    let chosen: u64 = best.iter().sum();
    for _ in 0..batch {
        let boxes = chain(b, "clip", &[chosen, 4], 8)?;
        if chosen > 5000 {
            for &n in &best {
                let level = b.slice(boxes, 0, n)?;
                b.nms(level, n)?;
            }
        } else {
            b.nms(boxes, chosen)?;
        }
    }
    Ok(())
}

/// Rows chosen by index: a copy; backward writes zeros and scatters.
fn choose(b: &mut Builder, x: Tensor, n: u64) -> Built {
    let rows = b.dim(x, 0).min(n);
    let part = b.slice(x, 0, rows)?;
    let shape = b.shape(part);
    b.reorder("index", part, &shape)
}

fn mean_loss(b: &mut Builder, name: &str, op: GraphOp, x: Tensor) -> Built {
    let shape = b.shape(x);
    let targets = b.create(name, &shape)?;
    b.call(name, op, &[x, targets], &[], &[1])
}

/// Matching of anchors and objects, and the losses of the sampled anchors.
fn proposal_loss(b: &mut Builder, batch: u64, scores: &[Tensor], deltas: &[Tensor]) -> Built {
    let all: u64 = scores.iter().map(|&s| b.dim(s, 1)).sum();
    for _ in 0..batch {
        chain(b, "match", &[OBJECTS, all], MATCH_KERNELS)?;
    }
    let scores = b.cat(scores, 1)?;
    let scores = b.view(scores, &[batch * all])?;
    let scores = choose(b, scores, batch * SAMPLED_ANCHORS)?;
    let objectness = mean_loss(b, "objectness", GraphOp::BinaryCrossEntropy, scores)?;
    let deltas = b.cat(deltas, 1)?;
    let deltas = b.view(deltas, &[batch * all, 4])?;
    let deltas = choose(b, deltas, batch * SAMPLED_ANCHORS / 2)?;
    let boxes = mean_loss(b, "box_reg", GraphOp::MseLoss, deltas)?;
    b.add(objectness, boxes)
}

/// `TwoMLPHead` and `FastRCNNPredictor`.
struct RegionHeads {
    layers: [[Param; 2]; 4],
}

/// Side of a pooled region.
const POOLED: u64 = 7;
/// Sampling points per pooled number and direction.
const SAMPLING: u64 = 2;
/// Width of the second stage.
const HIDDEN: u64 = 1024;

impl RegionHeads {
    fn new(b: &mut Builder) -> Self {
        let mut pair = |name: &str, out: u64, features: u64| {
            [
                b.parameter(&format!("roi_heads.{name}.weight"), &[out, features]),
                b.parameter(&format!("roi_heads.{name}.bias"), &[out]),
            ]
        };
        Self {
            layers: [
                pair("box_head.fc6", HIDDEN, CHANNELS * POOLED * POOLED),
                pair("box_head.fc7", HIDDEN, HIDDEN),
                pair("box_predictor.cls_score", CLASSES, HIDDEN),
                pair("box_predictor.bbox_pred", 4 * CLASSES, HIDDEN),
            ],
        }
    }

    /// Class scores and boxes of `regions` regions.
    fn forward(&self, b: &mut Builder, pyramid: &[Tensor], regions: u64) -> Built<(Tensor, Tensor)> {
        chain(b, "box_roi_pool", &[regions], LEVEL_KERNELS)?;
        let mut pooled = Vec::with_capacity(pyramid.len());
        for &map in pyramid {
            pooled.push(b.roi_align(map, regions / pyramid.len() as u64, POOLED, SAMPLING)?);
        }
        let x = b.cat(&pooled, 0)?;
        let x = b.flatten(x, 1)?;
        let [fc6, fc7, classify, regress] = self.layers;
        let x = b.linear_with("box_head.fc6", x, fc6[0], Some(fc6[1]))?;
        let x = b.unary(x, Unary::Relu)?;
        let x = b.linear_with("box_head.fc7", x, fc7[0], Some(fc7[1]))?;
        let x = b.unary(x, Unary::Relu)?;
        let classes = b.linear_with("box_predictor.cls_score", x, classify[0], Some(classify[1]))?;
        let boxes = b.linear_with("box_predictor.bbox_pred", x, regress[0], Some(regress[1]))?;
        Ok((classes, boxes))
    }
}

/// Cross-entropy of the classes and the distance of the boxes of the true class.
fn region_loss(b: &mut Builder, classes: Tensor, boxes: Tensor) -> Built {
    let regions = b.dim(classes, 0);
    let labels = b.tokens(&[regions])?;
    let cross = b.call("classifier", GraphOp::CrossEntropy, &[classes, labels], &[], &[1])?;
    let boxes = b.view(boxes, &[regions * CLASSES, 4])?;
    // A quarter of the sampled regions hold objects (`box_positive_fraction`).
    let chosen = choose(b, boxes, regions / 4)?;
    let distance = mean_loss(b, "box_reg", GraphOp::MseLoss, chosen)?;
    b.add(cross, distance)
}

/// Decoding for every class, softmax, and suppression image by image.
fn postprocess(b: &mut Builder, batch: u64, classes: Tensor, boxes: Tensor) -> Built {
    let regions = b.dim(classes, 0);
    chain(b, "decode", &[regions, CLASSES], DECODE_KERNELS)?;
    b.unary(boxes, Unary::MulScalar)?;
    let scores = b.softmax(classes)?;
    for _ in 0..batch {
        let candidates = chain(b, "clip", &[INFERENCE.regions, 4], 8)?;
        b.nms(candidates, INFERENCE.regions)?;
    }
    Ok(scores)
}
