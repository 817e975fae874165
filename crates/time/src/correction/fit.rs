//! Fits a personal correction, and says how much better it is on rows that it did not see.
//!
//! Per family and number format, by least squares with Huber's weights (so that a few odd rows do not rule):
//!
//! ```text
//! ln(measured / predicted) = offset + slope * x
//! offset = (sum w (r - slope x) + K parent) / (sum w + K)
//! slope  = sum w x (r - offset) / (sum w x^2 + K)
//! ```
//!
//! Where `r` is the log ratio, `w` the weight of a row, `parent` the offset of the family (whose own parent is that of
//! all rows, whose parent is 0), and `K` the number of rows that a parent counts as. Whether a group gets nothing, an
//! offset, or offset and slope is decided by cross-validation within the rows of the fit.

use super::{Correction, Group, HeldOut, LARGEST, STEEPEST, VERSION};
use crate::TimeModel;
use preflop_gpu::Gpu;
use preflop_ops::{Family, OpCall};
use preflop_units::Seconds;
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;

/// Fewest rows: with eight random products a calibration did harm on one of three GPUs, with 24 on none.
pub const FEWEST: usize = 24;
/// Rows that a parent's offset counts as.
const SHRINKAGE: f64 = 8.0;
/// Log ratios that far from the line (35 %) lose weight.
const HUBER: f64 = 0.3;
/// Parts into which the rows are divided; each part is predicted from the others.
const FOLDS: usize = 5;
/// A group is corrected only if that lowers its cross-validated error by this share.
const WORTH: f64 = 0.02;
/// Fewest held-out rows of a group that give it an interval of its own: two lie beyond each end.
const INTERVAL_ROWS: usize = 40;

/// A measured call.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The call.
    pub call: OpCall,
    /// What it took.
    pub time: Seconds,
}

/// Why there is no correction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Too few rows.
    #[error(
        "{rows} measured rows are too few: a correction needs {FEWEST}, better 200, of the operators that matter to you"
    )]
    Few {
        /// How many there are.
        rows: usize,
    },
    /// Measured times that cannot be.
    #[error(
        "the measured times are {factor} times the predicted ones in the middle; is the column in microseconds, and `--gpu` the GPU they were measured on?"
    )]
    Unlikely {
        /// Median of measured/predicted, rounded.
        factor: String,
    },
}

/// A row as the fit sees it.
#[derive(Debug, Clone, Copy)]
struct Row {
    family: Family,
    dtype: Dtype,
    /// ln of the predicted microseconds.
    log_us: f64,
    /// ln(measured/predicted).
    ratio: f64,
    /// Part for cross-validation.
    fold: usize,
}

/// How much of the correction a group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Nothing,
    Offset,
    Line,
}

/// Fits a correction for the predictions of `model` on `gpu`. `provenance` says when and from what.
pub fn fit(
    measured: &[Measured],
    model: &TimeModel,
    gpu: &Gpu,
    provenance: &str,
) -> Result<Correction, FitError> {
    let mut rows: Vec<Row> = Vec::new();
    for m in measured {
        let predicted = model.predict(&m.call, gpu).time;
        let (log_us, ratio) = (predicted.us().natural_log(), (m.time / predicted).natural_log());
        if log_us.is_finite() && ratio.is_finite() {
            rows.push(Row { family: m.call.family(), dtype: m.call.dtype, log_us, ratio, fold: 0 });
        }
    }
    if rows.len() < FEWEST {
        return Err(FitError::Few { rows: rows.len() });
    }
    let middle = median(rows.iter().map(|r| r.ratio).collect());
    // Twice the largest correction: wrong units or another GPU, not a slow machine.
    if middle.abs() > 2.0 * LARGEST {
        return Err(FitError::Unlikely { factor: format!("{:.3e}", middle.exponential()) });
    }
    // A row that far from the others was measured wrongly: a clock that stood still, a unit that slipped.
    rows.retain(|r| (r.ratio - middle).abs() <= 2.0 * LARGEST);
    if rows.len() < FEWEST {
        return Err(FitError::Few { rows: rows.len() });
    }
    number_folds(&mut rows);
    let mut held_out: Vec<(Row, f64)> = Vec::new();
    for fold in 0..FOLDS {
        let seen: Vec<Row> = rows.iter().filter(|r| r.fold != fold).copied().collect();
        let groups = fit_groups(&seen);
        let unseen = rows.iter().filter(|r| r.fold == fold);
        held_out.extend(unseen.map(|r| (*r, r.ratio - exponent(&groups, r))));
    }
    let mut groups = fit_groups(&rows);
    for group in &mut groups {
        let left: Vec<f64> = held_out
            .iter()
            .filter(|(r, _)| r.family == group.family && group.dtype.is_none_or(|d| d == r.dtype))
            .map(|(_, left)| *left)
            .collect();
        group.interval = (left.len() >= INTERVAL_ROWS)
            .then(|| [quantile(left.clone(), 0.05).min(0.0), quantile(left, 0.95).max(0.0)]);
    }
    let mut scores = vec![score("all", held_out.iter())];
    for family in Family::ALL {
        if rows.iter().any(|r| r.family == family) {
            scores.push(score(family.name(), held_out.iter().filter(|(r, _)| r.family == family)));
        }
    }
    Ok(Correction {
        preflop_correction: VERSION,
        gpu: gpu.name.clone(),
        provenance: provenance.to_string(),
        held_out: scores,
        groups,
    })
}

