//! What it costs to start a kernel, on the device and on the host.
//!
//! Measured at the start, in the middle and at the end of a run, since a busy host slows all of one visit.

use super::Bench;
use crate::driver::{Arg, DriverError, Stream};
use crate::ptx::{EMPTY, PROBE};
use std::time::Instant;

/// Launches of one measurement: fewer than a queue holds (1024), so that the host never waits for room.
const LAUNCHES: u32 = 500;

/// Rows of launches of which the quickest counts.
const ROWS: usize = 12;
/// Time in which the host has queued all launches of a row: 10 us each.
const SPIN_NS: u32 = LAUNCHES * 10_000;

impl Bench<'_> {
    pub(super) fn launches(&mut self) -> Result<(), DriverError> {
        let f = self.kernel(EMPTY)?;
        let row = |s: &Stream| (0..LAUNCHES).try_for_each(|_| s.launch(f, 1, 32, &[]));
        row(&self.stream)?;
        self.stream.wait()?;
        let each = f64::from(LAUNCHES);
        // The host's processor does other things too: of several rows, the quickest is what a launch costs.
        let quickest = |b: &Self, work: &dyn Fn(&Stream) -> Result<(), DriverError>, count: f64| {
            let mut least = f64::INFINITY;
            for _ in 0..ROWS {
                let start = Instant::now();
                work(&b.stream)?;
                least = least.min(start.elapsed().as_secs_f64() / count * 1e6);
                b.stream.wait()?;
            }
            Ok(least)
        };
        self.value("host_launch_us", |b| quickest(b, &row, each))?;
        // The device first spins for as long as the host needs to queue all launches, so that it never waits for it.
        let (probe, spin) = (self.kernel(PROBE)?, [self.records_arg(), Arg::U32(SPIN_NS)]);
        self.value("stream_kernel_us", |b| {
            let mut least = f64::INFINITY;
            for _ in 0..ROWS {
                b.stream.launch(probe, 1, 1, &spin)?;
                least = least.min(b.seconds(row)? / each * 1e6);
            }
            Ok(least)
        })?;
        let Some(many) = self.stream.capture(row)? else {
            self.skip("graph launches", "the driver is older than CUDA 11.4");
            return Ok(());
        };
        let Some(one) = self.stream.capture(|s| s.launch(f, 1, 32, &[]))? else { return Ok(()) };
        self.stream.launch_graph(&many)?;
        self.stream.launch_graph(&one)?;
        self.stream.wait()?;
        self.value("graph_kernel_us", |b| {
            // Three graphs behind each other: the start of the first is not the time of a kernel.
            let taken = b.seconds(|s| (0..3).try_for_each(|_| s.launch_graph(&many)))?;
            Ok(taken / (3.0 * each) * 1e6)
        })?;
        self.value("graph_launch_us", |b| {
            quickest(b, &|s| (0..100).try_for_each(|_| s.launch_graph(&one)), 100.0)
        })
    }
}
