//! The GPU time of an iteration, parted in five ways.

use super::analysis::Group;
use super::explain::Part;
use super::{Analysis, GpuEvent, KernelFamily};
use preflop_graph::Phase;
use preflop_units::dtype::Dtype;
use std::collections::BTreeMap;

/// Family of one event, of which its name tells `own`: layout conversions, copies and memsets of a library count as what they are, not
/// as the operator around them.
fn family_of(own: KernelFamily, group: &Group) -> KernelFamily {
    match own {
        KernelFamily::Layout | KernelFamily::Memset | KernelFamily::Memcpy | KernelFamily::Communication => {
            own
        }
        _ => group.family,
    }
}

/// Times and launches by a name of theirs.
#[derive(Default)]
struct Sums<'a> {
    places: BTreeMap<&'a str, usize>,
    each: Vec<(f64, u64)>,
    /// The last name and its place: kernels mostly come after their like.
    last: Option<(&'a str, usize)>,
}

impl<'a> Sums<'a> {
    fn add(&mut self, name: &'a str, event: &GpuEvent) {
        let place = match self.last {
            Some((last, place)) if last == name => place,
            _ => *self.places.entry(name).or_insert_with(|| {
                self.each.push((0.0, 0));
                self.each.len() - 1
            }),
        };
        self.last = Some((name, place));
        self.each[place].0 += event.dur_ns as f64 / 1e6;
        self.each[place].1 += 1;
    }

    /// Of `iterations`, for one; the longest first.
    fn parts(&self, iterations: f64) -> Vec<Part> {
        let sums = || self.places.iter().map(|(name, place)| (*name, self.each[*place]));
        let all: f64 = sums().map(|(_, (time, _))| time).sum();
        let mut parts: Vec<Part> = sums()
            .map(|(name, (time, count))| Part {
                name: name.to_string(),
                time_ms: time / iterations,
                share: if all > 0.0 { time / all } else { 0.0 },
                launches: count as f64 / iterations,
            })
            .collect();
        parts.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
        parts
    }
}

/// GPU time by family, number format, tensor-core use, pass and module class, of all events in one go.
pub fn all(analysis: &Analysis) -> [Vec<Part>; 5] {
    let [mut families, mut dtypes, mut tensor_cores, mut phases, mut modules] =
        [(); 5].map(|()| Sums::default());
    let has_modules = !analysis.profile.modules.is_empty();
    for (event, group) in analysis.events() {
        let class = analysis.class(&event);
        families.add(family_of(class.family, group).name(), &event);
        dtypes.add(group.dtype.map_or("unknown", Dtype::name), &event);
        tensor_cores.add(if class.tensor_core { "tensor cores" } else { "other units" }, &event);
        phases.add(group.phase.map_or("unattributed", Phase::name), &event);
        if has_modules {
            modules.add(module_class(analysis.profile.names.text(group.module)), &event);
        }
    }
    [families, dtypes, tensor_cores, phases, modules].map(|sums| sums.parts(analysis.iterations()))
}

/// Instances of one class together: `Linear_3` -> `Linear`.
fn module_class(name: &str) -> &str {
    let name = name.strip_prefix("nn.Module: ").unwrap_or(name);
    match name.rsplit_once('_') {
        Some((class, number)) if number.bytes().all(|b| b.is_ascii_digit()) => class,
        _ if name.is_empty() => "(none)",
        _ => name,
    }
}
