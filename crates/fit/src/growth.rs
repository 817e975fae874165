//! Larger calls take no less: what was learned is bent as little as that asks.
//!
//! A forest says the log of measured over closed form, and the form is known of every call. So of a call and the same with one size
//! doubled, by the same kernel, it is known how far the forest may fall from the one to the other before the larger call comes out faster:
//!
//! ```text
//! f(large) - f(small) >= ln form(small) - ln form(large)
//! ```
//!
//! `f` is a sum of leaves, so that every pair is a half-space of leaves. Among the leaves that keep all pairs those are taken that are nearest to
//! the learned ones, each leaf counted as often as measurements reached it (Hildreth's method for quadratic programs, 1957); then they are rounded
//! as a file keeps them, and what rounding broke is mended in single steps.

use preflop_core::gpu::Gpu;
use preflop_core::ops::OpCall;
use preflop_core::time::TimeModel;
use preflop_core::time::trees::{Features, Forest};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// A call and the same with one size doubled, as a forest sees them.
#[derive(Debug, Clone)]
pub struct Doubled {
    pub small: Box<Features>,
    pub large: Box<Features>,
    /// By how much the forest must rise from the one to the other on each GPU where both take about as long, in natural log; less than nothing where
    /// the form rises.
    pub rises: Vec<f64>,
}

/// A measurement that a forest was trained on.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub x: &'a Features,
    /// Natural log of measured over closed form.
    pub log: f64,
    /// Its class and file: of each, what gives way is counted.
    pub kind: (&'a str, &'a str),
}

/// By how much the mean error of a class in a file may grow for larger calls to take no less.
const COST: f64 = 0.002;
/// Fewest measurements of a class in a file of which that is asked.
const FEWEST: usize = 20;
/// What a pair may weigh at most, in shares of all measurements; the first that costs no more is taken.
const SHARES: [f64; 9] = [1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002];
/// Parts of the GPUs that are asked for apart, so that one of them alone does not weigh as much as all.
const PARTS: usize = 4;
/// Rounds over all pairs, and every how many of them also those are looked at that were far from breaking.
const SWEEPS: usize = 400;
const ALL_EACH: usize = 10;
/// Rounds of mending after leaves were rounded.
const MENDINGS: usize = 200;
/// Steps of a leaf that pairs keep beyond what they must, so that rounding to them breaks nothing.
const SPARE: f64 = 2.0;
/// Steps from breaking from which on a pair counts as far from it.
const FAR: f64 = 400.0;
/// Weight of a leaf that no measurement reached, in measurements.
const UNREACHED: f64 = 0.5;
/// Steps that a pair may still lack before leaves are rounded.
const NEARLY: f64 = 20.0;
/// Largest number of steps that a file keeps of a leaf.
const MOST: i32 = 127;

/// Two rows that must not come too near.
struct Pair {
    small: usize,
    large: usize,
    /// Steps by which the forest must rise from the small one to the large one; mostly negative.
    rise: f64,
    /// Share of the GPUs that ask for it.
    asked: f64,
}

impl Pair {
    /// Steps that the forest lacks, by the values of its leaves.
    fn lacks(&self, rows: &[Vec<u8>], leaf: impl Fn(usize, usize) -> f64) -> f64 {
        let ends = rows[self.small].iter().zip(&rows[self.large]).enumerate();
        let rise = |(t, (a, b)): (usize, (&u8, &u8))| leaf(t, usize::from(*b)) - leaf(t, usize::from(*a));
        self.rise - ends.map(rise).sum::<f64>()
    }
}

