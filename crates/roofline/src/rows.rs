//! The table of a Roofline: operators of an iteration, grouped as asked, with their share of the time.

use super::bounds::{Bounds, Class, Work};
use super::machine::{Machine, Pipe};
use preflop_gpu::Gpu;
use preflop_graph::Iteration;
use preflop_schedule::IterationPrediction;
use preflop_units::{Flops, Seconds};
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

/// One piece of work in its place: a call of an operator, or a kernel of a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Layer path, such as `layer1.0.conv2`; empty where nobody knows.
    pub layer: String,
    /// Operator or kernel, such as `conv2d dgrad`.
    pub op: String,
    /// What makes two entries the same operator: name, shape, direction, format.
    pub identity: String,
    /// Family, such as `conv`.
    pub family: String,
    /// Part of the iteration, such as `forward`.
    pub phase: String,
    /// Number format.
    pub dtype: String,
    /// Calls.
    pub count: f64,
    /// Work of all its calls.
    pub work: Work,
}

/// How entries are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// Not at all.
    Call,
    /// Calls of one operator with one shape.
    Operator,
    /// Everything of a layer.
    Layer,
    /// Everything below the first two names of the layer path.
    Module,
    /// Everything of a family.
    Family,
    /// Everything.
    Model,
}

impl By {
    /// All, finest first.
    pub const ALL: [Self; 6] =
        [Self::Call, Self::Operator, Self::Layer, Self::Module, Self::Family, Self::Model];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Operator => "operator",
            Self::Layer => "layer",
            Self::Module => "module",
            Self::Family => "family",
            Self::Model => "model",
        }
    }

    fn key(self, index: usize, entry: &Entry) -> String {
        match self {
            Self::Call => index.to_string(),
            Self::Operator => entry.identity.clone(),
            Self::Layer => entry.layer.clone(),
            Self::Module => module_of(&entry.layer),
            Self::Family => entry.family.clone(),
            Self::Model => String::new(),
        }
    }
}

/// `layer1.0` of `layer1.0.conv2`.
fn module_of(layer: &str) -> String {
    layer.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// A row: some entries put together.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is called at this grouping.
    pub name: String,
    /// Operator, or how many different ones.
    pub op: String,
    /// Family, or `mixed`.
    pub family: String,
    /// Part of the iteration, or `mixed`.
    pub phase: String,
    /// Number format, or `mixed`.
    pub dtype: String,
    /// Calls.
    pub count: f64,
    /// Work of all calls.
    pub work: Work,
    /// Bounds of all calls.
    pub bounds: Bounds,
    /// Share of the time of all rows, from 0 to 1.
    pub share: f64,
}

/// Work without FLOPs: casts, copies, look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ZeroFlop {
    /// Rows.
    pub rows: usize,
    /// Share of launches, from 0 to 1.
    pub launch_share: f64,
    /// Share of the time, from 0 to 1.
    pub time_share: f64,
}

/// Sums over the rows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Everything together.
    pub work: Work,
    /// Share of time by class: compute, memory, overhead. With the unknown they add up to 1.
    pub class_shares: [f64; 3],
    /// Share of the time of work that nobody knows: recorded without shapes and counters.
    pub unknown_share: f64,
    /// Work without FLOPs.
    pub zero_flop: ZeroFlop,
    /// Rows above a roof.
    pub above_roof: usize,
}

/// The rows, largest share first.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Largest share of time first.
    pub rows: Vec<Row>,
    /// Sums.
    pub summary: Summary,
    /// Calls of an iteration that were put together; launches that no operator asked for are one each.
    pub entries: usize,
}

/// The entries of a predicted iteration.
pub fn entries_of_iteration(
    iteration: &Iteration,
    prediction: &IterationPrediction,
    gpu: &Gpu,
) -> Vec<Entry> {
    let entry = |p: &preflop_schedule::StepPrediction| {
        let step = iteration.steps.get(p.step)?;
        let one = &p.one;
        let pipe = Pipe::of_call(&step.call, gpu);
        let flops = if one.flops > Flops::ZERO { vec![(pipe, one.flops)] } else { Vec::new() };
        let work = Work {
            flops,
            bytes: [one.dram, one.l2, one.l1].map(Some),
            launches: one.launches,
            time: one.time,
        };
        let pass = step.call.pass.name();
        let op =
            if pass == "fwd" { step.call.name().to_string() } else { format!("{} {pass}", step.call.name()) };
        Some(Entry {
            layer: step.name.clone(),
            identity: serde_json::to_string(&step.call).unwrap_or_else(|_| op.clone()),
            op,
            family: step.call.family().name().to_string(),
            phase: step.phase.name().to_string(),
            dtype: gpu.runs_in(step.call.dtype).name().to_string(),
            count: p.count,
            work: work.times(p.count),
        })
    };
    prediction.steps.iter().filter_map(entry).collect()
}

