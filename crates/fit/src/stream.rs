//! Fits the operators that are bound by memory.

use crate::data::Measured;
use crate::e2e::Run;
use crate::samples::Sample;
use crate::sets::Sets;
use anyhow::Result;
use preflop_core::gpu::Gpu;
use preflop_core::kernels::{linear, stream};
use preflop_core::ops::{Family, Op, SpatialKind};
use std::collections::BTreeMap;

/// The families fitted here.
pub const FAMILIES: [Family; 4] = [Family::Rowwise, Family::Spatial, Family::Elementwise, Family::Movement];

/// Its name in the report.
pub fn name(family: Family) -> &'static str {
    match family {
        Family::Rowwise => "rowwise",
        Family::Spatial => "spatial",
        Family::Elementwise => "elementwise",
        _ => "movement",
    }
}

/// Fewest rows that get constants of their own.
const LEAST: usize = 12;

/// Constants of linear forms by class.
pub type Constants = BTreeMap<usize, [f64; linear::TERMS]>;

/// Calls of one class in one profiled iteration: the form is linear, so that their terms add up to their time.
pub struct Sums {
    pub class: usize,
    pub terms: [f64; linear::TERMS],
    pub seconds: f64,
}

/// Batch norms with stored statistics, of which few were measured one by one, from profiles of inference.
pub fn stored_norms(sets: &Sets, runs: &[Run], gpu: &Gpu) -> Result<Vec<Sums>> {
    // By cuDNN in fp32; by PyTorch in bf16: the norm itself, its deviations, and a copy of 1 us.
    const NORM: &str = "batch_norm_transform_input_kernel<c10::BFloat16";
    const PARTS: [&str; 3] = ["bn_fw_inf", NORM, "batch_norm_calc_invstd"];
    const COPY: f64 = 1.04e-6;
    let mut times: BTreeMap<[String; 4], f64> = BTreeMap::new();
    let mut reader = csv::Reader::from_reader(sets.open(&sets.own("e2e_kernels.csv.gz")?)?);
    for record in reader.records() {
        let r = record?;
        if &r[4] == "infer" && PARTS.iter().any(|p| r[5].contains(p)) {
            let copies = if r[5].contains(NORM) { COPY * r[6].parse::<f64>()? } else { 0.0 };
            let case = [0, 1, 3, 4].map(|i| r[i].to_string());
            *times.entry(case).or_default() += r[7].parse::<f64>()? * 1e-6 + copies;
        }
    }
    let mut out = Vec::new();
    for c in runs {
        let key = [c.model.clone(), c.batch.to_string(), c.precision.clone(), c.mode.clone()];
        let Some(&seconds) = times.get(&key) else { continue };
        let mut sums = Sums { class: 0, terms: [0.0; linear::TERMS], seconds };
        for step in &c.iteration.steps {
            if let Op::Spatial(o) = &step.call.op
                && o.kind == SpatialKind::BatchNormEval
                && let Some(class) = linear::class(&step.call)
            {
                sums.class = class;
                let terms = linear::terms(&step.call, gpu);
                sums.terms.iter_mut().zip(terms).for_each(|(s, t)| *s += t * f64::from(step.count));
            }
        }
        out.push(sums);
    }
    Ok(out)
}

/// Fits the constants of linear forms.
pub fn constants(measured: &[Measured], gpus: &[Gpu], sums: &[Sums]) -> Constants {
    let mut groups: BTreeMap<usize, Vec<[f64; linear::TERMS]>> = BTreeMap::new();
    for s in sums {
        groups.entry(s.class).or_default().push(s.terms.map(|t| t / s.seconds));
    }
    for m in measured {
        if let Some(class) = linear::class(&m.call) {
            // Shares of the measured time, which should add up to one.
            let shares = linear::terms(&m.call, &gpus[m.gpu]).map(|t| t / (m.us * 1e-6));
            groups.entry(class).or_default().push(shares);
        }
    }
    groups.retain(|_, rows| rows.len() >= LEAST);
    groups.into_iter().map(|(class, rows)| (class, least_deviations(&rows))).collect()
}

/// Constants of 0 or more for which the rows' weighted sums come nearest to one, in absolute deviation.
fn least_deviations<const N: usize>(rows: &[[f64; N]]) -> [f64; N] {
    const ROUNDS: usize = 30;
    const SWEEPS: usize = 300;
    // Deviations below this count as equal.
    const CLOSE: f64 = 0.02;
    let mut weights = vec![1.0; rows.len()];
    let mut c = [0.0; N];
    for _ in 0..ROUNDS {
        let mut gram = [[0.0; N]; N];
        let mut target = [0.0; N];
        for (row, w) in rows.iter().zip(&weights) {
            for i in 0..N {
                target[i] += w * row[i];
                for j in 0..N {
                    gram[i][j] += w * row[i] * row[j];
                }
            }
        }
        for _ in 0..SWEEPS {
            for i in 0..N {
                if gram[i][i] > 0.0 {
                    let others: f64 = (0..N).filter(|j| *j != i).map(|j| gram[i][j] * c[j]).sum();
                    c[i] = ((target[i] - others) / gram[i][i]).max(0.0);
                }
            }
        }
        for (row, w) in rows.iter().zip(&mut weights) {
            let sum: f64 = row.iter().zip(&c).map(|(x, c)| x * c).sum();
            *w = 1.0 / (sum - 1.0).abs().max(CLOSE);
        }
    }
    // What is left of constants on their way to zero.
    c.map(|c| if c < 1e-9 { 0.0 } else { c })
}

/// The constants as they stand in the file.
pub fn shipped(constants: &Constants) -> impl Iterator<Item = (String, Vec<f64>)> {
    constants.iter().map(|(class, c)| (linear::key(*class), c.to_vec()))
}

/// The samples of one family.
pub fn samples(measured: &[Measured], gpus: &[Gpu], family: Family, constants: &Constants) -> Vec<Sample> {
    measured
        .iter()
        .filter(|m| m.call.family() == family)
        .enumerate()
        .map(|(i, m)| {
            let gpu = &gpus[m.gpu];
            let own = linear::class(&m.call)
                .and_then(|class| constants.get(&class))
                .map(|c| linear::form(c, &linear::terms(&m.call, gpu)))
                .filter(|t| *t > 0.0);
            let reference = own.unwrap_or_else(|| stream::form(&m.call, gpu));
            Sample {
                x: stream::features(&m.call, gpu, reference),
                reference,
                seconds: m.us * 1e-6,
                forest: stream::forest_name(&m.call),
                class: stream::interval_class(&m.call),
                gpu: m.gpu,
                group: i,
                weight: 1.0,
                source: m.source,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_constants_are_found() {
        // time = 2 a + 3 b with nothing for c
        let rows: Vec<[f64; 3]> = (1..40)
            .map(|i| {
                let (a, b, c) = (1.0, f64::from(i), f64::from(i * i % 7));
                let t = 2.0 * a + 3.0 * b;
                [a / t, b / t, c / t]
            })
            .collect();
        let c = least_deviations(&rows);
        assert!((c[0] - 2.0).abs() < 0.05 && (c[1] - 3.0).abs() < 0.01 && c[2] < 0.01, "{c:?}");
    }
}
