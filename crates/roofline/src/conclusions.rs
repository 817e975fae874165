//! What a set of measured kernels says, as sentences: what binds them, who fuses, where tensor cores idle.

use super::bounds::Class;
use super::rows::{Row, Rows};
use std::collections::BTreeMap;

/// One group of kernels that were run alike, such as one framework in one precision and pass.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Who ran them, such as a framework.
    pub runner: &'a str,
    /// How, such as `FP16 forward`.
    pub setting: &'a str,
    /// The kernels.
    pub rows: &'a Rows,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| values[values.len() / 2])
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for v in values {
        sum += v;
        n += 1.0;
    }
    if n > 0.0 { sum / n } else { 0.0 }
}

fn tensor_share(row: &Row) -> f64 {
    let tensor: f64 = row.work.flops.iter().filter(|f| f.0.tensor).map(|f| f.1.0).sum();
    let all = row.work.total_flops().0;
    if all > 0.0 { tensor / all } else { 0.0 }
}

/// A framework that needs this many times the launches of another does not fuse what the other does.
const MORE_LAUNCHES: f64 = 1.5;
/// Half-precision kernels with less of their FLOPs on tensor cores leave them idle.
const IDLE_TENSOR: f64 = 0.5;

/// The sentences, in the order: what binds each group, who fuses, where tensor cores idle.
pub fn conclusions(groups: &[Group]) -> Vec<String> {
    let mut lines = Vec::new();
    for g in groups {
        let rows = &g.rows.rows;
        let count = |class: Class| rows.iter().filter(|r| r.bounds.class() == class).count();
        let bound: Vec<String> = [Class::Compute, Class::Memory, Class::Overhead]
            .into_iter()
            .filter(|class| count(*class) > 0)
            .map(|class| format!("{} {}-bound", count(class), class.name()))
            .collect();
        let slow = median(rows.iter().filter_map(|r| r.bounds.slowdown(r.work.time)).collect());
        let slow =
            slow.map_or(String::new(), |s| format!("; half of them take more than {s:.1}x their roof"));
        lines.push(format!(
            "{} {}: of {} kernels {}{slow}",
            g.runner,
            g.setting,
            rows.len(),
            bound.join(", ")
        ));
    }
    let mut settings: BTreeMap<&str, Vec<(&str, f64)>> = BTreeMap::new();
    for g in groups {
        let launches = mean(g.rows.rows.iter().map(|r| r.work.launches));
        settings.entry(g.setting).or_default().push((g.runner, launches));
    }
    for (setting, mut runners) in settings {
        runners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(least), Some(most)) = (runners.first(), runners.last()) else { continue };
        if least.1 > 0.0 && most.1 > MORE_LAUNCHES * least.1 {
            lines.push(format!(
                "{setting}: {} launches {:.0} kernels for what {} does in {:.0}, so {} fuses more",
                most.0, most.1, least.0, least.1, least.0
            ));
        }
    }
    for g in groups {
        let half: Vec<&Row> = g.rows.rows.iter().filter(|r| r.dtype.eq_ignore_ascii_case("fp16")).collect();
        let idle = half.iter().filter(|r| tensor_share(r) < IDLE_TENSOR).count();
        if idle > 0 {
            lines.push(format!(
                "{} {}: {idle} of {} kernels do less than half of their FLOPs on tensor cores",
                g.runner,
                g.setting,
                half.len()
            ));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Work;
    use crate::rows::{By, Entry};
    use crate::study::{FP32, TENSOR, machine};
    use preflop_units::{Bytes, Flops, Seconds};

    fn rows(launches: f64, flops: f64, tensor: bool) -> Rows {
        let entry = Entry {
            identity: "x".into(),
            layer: "x".into(),
            op: "conv".into(),
            family: "PT".into(),
            phase: "forward".into(),
            dtype: "FP16".into(),
            count: 1.0,
            work: Work {
                flops: vec![(if tensor { TENSOR } else { FP32 }, Flops(flops))],
                bytes: [Some(Bytes(1e6)), None, None],
                launches,
                time: Seconds::from_us(5000.0),
            },
        };
        Rows::new(&[entry], By::Call, &machine())
    }

    #[test]
    fn what_binds_who_fuses_and_what_idles_is_said() {
        let (few, many) = (rows(3.0, 30e9, true), rows(300.0, 1e6, false));
        let groups = [
            Group { runner: "PT", setting: "FP16 forward", rows: &few },
            Group { runner: "TF1", setting: "FP16 forward", rows: &many },
        ];
        let lines = conclusions(&groups);
        let has = |words: &[&str]| lines.iter().any(|l| words.iter().all(|w| l.contains(w)));
        assert!(has(&["PT FP16 forward", "1 compute-bound"]), "{lines:?}");
        assert!(has(&["TF1 FP16 forward", "1 overhead-bound"]), "{lines:?}");
        assert!(has(&["TF1 launches 300 kernels", "PT fuses more"]), "{lines:?}");
        assert!(has(&["TF1 FP16 forward", "1 of 1 kernels", "tensor cores"]), "{lines:?}");
    }
}