/// The forest with leaves that keep as many pairs as its measurements let it, as a file keeps it. The pairs are those of `gpus` GPUs.
pub fn settled(forest: &Forest, known: &[Known], doubled: &[Doubled], gpus: usize) -> Forest {
    let step = f64::from(Forest::step());
    let mut pairs = Vec::new();
    for (i, d) in doubled.iter().enumerate() {
        let mut rises = d.rises.clone();
        rises.sort_by(f64::total_cmp);
        for part in rises.chunks(rises.len().div_ceil(PARTS).max(1)) {
            let Some(rise) = part.last() else { continue };
            let asked = part.len() as f64 / gpus.max(1) as f64;
            pairs.push(Pair { small: 2 * i, large: 2 * i + 1, rise: rise / step + SPARE, asked });
        }
    }
    if pairs.is_empty() {
        return forest.clone();
    }
    let rows: Vec<Vec<u8>> =
        doubled.iter().flat_map(|d| [&d.small, &d.large]).map(|x| forest.reached(x)).collect();
    let mut weights = vec![[UNREACHED; Forest::LEAVES]; forest.trees()];
    for k in known {
        for (w, leaf) in weights.iter_mut().zip(forest.reached(k.x)) {
            w[usize::from(leaf)] += 1.0;
        }
    }
    let before = errors(forest, known);
    let dear = |new: &Forest| {
        let after = errors(new, known);
        before.iter().any(|(kind, old)| after.get(kind).is_some_and(|new| new - old > COST))
    };
    for share in SHARES {
        let mut leaves: Vec<_> = forest.leaves().iter().map(|own| own.map(f64::from)).collect();
        nearest(&mut leaves, &weights, &rows, &pairs, share * known.len() as f64);
        let mut steps: Vec<Steps> = leaves.iter().map(Steps::of).collect();
        let kept = |p: &&Pair| p.lacks(&rows, |t, leaf| leaves[t][leaf]) < NEARLY;
        mend(&mut steps, &weights, &rows, &pairs.iter().filter(kept).collect::<Vec<_>>());
        let values: Vec<_> = steps.iter().map(Steps::values).collect();
        let new = forest.clone().with_leaves(&values);
        if !dear(&new) {
            return new;
        }
    }
    forest.clone()
}

/// The mean relative error of each class in each file.
fn errors<'a>(forest: &Forest, known: &[Known<'a>]) -> BTreeMap<(&'a str, &'a str), f64> {
    let mut sums: BTreeMap<_, (f64, usize)> = BTreeMap::new();
    for k in known {
        let sum = sums.entry(k.kind).or_default();
        sum.0 += ((f64::from(forest.predict(k.x)) - k.log).exp() - 1.0).abs();
        sum.1 += 1;
    }
    sums.retain(|_, (_, count)| *count >= FEWEST);
    sums.into_iter().map(|(kind, (sum, count))| (kind, sum / count as f64)).collect()
}

/// Moves leaves to the nearest ones that keep all pairs, as far as none of them weighs more than `most`.
fn nearest(
    leaves: &mut [[f64; Forest::LEAVES]],
    weights: &[[f64; Forest::LEAVES]],
    rows: &[Vec<u8>],
    pairs: &[Pair],
    most: f64,
) {
    let mut forces = vec![0.0; pairs.len()];
    let mut far = vec![false; pairs.len()];
    for sweep in 0..SWEEPS {
        let all = sweep % ALL_EACH == 0;
        let mut broken: f64 = 0.0;
        for ((pair, force), far) in pairs.iter().zip(&mut forces).zip(&mut far) {
            if *far && !all {
                continue;
            }
            let ends =
                || rows[pair.small].iter().zip(&rows[pair.large]).enumerate().filter(|(_, (a, b))| a != b);
            let (mut rise, mut give) = (0.0, 0.0);
            for (t, (a, b)) in ends() {
                let (a, b) = (usize::from(*a), usize::from(*b));
                rise += leaves[t][b] - leaves[t][a];
                give += 1.0 / weights[t][a] + 1.0 / weights[t][b];
            }
            let lacks = pair.rise - rise;
            *far = lacks < -FAR && *force == 0.0;
            if give == 0.0 || lacks <= 0.0 && *force == 0.0 {
                continue;
            }
            let change = (lacks / give).clamp(-*force, most * pair.asked - *force);
            *force += change;
            broken = broken.max(change.abs() * give);
            for (t, (a, b)) in ends() {
                let (a, b) = (usize::from(*a), usize::from(*b));
                leaves[t][a] -= change / weights[t][a];
                leaves[t][b] += change / weights[t][b];
            }
        }
        if all && broken < 1.0 {
            break;
        }
    }
}

