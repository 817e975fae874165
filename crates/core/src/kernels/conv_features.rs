//! Convolutions as the learned parts see them: shape features, family times, the mixture reference.

use super::conv::{ConvConstants, ConvFamily, FamilyTime, Task, candidates, depthwise_time, family_time};
use super::{Machine, alignment};
use crate::dtype::Dtype;
use crate::ops::{Gemm, Pass};
use crate::time::choice::CLASSES;
use crate::time::trees::{Features, MAX_FEATURES};

/// Places that the shape and the family times fill: what the family chooser sees.
pub const CHOICE_FEATURES: usize = 80;
/// Places that are filled in all.
pub const FEATURES: usize = 122;

/// Log ratio that stands for "this family cannot serve the task".
const ABSENT: f32 = 6.0;

fn log2(x: f64) -> f32 {
    x.max(1e-30).log2() as f32
}

/// Where the constants of a family come from.
pub trait ConvTable {
    /// Constants of a product family for this task.
    fn product(&self, task: &Task, family: ConvFamily) -> ConvConstants;
    /// Seconds of a plain product in this format, by the product model.
    fn plain_product(&self, gemm: &Gemm, dtype: Dtype) -> f64;
    /// Seconds and rate of a depthwise family for this task.
    fn depthwise(&self, task: &Task, family: ConvFamily) -> (f64, f64);
}

/// Times by family and the features made so far.
#[derive(Debug, Clone)]
pub struct Candidates {
    /// Features up to [`CHOICE_FEATURES`].
    pub x: Features,
    /// Seconds by family; 0 where it cannot serve.
    pub times: [f64; CLASSES],
    /// The forms, for traffic and reports.
    pub forms: [Option<FamilyTime>; CLASSES],
}

/// Shape features and family times.
pub fn candidates_of(task: &Task, table: &dyn ConvTable, machine: &Machine) -> Candidates {
    let mut times = [0.0; CLASSES];
    let mut forms = [None; CLASSES];
    for family in candidates(task) {
        let i = family as usize;
        if family.streams() {
            let (t0, rate) = table.depthwise(task, family);
            times[i] = depthwise_time(task, t0, rate, machine);
        } else {
            let form = family_time(task, family, &table.product(task, family), machine);
            times[i] = if family == ConvFamily::Gemm {
                table.plain_product(&task.as_gemm(), task.dtype)
            } else {
                form.time
            };
            forms[i] = Some(form);
        }
    }
    let x = shape_features(task, &times, machine);
    Candidates { x, times, forms }
}

fn shape_features(task: &Task, times: &[f64; CLASSES], machine: &Machine) -> Features {
    let mut x = [0.0f32; MAX_FEATURES];
    let mut at = 0;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let c = &task.conv;
    let g = c.groups as f64;
    let (ci, co) = (c.ci as f64 / g, c.co as f64 / g);
    push(match task.pass {
        Pass::Fwd => 0.0,
        Pass::Dgrad => 1.0,
        _ => 2.0,
    });
    push(f32::from(u8::from(task.dtype == Dtype::Bf16)));
    push(f32::from(u8::from(c.channels_last)));
    for v in [c.batch, c.ci, c.co, c.h, c.w, c.oh(), c.ow(), c.groups] {
        push(log2(v as f64));
    }
    push(log2(ci));
    push(log2(co));
    push(c.r as f32);
    push(c.s as f32);
    push((c.r * c.s) as f32);
    push(c.stride[0] as f32);
    push(c.dilation[0] as f32);
    push(c.pad[0] as f32);
    for v in [c.ci, c.co, c.ci / c.groups, c.co / c.groups] {
        push(log2(alignment(v, 64) as f64));
    }
    for v in [c.h * c.w, c.oh() * c.ow(), c.w, c.ow()] {
        push(log2(alignment(v, 8) as f64));
    }
    let (m, n, k) = task.dims(1.0);
    push(log2(m));
    push(log2(n));
    push(log2(k));
    let flops = c.flops().0;
    let [bx, bw, by] = task.bytes();
    let io = bx + bw + by;
    push(log2(flops / 1e9));
    push(log2(flops / machine.peak * 1e6));
    push(log2(flops / io));
    push(log2(io / machine.l2_size));
    push(log2(bx / io));
    push(log2(bw / io));
    for (v, q) in [(ci, 8.0), (ci, 32.0), (ci, 64.0), (co, 8.0), (co, 32.0), (co, 64.0), (co, 128.0)] {
        push(log2((v / q).ceil() * q / v));
    }
    let (converted, kernels) = task.conversion();
    push(kernels as f32);
    push(log2(converted / io));
    push(f32::from(task.gemm_class()));
    push(log2(task.gemm_alignment() as f64));
    push(f32::from(u8::from(task.pointwise())));
    push(f32::from(u8::from(task.depthwise())));
    push(f32::from(u8::from(task.grouped())));
    for (bm, bn) in [(64.0, 64.0), (128.0, 128.0), (256.0, 64.0)] {
        let tiles = (m / bm).ceil() * (n / bn).ceil() * g;
        let w: f64 = tiles / machine.sm;
        push(log2(w));
        push((w / w.ceil()) as f32);
        push((m * n * g / (tiles * bm * bn)) as f32);
    }
    let least = times.iter().copied().filter(|t| *t > 0.0).fold(f64::INFINITY, f64::min);
    push(log2(least * 1e6));
    for t in times {
        push(if *t > 0.0 { log2(t / least).min(ABSENT) } else { ABSENT });
    }
    debug_assert!(at <= CHOICE_FEATURES, "{at}");
    x
}

/// The reference time and the full features once the family probabilities are known.
pub fn finish(candidates: &Candidates, probability: &[f32; CLASSES]) -> (f64, Features, usize) {
    let mut x = candidates.x;
    let mut weight = 0.0;
    let mut log = 0.0;
    let mut top = (0.0f32, 0usize);
    for (i, (&t, &p)) in candidates.times.iter().zip(probability).enumerate() {
        if t > 0.0 && p > 0.0 {
            weight += f64::from(p);
            log += f64::from(p) * t.ln();
            if p > top.0 {
                top = (p, i);
            }
        }
    }
    let least = candidates.times.iter().copied().filter(|t| *t > 0.0).fold(f64::INFINITY, f64::min);
    let reference = if weight > 0.0 { (log / weight).exp() } else { least };
    let mut at = CHOICE_FEATURES;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    for p in probability {
        push(*p);
    }
    push(top.0);
    push(top.1 as f32);
    push(log2(reference * 1e6));
    push(log2(least / reference));
    for t in [ConvFamily::Xmma90, ConvFamily::Gemm, ConvFamily::Ffma] {
        let t = candidates.times[t as usize];
        push(if t > 0.0 { log2(t / reference) } else { ABSENT });
    }
    if let Some(form) = candidates.forms[top.1] {
        let t = form.tiling;
        let share = |v: f64| log2((v / t.time).max(1e-4));
        push(share(t.compute));
        push(share(t.l2));
        push(share(t.dram));
        push(share(t.latency));
        push(log2(t.bm));
        push(log2(t.bn));
        push(log2(t.split));
        push(t.waves.min(20.0) as f32);
        push(log2((form.conversion / form.time).max(1e-4)));
        push(log2(form.launches));
        for tile in [1, 4, 6, 7, 9, 11] {
            push(log2(t.by_tile[tile] / t.time));
        }
    }
    debug_assert!(at <= FEATURES, "{at}");
    (reference, x, top.1)
}
