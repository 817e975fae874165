//! Which part of the recording is looked at: all of it, one step, or a range, on one device.

use super::attribution::{Attribution, Link, NONE};
use super::table::Cursor;
use super::{CallKind, GpuEvent, HostCall, Profile};
use std::collections::BTreeMap;

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Choice {
    /// One step, by the number in its mark.
    pub step: Option<u64>,
    /// A range in milliseconds from the first record.
    pub range_ms: Option<(f64, f64)>,
    /// A device; the busiest by default.
    pub device: Option<i32>,
    /// Leave out GPU work that no operator of the recording asked for.
    pub attributed_only: bool,
}

/// Why no window could be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// No GPU work with times.
    #[error("{0} holds no GPU kernel times")]
    NoGpuWork(String),
    /// No such step.
    #[error("no step {wanted} in the profile; it has {known}")]
    NoStep {
        /// Asked for.
        wanted: u64,
        /// What there is.
        known: String,
    },
    /// Nothing in the range.
    #[error("no GPU work between {start_ms} ms and {end_ms} ms; the recording spans {span_ms} ms")]
    EmptyRange {
        /// Asked for.
        start_ms: String,
        /// Asked for.
        end_ms: String,
        /// What there is.
        span_ms: String,
    },
    /// No work on the device.
    #[error("no GPU work on device {wanted}; the recording has {known}")]
    NoDevice {
        /// Asked for.
        wanted: i32,
        /// What there is.
        known: String,
    },
}

/// GPU events of a recording by number, in order. All of them take no list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chosen {
    /// So many, from the first on.
    All(u32),
    /// These.
    Listed(Vec<u32>),
}

impl Chosen {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::All(count) => *count as usize,
            Self::Listed(events) => events.len(),
        }
    }

    /// None?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The event at this place among them.
    pub fn get(&self, place: usize) -> Option<u32> {
        match self {
            Self::All(count) => u32::try_from(place).ok().filter(|place| place < count),
            Self::Listed(events) => events.get(place).copied(),
        }
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// Those of which a thing is true.
    fn filter(&self, mut is_true: impl FnMut(u32) -> bool) -> Self {
        Self::Listed(self.iter().filter(|i| is_true(*i)).collect())
    }
}

/// The part of the recording that is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Start, in nanoseconds.
    pub start_ns: i64,
    /// End, in nanoseconds.
    pub end_ns: i64,
    /// Iterations in it: steps marked by the profiler, or 1.
    pub iterations: u32,
    /// GPU events in it, on the device, by start.
    pub events: Chosen,
    /// Device.
    pub device: i32,
    /// Other devices with their busy time in nanoseconds.
    pub other_devices: Vec<(i32, i64)>,
}