/// Deals the rows of each group in the order of their predicted times, so that every part has short and long ones.
fn number_folds(rows: &mut [Row]) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&rows[*a], &rows[*b]);
        (a.family, a.dtype).cmp(&(b.family, b.dtype)).then(a.log_us.total_cmp(&b.log_us))
    });
    for (place, row) in order.into_iter().enumerate() {
        rows[row].fold = place % FOLDS;
    }
}

/// A line with Huber's weights. `Form` says what is free.
#[derive(Debug, Clone, Copy)]
struct Line {
    offset: f64,
    slope: f64,
    center: f64,
}

impl Line {
    fn through(rows: &[Row], parent: f64, form: Form) -> Self {
        let center = rows.iter().map(|r| r.log_us).sum::<f64>() / (rows.len() as f64).max(1.0);
        let mut line = Self { offset: parent, slope: 0.0, center };
        if form == Form::Nothing {
            return Self { offset: 0.0, ..line };
        }
        // The weights settle within a few rounds; ten are plenty.
        for _ in 0..10 {
            let (mut w0, mut wr, mut wxx, mut wxr) = (0.0, 0.0, 0.0, 0.0);
            for r in rows {
                let x = r.log_us - center;
                let left = (r.ratio - line.offset - line.slope * x).abs();
                let w = if left > HUBER { HUBER / left } else { 1.0 };
                w0 += w;
                wr += w * (r.ratio - line.slope * x);
                wxx += w * x * x;
                wxr += w * x * (r.ratio - line.offset);
            }
            line.offset = ((wr + SHRINKAGE * parent) / (w0 + SHRINKAGE)).clamp(-LARGEST, LARGEST);
            if form == Form::Line {
                line.slope = (wxr / (wxx + SHRINKAGE)).clamp(-STEEPEST, STEEPEST);
            }
        }
        line
    }

    fn at(&self, log_us: f64) -> f64 {
        self.offset + self.slope * (log_us - self.center)
    }
}

/// The form that predicts unseen rows of a group best; the plainer one where the difference is not worth it.
fn choose(rows: &[Row], parent: f64) -> Form {
    let error = |form: Form| -> f64 {
        let mut sum = 0.0;
        for fold in 0..FOLDS {
            let seen: Vec<Row> = rows.iter().filter(|r| r.fold != fold).copied().collect();
            let line = Line::through(&seen, parent, form);
            sum += rows
                .iter()
                .filter(|r| r.fold == fold)
                .map(|r| (r.ratio - line.at(r.log_us)).abs())
                .sum::<f64>();
        }
        sum
    };
    let mut best = (Form::Nothing, error(Form::Nothing));
    for form in [Form::Offset, Form::Line] {
        let e = error(form);
        if e < best.1 * (1.0 - WORTH) {
            best = (form, e);
        }
    }
    best.0
}

fn fit_groups(rows: &[Row]) -> Vec<Group> {
    let all = Line::through(rows, 0.0, Form::Offset).offset;
    let mut groups = Vec::new();
    for family in Family::ALL {
        let members: Vec<Row> = rows.iter().filter(|r| r.family == family).copied().collect();
        if members.is_empty() {
            continue;
        }
        let family_form = if choose(&members, all) == Form::Nothing { Form::Nothing } else { Form::Offset };
        let whole = Line::through(&members, all, family_form);
        groups.push(group(family, None, &members, whole));
        for dtype in Dtype::MATH {
            let own: Vec<Row> = members.iter().filter(|r| r.dtype == dtype).copied().collect();
            if own.is_empty() {
                continue;
            }
            // A handful of rows cannot be cross-validated: they follow their family.
            let line = if own.len() < 2 * FOLDS {
                Line::through(&own, whole.offset, family_form)
            } else {
                Line::through(&own, whole.offset, choose(&own, whole.offset))
            };
            groups.push(group(family, Some(dtype), &own, line));
        }
    }
    groups
}

fn group(family: Family, dtype: Option<Dtype>, rows: &[Row], line: Line) -> Group {
    let ends = rows.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(r.log_us), h.max(r.log_us)));
    Group {
        family,
        dtype,
        rows: rows.len() as u32,
        offset: line.offset,
        slope: line.slope,
        center_us: line.center.exponential(),
        shortest_us: ends.0.exponential(),
        longest_us: ends.1.exponential(),
        interval: None,
    }
}

/// The exponent of a row, as `Correction::at` gives it.
fn exponent(groups: &[Group], row: &Row) -> f64 {
    let of = |dtype: Option<Dtype>| groups.iter().find(|g| g.family == row.family && g.dtype == dtype);
    of(Some(row.dtype)).or_else(|| of(None)).map_or(0.0, |g| g.exponent(row.log_us.exponential()))
}

