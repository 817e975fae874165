//! Two profiles side by side: what got faster or slower, by operator.

use super::Analysis;
use super::attribution::Link;
use serde::Serialize;
use std::collections::BTreeMap;

/// One operator in both profiles, per iteration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Operator.
    pub name: String,
    /// GPU time in the first profile.
    pub before_ms: f64,
    /// GPU time in the second.
    pub after_ms: f64,
    /// Second less first.
    pub change_ms: f64,
    /// Second over first; `None` where the first has none.
    pub ratio: Option<f64>,
    /// Calls in the first.
    pub before_count: f64,
    /// Calls in the second.
    pub after_count: f64,
}

/// Both profiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// First file.
    pub before: String,
    /// Second file.
    pub after: String,
    /// Iteration of the first.
    pub before_iteration_ms: f64,
    /// Iteration of the second.
    pub after_iteration_ms: f64,
    /// GPU busy time of the first.
    pub before_gpu_busy_ms: f64,
    /// GPU busy time of the second.
    pub after_gpu_busy_ms: f64,
    /// Host time of the first.
    pub before_host_ms: f64,
    /// Host time of the second.
    pub after_host_ms: f64,
    /// Operators, the largest change first.
    pub operators: Vec<Change>,
}

/// The part of an operator's name that other libraries spell alike: `cudnn_convolution` and `miopen_convolution`
/// are one operator.
fn common_name(name: &str) -> String {
    let name = name.strip_prefix("aten::").unwrap_or(name);
    let stem = name.strip_prefix("cudnn_").or(name.strip_prefix("miopen_")).unwrap_or(name);
    stem.to_string()
}

fn sums(analysis: &Analysis) -> BTreeMap<String, (f64, f64)> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let n = analysis.iterations();
    for group in &analysis.groups {
        let name = match group.link {
            Link::Operator(_) => common_name(analysis.profile.names.text(group.name)),
            _ => format!("(unattributed) {}", group.family.name()),
        };
        let sum = sums.entry(name).or_default();
        sum.0 += group.time.ms() / n;
        sum.1 += f64::from(group.calls()) / n;
    }
    sums
}

/// Compares the second profile with the first.
pub fn compare(before: &Analysis, after: &Analysis) -> Comparison {
    let (a, b) = (sums(before), sums(after));
    let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
    names.sort();
    names.dedup();
    let mut operators: Vec<Change> = names
        .into_iter()
        .map(|name| {
            let (before_ms, before_count) = a.get(name).copied().unwrap_or_default();
            let (after_ms, after_count) = b.get(name).copied().unwrap_or_default();
            Change {
                name: name.clone(),
                before_ms,
                after_ms,
                change_ms: after_ms - before_ms,
                ratio: (before_ms > 0.0).then(|| after_ms / before_ms),
                before_count,
                after_count,
            }
        })
        .collect();
    operators.sort_by(|x, y| y.change_ms.abs().total_cmp(&x.change_ms.abs()));
    Comparison {
        before: before.profile.source.clone(),
        after: after.profile.source.clone(),
        before_iteration_ms: before.measured().ms(),
        after_iteration_ms: after.measured().ms(),
        before_gpu_busy_ms: before.gpu_busy().ms(),
        after_gpu_busy_ms: after.gpu_busy().ms(),
        before_host_ms: before.host().ms(),
        after_host_ms: after.host().ms(),
        operators,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{call, event, op, profile};
    use crate::window::Choice;

    #[test]
    fn the_same_operator_under_two_names() {
        let make = |name: &str, dur: i64| {
            let mut p = profile();
            p.ops = vec![op(&mut p.names, name, 0, 100)].into();
            p.calls = vec![call(&mut p.names, 10, 5, 1)].into();
            p.gpu_events = vec![event(&mut p.names, "k", 30, dur, 1)].into();
            p
        };
        let (a, b) =
            (make("aten::cudnn_convolution", 1_000_000), make("aten::miopen_convolution", 3_000_000));
        let choice = Choice::default();
        let c = compare(&Analysis::new(&a, &choice).unwrap(), &Analysis::new(&b, &choice).unwrap());
        assert_eq!(c.operators.len(), 1);
        assert_eq!((c.operators[0].change_ms, c.operators[0].ratio), (2.0, Some(3.0)));
    }
}