impl Window {
    /// Length in nanoseconds.
    pub fn span_ns(&self) -> i64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// Steps that an error names.
const MOST_STEPS: usize = 20;

/// Prefix of the profiler's step marks.
const STEP: &str = "ProfilerStep#";

/// Number, start and end of the profiler's steps, in order.
pub fn steps(profile: &Profile) -> Vec<(u64, i64, i64)> {
    profile
        .marks
        .iter()
        .filter_map(|m| {
            let number = profile.names.text(m.name).strip_prefix(STEP)?.parse::<u64>().ok()?;
            Some((number, m.start_ns, m.start_ns.saturating_add(m.dur_ns)))
        })
        .collect()
}

/// Takes the window.
pub fn take(profile: &Profile, links: &Attribution, choice: &Choice) -> Result<Window, WindowError> {
    if profile.gpu_events.is_empty() {
        return Err(WindowError::NoGpuWork(format!("`{}`", profile.source)));
    }
    let mut busy: BTreeMap<i32, i64> = BTreeMap::new();
    for event in &profile.gpu_events {
        let busy = busy.entry(event.device).or_default();
        *busy = busy.saturating_add(event.dur_ns);
    }
    let busiest = busy.iter().max_by_key(|(_, t)| **t).map_or(0, |(d, _)| *d);
    let device = choice.device.unwrap_or(busiest);
    if !busy.contains_key(&device) {
        let known: Vec<String> = busy.keys().map(|d| format!("device {d}")).collect();
        return Err(WindowError::NoDevice { wanted: device, known: known.join(", ") });
    }
    let other_devices: Vec<(i32, i64)> = busy.into_iter().filter(|(d, _)| *d != device).collect();
    let attributed = |i: u32| matches!(links.links.at(i), Link::Operator(_));
    let all = Chosen::All(profile.gpu_events.len() as u32);
    let on_device = if other_devices.is_empty() && !choice.attributed_only {
        all
    } else {
        let mut records = profile.gpu_events.iter();
        all.filter(|i| records.at(i as usize).device == device && (!choice.attributed_only || attributed(i)))
    };
    if on_device.is_empty() {
        return Err(WindowError::NoGpuWork(format!(
            "`{}`, once unattributed work is left out,",
            profile.source
        )));
    }
    let steps = steps(profile);
    let (bounds, events, iterations) = if let Some(wanted) = choice.step {
        let Some(&(_, start, end)) = steps.iter().find(|s| s.0 == wanted) else {
            let mut numbers: Vec<String> = steps.iter().take(MOST_STEPS).map(|s| s.0.to_string()).collect();
            if steps.len() > MOST_STEPS {
                numbers.push(format!("and {} more", steps.len() - MOST_STEPS));
            }
            let known = if numbers.is_empty() { "none".to_string() } else { numbers.join(", ") };
            return Err(WindowError::NoStep { wanted, known });
        };
        // A step owns what it launched, even where that runs after its end.
        let mut launched = Launched { gpu_events: profile.gpu_events.iter(), calls: profile.calls.iter() };
        let events = on_device.filter(|i| (start..end).contains(&launched.ns(links, i)));
        if events.is_empty() {
            return Err(WindowError::NoGpuWork(format!("step {wanted} of `{}`", profile.source)));
        }
        (Some((start, end)), events, 1)
    } else if let Some((from, to)) = choice.range_ms {
        let (first, last) = recorded(profile);
        let [start, end] = [from, to].map(|ms| first.saturating_add((ms * 1e6) as i64));
        let mut records = profile.gpu_events.iter();
        let events = on_device.filter(|i| (start..end).contains(&records.at(i as usize).start_ns));
        if events.is_empty() {
            return Err(WindowError::EmptyRange {
                start_ms: from.to_string(),
                end_ms: to.to_string(),
                span_ms: format!("{:.3}", (last - first) as f64 / 1e6),
            });
        }
        (Some((start, end)), events, 1)
    } else if choice.attributed_only {
        (None, on_device, steps.len().max(1) as u32)
    } else if let (Some(first), Some(last)) = (steps.first(), steps.iter().map(|s| s.2).max()) {
        (Some((first.1, last)), on_device, steps.len() as u32)
    } else {
        (Some(recorded(profile)), on_device, 1)
    };
    // Events come by start.
    let gpu_start = events.get(0).map_or(0, |i| profile.gpu_events.at(i as usize).start_ns);
    let mut records = profile.gpu_events.iter();
    let gpu_end = events.iter().map(|i| records.at(i as usize).end_ns()).max().unwrap_or(0);
    // Steps and ranges begin where they are marked; the work of a whole recording may begin before its marks.
    let (start_ns, end_ns) = match bounds {
        None => (gpu_start, gpu_end),
        Some((start, end)) if choice.range_ms.is_some() => (start, end.min(gpu_end.max(start))),
        Some((start, end)) if choice.step.is_some() => (start, end.max(gpu_end)),
        Some((start, end)) => (start.min(gpu_start), end.max(gpu_end)),
    };
    Ok(Window { start_ns, end_ns, iterations, events, device, other_devices })
}

/// Looks up when events were launched.
struct Launched<'a> {
    gpu_events: Cursor<'a, GpuEvent>,
    calls: Cursor<'a, HostCall>,
}

impl Launched<'_> {
    /// When the host launched an event, or when it ran where no launch was recorded.
    fn ns(&mut self, links: &Attribution, event: u32) -> i64 {
        match links.calls[event as usize] {
            NONE => self.gpu_events.at(event as usize).start_ns,
            call => self.calls.at(call as usize).start_ns,
        }
    }
}

/// First start and last end of operators, launches and GPU events. Waits are left out: the profiler's own come last.
fn recorded(profile: &Profile) -> (i64, i64) {
    let ops = profile.ops.iter().map(|o| (o.start_ns, o.start_ns + o.dur_ns));
    let calls = profile.calls.iter().filter(|c| c.kind != CallKind::Sync);
    let calls = calls.map(|c| (c.start_ns, c.start_ns + c.dur_ns));
    let events = profile.gpu_events.iter().map(|e| (e.start_ns, e.end_ns()));
    ops.chain(calls).chain(events).reduce(|(a, b), (c, d)| (a.min(c), b.max(d))).unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::attribute;
    use crate::fixtures::{call, event, profile};
    use crate::{Mark, NameId};

    fn two_steps() -> Profile {
        let mut p = profile();
        for (i, start) in [(1, 0), (2, 1000)] {
            let name = p.names.add(&format!("ProfilerStep#{i}"));
            p.marks.push(Mark { start_ns: start, dur_ns: 1000, name, thread: NameId::EMPTY });
        }
        p.calls = vec![call(&mut p.names, 10, 5, 1), call(&mut p.names, 1010, 5, 2)].into();
        p.gpu_events =
            vec![event(&mut p.names, "a", 900, 300, 1), event(&mut p.names, "b", 1500, 900, 2)].into();
        p
    }

    #[test]
    fn all_steps_share_the_span() {
        let p = two_steps();
        let w = take(&p, &attribute(&p), &Choice::default()).unwrap();
        assert_eq!((w.span_ns(), w.iterations, w.events.len()), (2400, 2, 2));
    }

    #[test]
    fn a_step_owns_what_it_launched() {
        let p = two_steps();
        let w = take(&p, &attribute(&p), &Choice { step: Some(1), ..Choice::default() }).unwrap();
        assert_eq!((w.start_ns, w.end_ns, w.events), (0, 1200, Chosen::Listed(vec![0])));
        let e = take(&p, &attribute(&p), &Choice { step: Some(7), ..Choice::default() }).unwrap_err();
        assert_eq!(e.to_string(), "no step 7 in the profile; it has 1, 2");
    }
}
