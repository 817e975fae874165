//! How a window splits: computing, exposed communication and copies, and idle time by its cause.

use super::attribution::{Attribution, NONE};
use super::window::Window;
use super::{CallKind, GpuEvent, GpuKind, KernelFamily, Profile};
use preflop_units::Seconds;
use serde::Serialize;

/// A half-open interval in nanoseconds.
type Interval = (i64, i64);

/// Merges intervals that come by start into disjoint ones, one at a time: a recording has millions.
pub fn merged(by_start: impl Iterator<Item = Interval>) -> impl Iterator<Item = Interval> {
    let mut rest = by_start.filter(|(a, b)| b > a).peekable();
    std::iter::from_fn(move || {
        let (start, mut end) = rest.next()?;
        while let Some((_, b)) = rest.next_if(|(a, _)| *a <= end) {
            end = end.max(b);
        }
        Some((start, end))
    })
}

/// Merges intervals into disjoint ones, by start.
pub fn union(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    merged(intervals.into_iter()).collect()
}

/// Length of disjoint intervals.
pub fn length(intervals: impl Iterator<Item = Interval>) -> i64 {
    intervals.map(|(a, b)| b - a).sum()
}

/// Disjoint intervals by start, asked for what they share with others that come by start too.
struct Shared<'a> {
    left: &'a [Interval],
}

impl Shared<'_> {
    /// Length of what an interval shares with them.
    fn with(&mut self, (start, end): Interval) -> i64 {
        let passed = self.left.iter().take_while(|(_, b)| *b <= start).count();
        self.left = &self.left[passed..];
        let here = self.left.iter().take_while(|(a, _)| *a < end);
        here.map(|(a, b)| end.min(*b) - start.max(*a)).sum()
    }
}

/// Time covered by intervals that come by start.
#[derive(Default)]
struct Covered {
    length: i64,
    end: Option<i64>,
}

impl Covered {
    fn add(&mut self, (a, b): Interval) {
        let from = self.end.map_or(a, |end| end.max(a));
        if b > from {
            self.length += b - from;
            self.end = Some(b);
        }
    }
}

/// The GPU's time between its first and its last event: what ran, and what ran alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timeline {
    /// First start to last end.
    pub total_ms: f64,
    /// Some kernel or memset that is not communication runs.
    pub computation_ms: f64,
    /// Only communication runs.
    pub exposed_communication_ms: f64,
    /// Only copies run.
    pub exposed_memcpy_ms: f64,
    /// Anything runs.
    pub busy_ms: f64,
    /// Nothing runs.
    pub idle_ms: f64,
    /// Communication, hidden or not.
    pub communication_ms: f64,
    /// Copies, hidden or not.
    pub memcpy_ms: f64,
}

fn ms(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Splits the GPU's time. The events come by start, each with what its kernel is.
pub fn split(events: impl Iterator<Item = (GpuEvent, KernelFamily)>) -> Timeline {
    let [mut compute, mut communication, mut copies, mut all, mut without_copies] =
        [(); 5].map(|()| Covered::default());
    let (mut first, mut last) = (None, i64::MIN);
    for (event, family) in events {
        let interval = (event.start_ns, event.end_ns());
        first.get_or_insert(interval.0);
        last = last.max(interval.1);
        all.add(interval);
        if event.kind.is_copy() {
            copies.add(interval);
            continue;
        }
        without_copies.add(interval);
        let family = if family == KernelFamily::Communication { &mut communication } else { &mut compute };
        family.add(interval);
    }
    let (first, last) = first.map_or((0, 0), |first| (first, last));
    let [compute, communication, copies] = [compute, communication, copies].map(|c| c.length);
    let (busy, without_copies) = (all.length, without_copies.length);
    Timeline {
        total_ms: ms(last - first),
        computation_ms: ms(compute),
        exposed_communication_ms: ms(without_copies - compute),
        exposed_memcpy_ms: ms(busy - without_copies),
        busy_ms: ms(busy),
        idle_ms: ms(last - first - busy),
        communication_ms: ms(communication),
        memcpy_ms: ms(copies),
    }
}

/// Time in the window when the GPU does nothing, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Idle {
    /// The next kernel was not launched yet: the host was busy elsewhere.
    pub host_bound_ms: f64,
    /// The next kernel was launched but had not started: launch latency.
    pub launch_gaps_ms: f64,
    /// The host waited for the GPU and had nothing queued.
    pub sync_ms: f64,
    /// The next work was communication, waited for.
    pub communication_ms: f64,
}

impl Idle {
    /// All causes together.
    pub fn total_ms(&self) -> f64 {
        self.host_bound_ms + self.launch_gaps_ms + self.sync_ms + self.communication_ms
    }
}

