//! Convolutions as the learned parts see them: the shape, the guessed kernels and the reference time.

use super::conv::{ConvConstants, ConvFamily, Task};
use super::conv_form::{FamilyTime, family_time};
use super::depthwise::{StreamConstants, depthwise_time};
use super::{Machine, alignment};
use preflop_learned::choice::{Guess, KEPT, Variant};
use preflop_learned::trees::{Features, MAX_FEATURES};
use preflop_ops::{Gemm, Pass};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Places that the shape fills: what the choosers see.
pub const CHOICE_FEATURES: usize = 80;
/// Places that are filled in all.
pub const FEATURES: usize = 127;

fn log2(x: f64) -> f32 {
    x.max(1e-30).binary_log() as f32
}

/// Where the constants of a family come from.
pub trait ConvTable {
    /// Constants of a variant for this task.
    fn product(&self, task: &Task, variant: &Variant) -> ConvConstants;
    /// Seconds of a plain product in this format, by the product model.
    fn plain_product(&self, gemm: &Gemm, dtype: Dtype) -> f64;
    /// Constants of a depthwise family for this task.
    fn depthwise(&self, task: &Task, family: ConvFamily) -> StreamConstants;
}

/// The shape of a task on a machine: sizes, alignment, work, padding and waves of common tiles.
pub fn shape_features(task: &Task, machine: &Machine) -> Features {
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
    push(match task.dtype {
        Dtype::Fp32 | Dtype::Fp64 => 0.0,
        Dtype::Tf32 => 1.0,
        Dtype::Fp16 => 2.0,
        _ => 3.0,
    });
    push(f32::from(u8::from(c.channels_last)));
    for v in [c.batch, c.ci, c.co, c.h, c.w, c.oh(), c.ow(), c.groups] {
        push(log2(v as f64));
    }
    push(log2(ci));
    push(log2(co));
    for v in [c.r, c.s, c.r * c.s, c.stride[0], c.dilation[0], c.pad[0], c.pad[1]] {
        push(v as f32);
    }
    for v in [c.ci, c.co, c.ci / c.groups, c.co / c.groups] {
        push(log2(alignment(v, 64) as f64));
    }
    for v in [c.h * c.w, c.oh() * c.ow(), c.w, c.ow()] {
        push(log2(alignment(v, 8) as f64));
    }
    let (m, n, k) = task.dims(1.0);
    for v in [m, n, k, m * n, n * k, m * k, m * n * k] {
        push(log2(v));
    }
    let flops = c.flops().0;
    let [bx, bw, by] = task.bytes();
    let io = bx + bw + by;
    for v in [
        flops / 1e9,
        bx,
        bw,
        by,
        flops / machine.peak * 1e6,
        flops / io,
        io / machine.l2_size,
        bx / io,
        bw / io,
    ] {
        push(log2(v));
    }
    for (v, q) in [(ci, 8.0), (ci, 32.0), (ci, 64.0), (co, 8.0), (co, 32.0), (co, 64.0), (co, 128.0)] {
        push(log2((v / q).ceil() * q / v));
    }
    let (converted, kernels) = task.conversion();
    push(kernels as f32);
    push(log2(converted / io));
    push(f32::from(task.gemm_class()));
    push(log2(task.gemm_alignment() as f64));
    for flag in [task.pointwise(), task.depthwise(), task.grouped()] {
        push(f32::from(u8::from(flag)));
    }
    for (bm, bn) in
        [(64.0, 64.0), (128.0, 64.0), (128.0, 128.0), (256.0, 64.0), (256.0, 128.0), (128.0, 256.0)]
    {
        let tiles = (m / bm).ceil() * (n / bn).ceil() * g;
        let w: f64 = tiles / machine.sm;
        push(log2(w));
        push((w / w.ceil()) as f32);
        push((m * n * g / (tiles * bm * bn)) as f32);
    }
    for v in [c.batch * c.oh() * c.ow(), c.h * c.w, c.oh() * c.ow()] {
        push(log2(v as f64));
    }
    debug_assert!(at <= CHOICE_FEATURES, "{at}");
    x
}

/// The guessed kernels with their times.
#[derive(Debug, Clone)]
pub struct Candidates {
    /// Guess, seconds, and the form for reports (none for depthwise kernels).
    pub guesses: Vec<(Guess, f64, Option<FamilyTime>)>,
    /// Mean of the logs of the times, weighted by probability.
    pub reference: f64,
}

impl Candidates {
    /// The likeliest guess.
    pub fn top(&self) -> Option<&(Guess, f64, Option<FamilyTime>)> {
        self.guesses.first()
    }

