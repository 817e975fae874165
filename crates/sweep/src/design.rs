//! From the number of a row to its values.

use crate::axis::{Value, Values};
use crate::random;
use crate::study::{Design, Study};

/// The value of a column in a row.
pub(crate) fn value(study: &Study, axis: usize, row: u64) -> Option<Value> {
    let values = &study.axes[axis].values;
    match study.design {
        Design::List => study.listed[axis].get(row as usize).cloned().flatten(),
        Design::Grid => {
            // Mixed radix: the columns after this one vary faster.
            let below: u64 = study.axes[axis + 1..].iter().filter_map(|a| a.values.count()).product();
            let Values::List(list) = values else { return None };
            list.get((row / below.max(1) % list.len().max(1) as u64) as usize).cloned()
        }
        Design::Random => Some(values.at(random::unit(random::bits(study.seed, axis as u64, row)))),
        Design::LatinHypercube => {
            // One row in each of as many strata as there are rows, anywhere inside it.
            let stratum = random::permuted(study.seed, axis as u64, row, study.rows);
            let inside = random::unit(random::bits(study.seed, axis as u64, row));
            Some(values.at((stratum as f64 + inside) / study.rows as f64))
        }
    }
}

/// The distinct texts that a column takes.
pub(crate) fn texts_of(study: &Study, axis: usize) -> Vec<String> {
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    };
    let mut out: Vec<String> = match (&study.design, &study.axes[axis].values) {
        (Design::List, _) => study.listed[axis].iter().flatten().filter_map(text).collect(),
        (_, Values::List(list)) => list.iter().filter_map(text).collect(),
        (_, Values::Range { .. }) => Vec::new(),
    };
    out.sort();
    out.dedup();
    out
}