/// Intervals in the window in which something runs on the GPU.
pub fn busy(profile: &Profile, window: &Window) -> impl Iterator<Item = Interval> {
    let mut records = profile.gpu_events.iter();
    let events = window.events.iter().map(move |i| records.at(i as usize));
    merged(events.map(|e| (e.start_ns.max(window.start_ns), e.end_ns().min(window.end_ns))))
}

/// Intervals in the window in which the host waits for the GPU: calls that synchronise, and launches that block
/// because the queue is full.
///
/// A launch call counts as blocked beyond `BLOCKED_LAUNCH` times the median launch.
pub fn waits(profile: &Profile, window: &Window) -> Vec<Interval> {
    let median = median_launch_ns(profile);
    let inside = |start: i64, end: i64| (start.max(window.start_ns), end.min(window.end_ns));
    union(
        profile
            .calls
            .iter()
            .filter_map(|c| {
                let end = c.start_ns.saturating_add(c.dur_ns);
                match c.kind {
                    CallKind::Sync => Some(inside(c.start_ns, end)),
                    _ if c.dur_ns > median.saturating_mul(BLOCKED_LAUNCH) => {
                        Some(inside(c.start_ns.saturating_add(median), end))
                    }
                    _ => None,
                }
            })
            .collect(),
    )
}

/// How many median launches make a blocked one. A launch takes 3-10 us; one that fills a queue of a thousand
/// entries waits for a kernel to end, which is told apart from a page fault or a lock only by its length.
pub(super) const BLOCKED_LAUNCH: i64 = 50;

/// Median duration of the launch calls.
pub fn median_launch_ns(profile: &Profile) -> i64 {
    let launches = || {
        profile.calls.iter().filter(|c| c.kind == CallKind::Launch).map(|c| c.dur_ns.max(0).cast_unsigned())
    };
    middle(launches).cast_signed()
}

/// The number in the middle of those that `numbers` gives each time, 0 of none. They are counted by their digits, the highest
/// first: a list of millions takes more memory than their recording.
fn middle<I: Iterator<Item = u64>>(numbers: impl Fn() -> I) -> u64 {
    const DIGIT_BITS: u32 = 16;
    let (count, largest) = numbers().fold((0_u64, 0), |(n, most), number| (n + 1, most.max(number)));
    let mut before = count / 2;
    let digits = (u64::BITS - largest.leading_zeros()).div_ceil(DIGIT_BITS);
    let mut found = 0_u64;
    for digit in (0..digits).rev() {
        let shift = digit * DIGIT_BITS;
        // Digits above this one; there are none above the highest of 64 bits.
        let above = |n: u64| n.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        let mut counts = vec![0_u64; 1 << DIGIT_BITS];
        for number in numbers().filter(|n| above(*n) == above(found)) {
            counts[(number >> shift) as usize % (1 << DIGIT_BITS)] += 1;
        }
        for (value, count) in counts.into_iter().enumerate() {
            if before < count {
                found |= (value as u64) << shift;
                break;
            }
            before -= count;
        }
    }
    found
}

/// Time of the host's own work in one iteration of the window: all of it, less the waits.
pub fn host_time(profile: &Profile, window: &Window) -> Seconds {
    let own = window.span_ns() - length(waits(profile, window).into_iter());
    Seconds(own.max(0) as f64 / 1e9 / f64::from(window.iterations.max(1)))
}

/// Splits the idle time of the window.
pub fn idle(
    profile: &Profile,
    window: &Window,
    links: &Attribution,
    family: impl Fn(&GpuEvent) -> KernelFamily,
) -> Idle {
    let waits = waits(profile, window);
    let mut waits = Shared { left: &waits };
    // A gap lies between the end of one busy time and the start of the next.
    let mut from = window.start_ns;
    let ends = busy(profile, window).chain([(window.end_ns, window.end_ns)]);
    let gaps = ends.map(|(a, b)| (std::mem::replace(&mut from, b), a));
    let mut idle = [0_i64; 4];
    let mut next = 0;
    let (mut records, mut calls) = (profile.gpu_events.iter(), profile.calls.iter());
    for gap in gaps.filter(|(a, b)| b > a) {
        while window.events.get(next).is_some_and(|i| records.at(i as usize).start_ns < gap.1) {
            next += 1;
        }
        let waiting = waits.with(gap);
        let rest = gap.1 - gap.0 - waiting;
        match window.events.get(next) {
            Some(event) if family(&records.at(event as usize)) == KernelFamily::Communication => {
                idle[3] += rest;
            }
            Some(event) => {
                let launch = match links.calls[event as usize] {
                    NONE => gap.0,
                    call => calls.at(call as usize).start_ns,
                };
                let late = (launch.min(gap.1) - gap.0).clamp(0, rest);
                idle[0] += late;
                idle[1] += rest - late;
            }
            // After the last kernel only the host is at work.
            None => idle[0] += rest,
        }
        idle[2] += waiting;
    }
    let [host_bound_ms, launch_gaps_ms, sync_ms, communication_ms] = idle.map(ms);
    Idle { host_bound_ms, launch_gaps_ms, sync_ms, communication_ms }
}