fn score<'a>(family: &str, rows: impl Iterator<Item = &'a (Row, f64)>) -> HeldOut {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for (row, left) in rows {
        // ratio = ln(measured/predicted), so predicted/measured - 1 = exp(-ratio) - 1
        before.push(100.0 * ((-row.ratio).exponential() - 1.0).abs());
        after.push(100.0 * ((-left).exponential() - 1.0).abs());
    }
    let mean = |v: &[f64]| v.iter().sum::<f64>() / (v.len() as f64).max(1.0);
    HeldOut {
        family: family.to_string(),
        rows: before.len() as u32,
        before_mean_pct: mean(&before),
        after_mean_pct: mean(&after),
        before_median_pct: median(before),
        after_median_pct: median(after),
    }
}

fn median(values: Vec<f64>) -> f64 {
    quantile(values, 0.5)
}

/// The value below which a share of the values lies; the nearest one.
fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (share * (values.len().max(1) - 1) as f64).round() as usize;
    values.get(place).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::row;

    /// Products and row sums of many sizes, on the model itself.
    fn calls() -> Vec<OpCall> {
        let mut calls = Vec::new();
        for i in 0..40u64 {
            let n = 64 + 96 * i;
            calls
                .push(row::parse("mm", "fwd", "bf16", &format!(r#"{{"m":{n},"n":2048,"k":1024}}"#)).unwrap());
            calls.push(
                row::parse("softmax", "fwd", "fp32", &format!(r#"{{"rows":{},"cols":1024}}"#, 8 * n))
                    .unwrap(),
            );
        }
        calls
    }

    fn distorted(factor: impl Fn(&OpCall, f64) -> f64) -> (Vec<Measured>, TimeModel, Gpu) {
        let (model, gpu) = (TimeModel::embedded(), catalog::find("h200").unwrap());
        let rows = calls().into_iter().map(|call| {
            let t = model.predict(&call, &gpu).time;
            let time = t * factor(&call, t.us());
            Measured { call, time }
        });
        (rows.collect(), model.clone(), gpu)
    }

    #[test]
    fn a_constant_factor_is_found() {
        let (rows, model, gpu) = distorted(|call, _| if call.family() == Family::Gemm { 1.5 } else { 1.0 });
        let c = fit(&rows, &model, &gpu, "test").unwrap();
        let all = &c.held_out[0];
        // Half of the rows are a third too low before: |1/1.5 - 1| = 33.3 %, mean 16.7 %.
        assert!((all.before_mean_pct - 16.67).abs() < 0.1, "{all:?}");
        // 40 rows against a parent of 8 that says half of it: 40 / 48 of the way and more.
        assert!(all.after_mean_pct < 3.0, "{all:?}");
        let softmax = rows.iter().find(|r| r.call.family() == Family::Rowwise).unwrap();
        assert_eq!(c.at(&softmax.call, softmax.time).unwrap().factor, 1.0);
        // The file says the same after a trip through text.
        let text = serde_json::to_string(&c).unwrap();
        let back = Correction::parse(&text, "x").unwrap();
        assert_eq!(back.groups.len(), c.groups.len());
        // And a model that carries it predicts what was measured.
        let mended = model.clone().with_correction(back);
        let gemm = rows.iter().find(|r| r.call.family() == Family::Gemm).unwrap();
        let error = mended.predict(&gemm.call, &gpu).time / gemm.time - 1.0;
        assert!(error.abs() < 0.06, "{error}");
    }

    #[test]
    fn a_slope_is_found_and_a_right_model_is_left_alone() {
        let (rows, model, gpu) = distorted(|_, us| (0.15 * (us / 30.0).natural_log()).exponential());
        let c = fit(&rows, &model, &gpu, "test").unwrap();
        assert!(c.held_out[0].after_mean_pct < 0.3 * c.held_out[0].before_mean_pct, "{:?}", c.held_out[0]);
        let (rows, model, gpu) = distorted(|_, _| 1.0);
        let c = fit(&rows, &model, &gpu, "test").unwrap();
        assert!(c.groups.iter().all(|g| g.offset == 0.0 && g.slope == 0.0));
    }

    #[test]
    fn odd_rows_do_not_rule() {
        let (mut rows, model, gpu) = distorted(|_, _| 1.2);
        rows[3].time = rows[3].time * 50.0;
        let c = fit(&rows, &model, &gpu, "test").unwrap();
        let found = c.at(&rows[0].call, rows[0].time).unwrap().factor;
        assert!((found / 1.2 - 1.0).abs() < 0.05, "{found}");
    }

    #[test]
    fn too_few_rows_and_wrong_units_are_refused() {
        let (rows, model, gpu) = distorted(|_, _| 1.0);
        assert_eq!(fit(&rows[..23], &model, &gpu, ""), Err(FitError::Few { rows: 23 }));
        let (rows, model, gpu) = distorted(|_, _| 1e3);
        assert!(matches!(fit(&rows, &model, &gpu, ""), Err(FitError::Unlikely { .. })));
    }
}