/// The leaves of a tree as a file keeps them: the largest, and all as parts of it.
struct Steps {
    largest: i32,
    parts: [i32; Forest::LEAVES],
}

impl Steps {
    fn of(leaves: &[f64; Forest::LEAVES]) -> Self {
        let largest = leaves.iter().fold(1.0_f64, |most, v| most.max(v.abs())).round().min(32_767.0);
        let part = |v: f64| (v * f64::from(MOST) / largest).round().clamp(-127.0, 127.0) as i32;
        Self { largest: largest as i32, parts: leaves.map(part) }
    }

    fn value(&self, leaf: u8) -> i32 {
        // As the file is read.
        let unit = self.largest as f32 / MOST as f32;
        let value = f64::from(self.parts[usize::from(leaf)] as f32 * unit);
        (value + 0.5_f64.copysign(value)) as i32
    }

    fn values(&self) -> [i16; Forest::LEAVES] {
        std::array::from_fn(|leaf| self.value(leaf as u8) as i16)
    }

    /// Moves a leaf by one part, where its tree's largest one stays; by how many steps.
    fn moved(&mut self, leaf: u8, by: i32) -> i32 {
        let before = self.value(leaf);
        let part = &mut self.parts[usize::from(leaf)];
        if part.abs() == MOST || (*part + by).abs() > MOST {
            return 0;
        }
        *part += by;
        (self.value(leaf) - before) * by
    }
}

/// Moves single leaves by single parts until no pair is broken; those go first that the fewest measurements reached.
fn mend(trees: &mut [Steps], weights: &[[f64; Forest::LEAVES]], rows: &[Vec<u8>], pairs: &[&Pair]) {
    for _ in 0..MENDINGS {
        let mut broken = 0;
        for pair in pairs {
            let (small, large) = (&rows[pair.small], &rows[pair.large]);
            let rise: i32 =
                trees.iter().zip(small.iter().zip(large)).map(|(t, (a, b))| t.value(*b) - t.value(*a)).sum();
            let mut lacks = (pair.rise - SPARE / 2.0).ceil() as i32 - rise;
            if lacks <= 0 {
                continue;
            }
            broken += 1;
            let mut moves: Vec<(f64, usize, u8, i32)> = Vec::new();
            for (t, (a, b)) in small.iter().zip(large).enumerate().filter(|(_, (a, b))| a != b) {
                moves.push((weights[t][usize::from(*a)], t, *a, -1));
                moves.push((weights[t][usize::from(*b)], t, *b, 1));
            }
            moves.sort_by(|x, y| x.0.total_cmp(&y.0).then((x.1, x.2).cmp(&(y.1, y.2))));
            for (_, t, leaf, by) in moves {
                if lacks <= 0 {
                    break;
                }
                lacks -= trees[t].moved(leaf, by);
            }
        }
        if broken == 0 {
            break;
        }
    }
}

/// Catalogue GPUs on which a call and its double are compared are further apart than this, nothing is asked of the forest.
const NEAR: f64 = 1.3;
/// Steps towards the answer that makes both equally long.
const STEPS: usize = 8;

/// What keeps larger calls from being faster on any of these GPUs, by the name of the forest.
pub fn doubled(model: &TimeModel, calls: &[OpCall], gpus: &[Gpu]) -> BTreeMap<String, Vec<Doubled>> {
    let names: HashMap<usize, &str> =
        model.fitted().forests().map(|(name, f)| (std::ptr::from_ref(f).addr(), name)).collect();
    let of_call = |call: &OpCall| {
        let mut found: Vec<(&str, Doubled)> = Vec::new();
        for (_, larger) in call.doubled() {
            let first = found.len();
            for gpu in gpus {
                let Some((name, d)) = rise(model, &names, [call, &larger], gpu) else { continue };
                let same =
                    |(n, o): &&mut (&str, Doubled)| *n == name && o.small == d.small && o.large == d.large;
                match found[first..].iter_mut().find(same) {
                    Some((_, other)) => other.rises.extend(d.rises),
                    None => found.push((name, d)),
                }
            }
        }
        found
    };
    let mut out: BTreeMap<String, Vec<Doubled>> = BTreeMap::new();
    for (name, d) in calls.par_iter().map(of_call).collect::<Vec<_>>().into_iter().flatten() {
        out.entry(name.to_string()).or_default().push(d);
    }
    out
}