/// Share of the window in which some thread of the host runs an operator or a call that is no wait.
pub fn host_utilisation(profile: &Profile, window: &Window) -> f64 {
    let clip = |a: i64, b: i64| (a.max(window.start_ns), b.min(window.end_ns));
    let ops = profile.ops.iter().map(|o| clip(o.start_ns, o.start_ns.saturating_add(o.dur_ns)));
    let calls = profile.calls.iter().map(|c| clip(c.start_ns, c.start_ns.saturating_add(c.dur_ns)));
    let waits = waits(profile, window);
    let mut waits = Shared { left: &waits };
    let own = merged(by_start(ops, calls)).map(|active| active.1 - active.0 - waits.with(active));
    own.sum::<i64>().max(0) as f64 / (window.span_ns().max(1)) as f64
}

/// Two lists of intervals by start as one.
fn by_start(
    one: impl Iterator<Item = Interval>,
    other: impl Iterator<Item = Interval>,
) -> impl Iterator<Item = Interval> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(a), Some(b)) if b.0 < a.0 => other.next(),
        (Some(_), _) => one.next(),
        (None, _) => other.next(),
    })
}

/// Is a memset or copy what the host's copy engine does, rather than a kernel?
pub fn engine_family(kind: GpuKind) -> Option<KernelFamily> {
    match kind {
        GpuKind::Kernel => None,
        GpuKind::Memset => Some(KernelFamily::Memset),
        _ => Some(KernelFamily::Memcpy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::attribute;
    use crate::fixtures::{call, event, profile};
    use crate::window::{Choice, take};

    #[test]
    fn unions_and_overlaps() {
        let u = union(vec![(5, 9), (0, 3), (2, 4), (9, 10)]);
        assert_eq!(u, vec![(0, 4), (5, 10)]);
        assert_eq!(length(u.iter().copied()), 9);
        let mut shared = Shared { left: &u };
        assert_eq!([(3, 6), (6, 7), (8, 20), (21, 22)].map(|i| shared.with(i)), [2, 1, 2, 0]);
        // One that reaches over several.
        assert_eq!(Shared { left: &u }.with((-5, 50)), 9);
        let both: Vec<_> = by_start([(0, 3), (5, 9)].into_iter(), [(2, 4), (9, 10)].into_iter()).collect();
        assert_eq!(both, [(0, 3), (2, 4), (5, 9), (9, 10)]);
    }

    proptest::proptest! {
        #[test]
        fn the_middle_is_that_of_a_sorted_list(mut numbers: Vec<u64>, small in proptest::collection::vec(0_u64..100_000, 0..9)) {
            numbers.extend(small);
            let found = middle(|| numbers.iter().copied());
            numbers.sort_unstable();
            proptest::prop_assert_eq!(found, numbers.get(numbers.len() / 2).copied().unwrap_or(0));
        }
    }

    #[test]
    fn idle_by_cause() {
        let mut p = profile();
        // Launch at 0, kernel 10-20; next launched at 50 (host-bound 30), starts at 60 (launch gap 10).
        p.calls = vec![call(&mut p.names, 0, 5, 1), call(&mut p.names, 50, 5, 2)].into();
        p.gpu_events = vec![event(&mut p.names, "a", 10, 10, 1), event(&mut p.names, "b", 60, 10, 2)].into();
        let links = attribute(&p);
        let w = take(&p, &links, &Choice::default()).unwrap();
        let i = idle(&p, &w, &links, |_| KernelFamily::Other);
        // Before the first kernel: launched at 0, so 10 of latency.
        assert_eq!((i.host_bound_ms * 1e6, i.launch_gaps_ms * 1e6), (30.0, 20.0));
        assert_eq!(i.total_ms() * 1e6 + 20.0, w.span_ns() as f64);
    }

    #[test]
    fn exposed_communication_is_what_nothing_hides() {
        let mut p = profile();
        let compute = event(&mut p.names, "k", 0, 10, 0);
        let comm = event(&mut p.names, "nccl", 5, 10, 0);
        let copy = GpuEvent { kind: GpuKind::CopyHost, ..event(&mut p.names, "m", 20, 5, 0) };
        let t = split(
            [
                (compute, KernelFamily::Gemm),
                (comm, KernelFamily::Communication),
                (copy, KernelFamily::Memcpy),
            ]
            .into_iter(),
        );
        let ns = |ms: f64| (ms * 1e6).round() as i64;
        assert_eq!(
            [t.total_ms, t.computation_ms, t.exposed_communication_ms, t.exposed_memcpy_ms, t.idle_ms]
                .map(ns),
            [25, 10, 5, 5, 5]
        );
    }
}
