//! Inside a switched node: the lower envelope of three lines.
//!
//! NCCL picks among protocols (LL, LL128, Simple) and algorithms (ring, tree, NVLS); each is latency + bytes / bandwidth
//! (`src/graph/tuning.cc` of NCCL), so the measured curve is their lower envelope:
//!
//! ```text
//! t(c, n, S) = softmin_p [ a_p + h_p * steps(c, n) + S * f(c, n) / (phi_p * min(n, 8)^e_p * B) ]
//! softmin(x) = (sum x^-8)^(-1/8)
//! ```
//!
//! Where S is bytes, n GPUs, B the link bandwidth of a GPU in one direction, a and h seconds, phi and e numbers. n counts to 8
//! only: the exponents were fitted on 2 to 8, and uncapped they are 19-32 % off in a domain of 72.
//! A generation that was not fitted takes the geometric mean of the fitted ones with its own B; latencies are carried in
//! clock cycles, since the code that polls the flags of a step runs on the SMs (left out by turns: 13.6 % from
//! 1 MB on, 16.1 % with latencies carried in seconds).

use super::{Bound, Draft, Fitted, Kind};
use crate::link::LinkKind;
use crate::node::Node;
use preflop_core::units::math::Elementary as _;

/// One line: seconds, seconds per step, fraction of the link, exponent of n.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Start.
    pub a: f64,
    /// Per step.
    pub h: f64,
    /// Fraction of the link's bandwidth.
    pub phi: f64,
    /// How that grows with the group.
    pub e: f64,
}

/// The three lines of one collective on one generation.
pub type Lines = [Line; 3];

/// The group size beyond which the bandwidth exponent is not extrapolated.
const EXPONENT_CAP: f64 = 8.0;
/// Sharpness of the lower envelope.
const SHARPNESS: i32 = 8;

/// A smooth minimum of positive numbers.
pub fn softmin(times: &[f64]) -> f64 {
    times.iter().map(|t| t.powi(-SHARPNESS)).sum::<f64>().power(-1.0 / f64::from(SHARPNESS))
}

/// Seconds of the envelope, and of its latency alone.
pub fn envelope(lines: &Lines, kind: Kind, n: f64, bytes: f64, link: f64) -> (f64, f64) {
    let size = n.min(EXPONENT_CAP);
    let starts = lines.map(|l| l.a + l.h * kind.steps(n));
    let times: [f64; 3] = std::array::from_fn(|i| {
        starts[i] + bytes * kind.factor(n) / (lines[i].phi * size.power(lines[i].e) * link)
    });
    let fastest = (0..3).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
    (softmin(&times), starts[fastest])
}

/// The lines for a generation: its own, or the mean of the others carried in clock cycles.
pub fn lines_for(kind: Kind, link: LinkKind, clock: f64, fitted: &Fitted) -> (Lines, bool) {
    let kind = match kind {
        // A broadcast is pipelined as a gather is: every link carries the whole message once.
        Kind::Broadcast => Kind::AllGather,
        other => other,
    };
    if let Some(own) = fitted.lines(link, kind) {
        return (own, true);
    }
    let others = fitted.generations(kind);
    let count = others.len().max(1) as f64;
    let mut mean = [Line { a: 0.0, h: 0.0, phi: 0.0, e: 0.0 }; 3];
    for (i, line) in mean.iter_mut().enumerate() {
        // The logs of numbers that may be zero start at a nanosecond.
        let geometric = |pick: &dyn Fn(&Line, f64) -> f64| {
            (others.iter().map(|(ls, c)| pick(&ls[i], *c).max(1e-9).natural_log()).sum::<f64>() / count)
                .exponential()
        };
        line.a = geometric(&|l, c| l.a * c / clock);
        line.h = geometric(&|l, c| l.h * c / clock);
        line.phi = geometric(&|l, _| l.phi);
        line.e = others.iter().map(|(ls, _)| ls[i].e).sum::<f64>() / count;
    }
    (mean, false)
}

pub(super) fn time(kind: Kind, n: f64, bytes: f64, node: &Node, fitted: &Fitted) -> Draft {
    let link = node.link.rate.0;
    let draft = |time: f64, latency: f64, seen: bool| {
        let interval =
            if node.virtual_machine { fitted.inside_virtual(time, n) } else { fitted.inside(bytes, seen) };
        Draft { time, latency, bound: Bound::Link, interval }
    };
    if kind == Kind::SendRecv {
        let (a, phi) = fitted.send_recv();
        return draft(a + bytes / (phi * link), a, true);
    }
    let (lines, seen) = lines_for(kind, node.link.kind, node.gpu.boost_clock.0, fitted);
    let (time, latency) = envelope(&lines, kind, n, bytes, link);
    draft(time, latency, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_computed() {
        let line = Line { a: 10e-6, h: 1e-6, phi: 0.5, e: 0.0 };
        let far = Line { a: 1.0, ..line };
        // 10 + 14 us + 100 MB * 1.75 / 150 GB/s = 24 us + 1166.7 us
        let (t, latency) = envelope(&[line, far, far], Kind::AllReduce, 8.0, 100e6, 300e9);
        assert!((t - 1190.67e-6).abs() < 1e-8, "{t}");
        assert!((latency - 24e-6).abs() < 1e-12);
    }
}