    /// The tile of the likeliest implicit product, for its traffic. Plain products of 1x1 layers and the
    /// old implicit kernels do not tell theirs; where transforms (FFT, Winograd) are likelier, the next implicit product counts.
    pub fn implicit_tile(&self) -> Option<[f64; 3]> {
        use ConvFamily::{Cutlass, Ffma, Gemm, Sgemm, Xmma80, Xmma90};
        if self.top().is_some_and(|(g, ..)| matches!(g.variant.family, Gemm | Sgemm)) {
            return None;
        }
        let implicit = |g: &&Guess| matches!(g.variant.family, Ffma | Xmma80 | Xmma90 | Cutlass);
        self.guesses.iter().map(|(g, ..)| g).find(implicit).and_then(|g| g.variant.tile())
    }
}

/// Seconds of a task by one variant, and its form.
pub fn variant_time(
    task: &Task,
    guess: &Guess,
    table: &dyn ConvTable,
    machine: &Machine,
) -> (f64, Option<FamilyTime>) {
    let v = &guess.variant;
    if v.family.streams() {
        let constants = table.depthwise(task, v.family);
        return (depthwise_time(task, v.family, &constants, machine), None);
    }
    let form = family_time(task, v, &table.product(task, v), machine);
    let plain = v.family == ConvFamily::Gemm && task.pointwise() && task.conv.groups == 1;
    let time = if plain { table.plain_product(&task.as_gemm(), task.dtype) } else { form.time };
    (time, Some(form))
}

/// Times of the guessed variants.
pub fn candidates_of(
    task: &Task,
    guesses: Vec<Guess>,
    table: &dyn ConvTable,
    machine: &Machine,
) -> Candidates {
    let guesses: Vec<_> = guesses
        .into_iter()
        .map(|g| {
            let (time, form) = variant_time(task, &g, table, machine);
            (g, time, form)
        })
        .collect();
    let log: f64 = guesses.iter().map(|(g, t, _)| f64::from(g.probability) * t.natural_log()).sum();
    let weight: f64 = guesses.iter().map(|(g, _, _)| f64::from(g.probability)).sum();
    let reference = if weight > 0.0 {
        (log / weight).exponential()
    } else {
        let plain = Variant::of_family(ConvFamily::Ffma);
        family_time(task, &plain, &ConvConstants::START, machine).time
    };
    Candidates { guesses, reference }
}

/// Places for the probabilities of families.
const FAMILY_FEATURES: usize = 16;

/// The place of a family: cuDNN's depthwise kernels share one.
fn place(family: ConvFamily) -> usize {
    let number = family as usize;
    if number < FAMILY_FEATURES { number } else { ConvFamily::Depthwise as usize }
}

/// The full features: the shape's, then what the guesses say.
pub fn finish(shape: &Features, candidates: &Candidates, machine: &Machine) -> Features {
    let mut x = *shape;
    for (g, _, _) in &candidates.guesses {
        x[CHOICE_FEATURES + place(g.variant.family)] += g.probability;
    }
    let mut at = CHOICE_FEATURES + FAMILY_FEATURES;
    let mut push = |v: f32| {
        x[at] = v;
        at += 1;
    };
    let reference = candidates.reference;
    push(log2(reference * 1e6));
    push(candidates.guesses.len() as f32);
    for i in 0..KEPT {
        let guess = candidates.guesses.get(i);
        push(guess.map_or(0.0, |(g, _, _)| g.probability));
        push(guess.map_or(0.0, |(_, t, _)| log2(t / reference)));
    }
    for i in 0..2 {
        let guess = candidates.guesses.get(i);
        push(guess.map_or(-1.0, |(g, _, _)| f32::from(g.variant.family as u8)));
        push(guess.map_or(-1.0, |(g, _, _)| f32::from(g.variant.engine)));
    }
    if let Some((g, time, Some(form))) = candidates.top() {
        let t = form.tiling;
        let share = |v: f64| log2((v / t.time).max(1e-4));
        for v in [t.compute, t.l2, t.dram, t.latency] {
            push(share(v));
        }
        for v in [t.bm, t.bn, f64::from(g.variant.tile[2]).max(1.0), t.split] {
            push(log2(v));
        }
        push(t.waves.min(20.0) as f32);
        push((t.tiles / (t.waves * machine.sm)) as f32);
        push(log2((form.conversion / time).max(1e-4)));
        push(log2(form.launches));
        for v in g.variant.cluster {
            push(f32::from(v));
        }
        push(f32::from(u8::from(g.variant.segments)));
    }
    debug_assert!(at <= FEATURES, "{at}");
    x
}
