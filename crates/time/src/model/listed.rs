//! Times of listed operators: their form with the constants of its class, as measured.

use self::fitted::classes;
use super::draft::{Draft, Question, Sketch, Then};
use super::{LogInterval, TimeModel};
use crate::evidence::{Evidence, Library};
use crate::operator::Bound;
use preflop_gpu::Gpu;
use preflop_kernels::listed::{GENERIC, TERMS, class, counts, features, forest, form, terms};
use preflop_kernels::traffic;
use preflop_learned::trees::Features;
use preflop_ops::{Listed, OpCall};

/// What we say of a class that nobody measured.
const UNMEASURED: LogInterval = LogInterval { low: -1.1, high: 1.6 };

#[derive(Debug, Clone, Copy, PartialEq)]
struct Class {
    constants: [f64; TERMS],
    spread: [f64; 2],
}

/// The fitted classes in the order of their names, laid out by `build.rs` of `data/fitted/operators.toml`.
#[allow(clippy::unreadable_literal)]
mod fitted {
    use super::Class;

    include!(concat!(env!("OUT_DIR"), "/operators.rs"));

    pub(super) fn classes() -> &'static [(&'static str, Class)] {
        CLASSES
    }
}

/// Constants and interval of a class; of the same way at another width of elements, or of another way of the operator, where it was not measured.
fn constants(key: &str) -> ([f64; TERMS], LogInterval) {
    let all = classes();
    let interval = |c: &Class| LogInterval { low: c.spread[0], high: c.spread[1] };
    if let Ok(own) = all.binary_search_by(|(name, _)| (*name).cmp(key)) {
        return (all[own].1.constants, interval(&all[own].1));
    }
    let way = key.rfind('/').map_or(key, |at| &key[..=at]);
    let operator: String = key.split_inclusive('/').take(2).collect();
    let near = [way, operator.as_str()].into_iter().find_map(|start| {
        let first = all.partition_point(|(name, _)| *name < start);
        all.get(first).filter(|(name, _)| name.starts_with(start)).map(|(_, c)| c)
    });
    near.map_or((GENERIC, UNMEASURED), |c| {
        let own = interval(c);
        (c.constants, LogInterval { low: own.low.min(-0.5), high: own.high.max(0.7) })
    })
}

/// Seconds of a listed operator on a GPU by its form alone, and what the correction looks at.
pub fn listed_form(o: &Listed, call: &OpCall, gpu: &Gpu) -> (f64, Features) {
    let (constants, _) = constants(&class(o, call));
    let terms = terms(o, call, gpu);
    (form(&constants, &terms), features(o, call, &constants, &terms, gpu))
}

/// Class of the interval of a listed operator.
pub fn listed_class(o: &Listed) -> String {
    format!("listed/{}", o.kind.name())
}

impl TimeModel {
    pub(super) fn listed<'a>(&'a self, o: &Listed, call: &OpCall, gpu: &'a Gpu) -> Sketch<'a> {
        let (constants, own) = constants(&class(o, call));
        let counts = counts(o, call);
        let here = terms(o, call, gpu);
        let part = |i: usize| constants[i] * here[i];
        let Evidence { reference, nearness } = self.references.nearest(Library::Own, None, gpu);
        let parts = [
            (part(0) + part(4) + part(5), Bound::Latency),
            (part(1), Bound::Dram),
            (part(2), Bound::L2),
            (part(3) + part(6), Bound::Compute),
        ];
        let largest = parts.into_iter().fold((0.0, Bound::Latency), |a, b| if b.0 > a.0 { b } else { a });
        let (at, x) = listed_form(o, call, reference);
        let own = self.fitted.interval_of(&listed_class(o)).unwrap_or(own);
        let draft = Draft {
            reference: form(&constants, &here),
            at,
            correction: 0.0,
            interval: self.on(own, call.family(), nearness),
            bound: largest.1,
            levels: traffic::streaming(call.traffic(), gpu),
            launches: counts.launches.round().max(1.0),
            abreast: 1.0,
        };
        let forest = self.fitted.forest(forest(o.kind));
        let question = Question::new(forest, &x);
        Sketch { draft, question, then: Then::trusted(Self::trust(gpu, nearness), 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::{ListedKind, row};

    #[test]
    fn every_operator_of_the_table_was_measured() {
        for kind in ListedKind::ALL {
            let start = format!("{}/", kind.name());
            assert!(classes().iter().any(|(k, _)| k.starts_with(&start)), "{start}");
        }
    }

    #[test]
    fn a_singular_value_decomposition_is_no_copy() {
        let (model, gpu) = (TimeModel::embedded(), catalog::find("h200").unwrap());
        let call = row::parse("svd", "fwd", "fp32", r#"{"rows":1,"n":384}"#).unwrap();
        // Measured: 11.0 ms of kernels; its bytes alone would take 2 us.
        let one = model.predict(&call, &gpu);
        assert!(one.time.ms() > 3.0 && one.low.ms() < 11.0 && one.high.ms() > 11.0, "{one:?}");
    }
}