/// Entries being put together.
struct Group<'a> {
    first: &'a Entry,
    ops: Vec<&'a str>,
    mixed: [bool; 3],
    layers: usize,
    count: f64,
    work: Work,
}

impl<'a> Group<'a> {
    fn new(entry: &'a Entry) -> Self {
        let work = entry.work.clone();
        Self { first: entry, ops: vec![&entry.op], mixed: [false; 3], layers: 1, count: entry.count, work }
    }

    fn add(&mut self, entry: &'a Entry) {
        if !self.ops.contains(&entry.op.as_str()) {
            self.ops.push(&entry.op);
        }
        self.mixed[0] |= entry.family != self.first.family;
        self.mixed[1] |= entry.phase != self.first.phase;
        self.mixed[2] |= entry.dtype != self.first.dtype;
        self.layers += usize::from(entry.layer != self.first.layer);
        self.count += entry.count;
        self.work.add(&entry.work);
    }

    fn row(self, by: By, machine: &Machine, total: Seconds) -> Row {
        let first = self.first;
        let place = if first.layer.is_empty() { &first.op } else { &first.layer };
        let name = match by {
            By::Layer | By::Module if first.layer.is_empty() && self.ops.len() > 1 => {
                "(no layer)".to_string()
            }
            By::Operator if self.layers > 1 => format!("{place} +{}", self.layers - 1),
            By::Call | By::Operator | By::Layer => place.clone(),
            By::Module => module_of(place),
            By::Family => first.family.clone(),
            By::Model => "all".to_string(),
        };
        let op = match self.ops.as_slice() {
            [one] => (*one).to_string(),
            many => format!("{} operators", many.len()),
        };
        let or_mixed = |text: &str, mixed: bool| if mixed { "mixed".to_string() } else { text.to_string() };
        let bounds = self.work.bounds(machine);
        Row {
            name,
            op,
            family: or_mixed(&first.family, self.mixed[0]),
            phase: or_mixed(&first.phase, self.mixed[1]),
            dtype: or_mixed(&first.dtype, self.mixed[2]),
            count: self.count,
            share: if total > Seconds::ZERO { self.work.time / total } else { 0.0 },
            work: self.work,
            bounds,
        }
    }
}

impl Rows {
    /// Puts entries together.
    pub fn new(entries: &[Entry], by: By, machine: &Machine) -> Self {
        let mut groups: Vec<Group> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (i, entry) in entries.iter().enumerate() {
            match places.entry(by.key(i, entry)) {
                Slot::Occupied(place) => groups[*place.get()].add(entry),
                Slot::Vacant(place) => {
                    place.insert(groups.len());
                    groups.push(Group::new(entry));
                }
            }
        }
        let total: Seconds = entries.iter().map(|e| e.work.time).sum();
        let mut rows: Vec<Row> = groups.into_iter().map(|g| g.row(by, machine, total)).collect();
        rows.sort_by(|a, b| b.share.total_cmp(&a.share));
        let summary = summary(entries, &rows, machine, total);
        let calls: f64 = entries.iter().map(|e| e.count).sum();
        Self { rows, summary, entries: calls.round() as usize }
    }
}

impl Rows {
    /// At most `most` rows as they are, and the others put together by family; how many those are.
    pub fn limited(&self, most: usize) -> (Vec<Row>, usize) {
        let kept = self.rows.len().min(most);
        let mut rows = self.rows[..kept].to_vec();
        let rest = &self.rows[kept..];
        for row in rest {
            let unknown = row.work.is_unknown();
            match rows[kept..].iter_mut().find(|r| r.family == row.family && r.work.is_unknown() == unknown) {
                Some(group) => {
                    group.work.add(&row.work);
                    group.bounds.add(&row.bounds);
                    group.count += row.count;
                    group.share += row.share;
                }
                None => rows.push(Row {
                    name: format!("small rows of {}", row.family),
                    op: "several".to_string(),
                    phase: "mixed".to_string(),
                    dtype: "mixed".to_string(),
                    ..row.clone()
                }),
            }
        }
        (rows, rest.len())
    }
}

fn summary(entries: &[Entry], rows: &[Row], machine: &Machine, total: Seconds) -> Summary {
    let mut work = Work { bytes: [Some(preflop_units::Bytes::ZERO); 3], ..Work::default() };
    let mut class_shares = [0.0; 3];
    let mut zero = (Seconds::ZERO, 0.0);
    let mut unknown = Seconds::ZERO;
    for entry in entries {
        work.add(&entry.work);
        if entry.work.is_unknown() {
            unknown += entry.work.time;
            continue;
        }
        let class = entry.work.bounds(machine).class();
        class_shares[class as usize] += entry.work.time.0;
        if entry.work.total_flops() == Flops::ZERO {
            zero.0 += entry.work.time;
            zero.1 += entry.work.launches;
        }
    }
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    Summary {
        class_shares: class_shares.map(|s| share(s, total.0)),
        unknown_share: share(unknown.0, total.0),
        zero_flop: ZeroFlop {
            rows: rows.iter().filter(|r| r.is_zero_flop()).count(),
            launch_share: share(zero.1, work.launches),
            time_share: share(zero.0.0, total.0),
        },
        above_roof: rows.iter().filter(|r| !r.bounds.passed(r.work.time).is_empty()).count(),
        work,
    }
}