/// By how much the answer must rise from a call to a larger one on a GPU, and whose answer.
fn rise<'a>(
    model: &TimeModel,
    names: &HashMap<usize, &'a str>,
    [small, large]: [&OpCall; 2],
    gpu: &Gpu,
) -> Option<(&'a str, Doubled)> {
    let (forest, x) = model.question_of(small, gpu)?;
    let (other, y) = model.question_of(large, gpu)?;
    if !std::ptr::eq(forest, other) || !model.same_kernel(small, large, gpu) {
        return None;
    }
    let name = names.get(&std::ptr::from_ref(forest).addr())?;
    let [before, mut at] = [&x, &y].map(|x| f64::from(forest.predict(x)));
    let seconds = model.seconds_if(before, small, gpu);
    let lacks = |at: f64| (seconds / model.seconds_if(at, large, gpu)).ln();
    let mut lack = lacks(at);
    if lack < -NEAR.ln() {
        return None;
    }
    // The time grows with the answer, as far as that is trusted.
    let mut slope: f64 = 1.0;
    for _ in 0..STEPS {
        if lack.abs() < 1e-5 {
            break;
        }
        let to = at + (lack / slope).clamp(-1.0, 1.0);
        let left = lacks(to);
        if (lack - left).abs() > 1e-9 {
            slope = ((lack - left) / (to - at)).clamp(0.05, 2.0);
        }
        (at, lack) = (to, left);
    }
    Some((name, Doubled { small: x, large: y, rises: vec![at - before] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::time::trees::MAX_FEATURES;

    fn at(place: f32) -> Features {
        let mut x = [0.0; MAX_FEATURES];
        x[0] = place;
        x
    }

    /// What a forest says of 0.75 over what it says of 0.25, once a hundred pairs asked it to fall by at most 0.05.
    fn fall(measured: usize) -> f32 {
        // The outer leaves are the largest, which keep the scale of a tree.
        let mut forest = Forest::new(2, 0.0, -1.0, 1.0);
        for _ in 0..10 {
            forest.push(&[(0, 0.5), (0, 0.1), (0, 0.9)], &[0.02, 0.01, -0.01, 0.02]);
        }
        let [small, large] = [0.25, 0.75].map(|place| Box::new(at(place)));
        let rows: Vec<Features> = (0..measured).map(|i| if i % 2 == 0 { *small } else { *large }).collect();
        let log = |i: usize| if i.is_multiple_of(2) { 0.1 } else { -0.1 };
        let known: Vec<Known> =
            rows.iter().enumerate().map(|(i, x)| Known { x, log: log(i), kind: ("", "") }).collect();
        let doubled = Doubled { small: small.clone(), large: large.clone(), rises: vec![-0.05] };
        let new = settled(&forest.rounded(), &known, &vec![doubled; 100], 1);
        assert_eq!(new.rounded(), new, "as a file keeps it");
        new.predict(&large) - new.predict(&small)
    }

    #[test]
    fn a_larger_call_falls_no_further_than_its_form_rises() {
        let fall = fall(10);
        assert!((-0.05..-0.04).contains(&fall), "{fall}");
    }

    #[test]
    fn measurements_that_say_so_keep_a_larger_call_faster() {
        // Each row may lose 0.2 points: a thousandth of the time on either side, and what rounding adds.
        let fall = fall(100);
        assert!((fall + 0.2).abs() < 0.005, "{fall}");
    }
}