impl Row {
    /// The class of the three bounds; `None` where the work is unknown.
    pub fn class(&self) -> Option<Class> {
        (!self.work.is_unknown()).then(|| self.bounds.class())
    }

    /// Its name, `unknown` where there is none.
    pub fn class_name(&self) -> &'static str {
        self.class().map_or("unknown", Class::name)
    }

    /// Known to compute nothing: a cast, a copy, a look-up.
    pub fn is_zero_flop(&self) -> bool {
        self.work.total_flops() == Flops::ZERO && !self.work.is_unknown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_graph::{LowerOptions, Mode, Precision, zoo};
    use preflop_lower::lower;
    use preflop_schedule::Schedule as _;
    use preflop_time::TimeModel;

    fn entries() -> (Vec<Entry>, Machine) {
        let gpu = catalog::find("h200").unwrap();
        let graph = zoo::build("resnet50", Some(8), None).unwrap();
        let options = LowerOptions { mode: Mode::Train, precision: Precision::Amp, optimizer: None };
        let iteration = lower(&graph, &options).unwrap();
        let prediction = TimeModel::embedded().predict_iteration(&iteration, &gpu);
        (entries_of_iteration(&iteration, &prediction, &gpu), Machine::of(&gpu))
    }

    #[test]
    fn groupings_keep_the_sums() {
        let (entries, machine) = entries();
        let all = Rows::new(&entries, By::Model, &machine);
        assert_eq!(all.rows.len(), 1);
        for by in By::ALL {
            let rows = Rows::new(&entries, by, &machine);
            let time: Seconds = rows.rows.iter().map(|r| r.work.time).sum();
            let flops: Flops = rows.rows.iter().map(|r| r.work.total_flops()).sum();
            let share: f64 = rows.rows.iter().map(|r| r.share).sum();
            assert!((time / all.rows[0].work.time - 1.0).abs() < 1e-9, "{by:?}");
            assert!((flops / all.rows[0].work.total_flops() - 1.0).abs() < 1e-9, "{by:?}");
            assert!((share - 1.0).abs() < 1e-9, "{by:?}");
            assert!((rows.summary.class_shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn too_many_rows_are_put_together_by_family() {
        let (entries, machine) = entries();
        let rows = Rows::new(&entries, By::Call, &machine);
        let (limited, merged) = rows.limited(10);
        assert_eq!(merged, rows.rows.len() - 10);
        assert!(limited.len() <= 10 + preflop_ops::Family::ALL.len());
        let share: f64 = limited.iter().map(|r| r.share).sum();
        assert!((share - 1.0).abs() < 1e-9);
        let last = &limited[limited.len() - 1];
        let again = last.work.bounds(&machine);
        assert!((last.bounds.compute.0 - again.compute.0).abs() <= 1e-12);
    }

    #[test]
    fn a_hundred_thousand_kernels_become_few_rows() {
        let (entries, machine) = entries();
        let many: Vec<Entry> = entries.iter().cycle().take(100_000).cloned().collect();
        let rows = Rows::new(&many, By::Operator, &machine);
        assert_eq!(rows.entries, 100_000);
        assert!(rows.rows.len() < 1000, "{}", rows.rows.len());
        let calls: Vec<Entry> = many
            .into_iter()
            .enumerate()
            .map(|(i, e)| Entry { identity: format!("{} {i}", e.identity), ..e })
            .collect();
        let (limited, merged) = Rows::new(&calls, By::Operator, &machine).limited(2000);
        assert!(limited.len() <= 2000 + preflop_ops::Family::ALL.len());
        assert_eq!(merged, 98_000);
    }

    #[test]
    fn casts_and_copies_have_no_flops() {
        let (entries, machine) = entries();
        let rows = Rows::new(&entries, By::Operator, &machine);
        let zero = rows.summary.zero_flop;
        assert!(zero.rows > 0 && zero.launch_share > 0.0 && zero.time_share < 1.0, "{zero:?}");
        assert!(rows.rows.iter().any(|r| r.name.contains(" +")));
        assert_eq!(module_of("layer1.0.conv2"), "layer1.0");
        assert_eq!(module_of("fc"), "fc");
    }
}
