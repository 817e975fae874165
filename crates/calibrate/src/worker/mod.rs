//! Measures. Runs in a process of its own and says what it sees, line by line.

mod arithmetic;
mod bandwidth;
mod latency;
mod launch;
mod loaded;
mod products;

use crate::driver::{Arg, Buffer, Cuda, DeviceFacts, DriverError, Event, Function, Module, Stream, board};
use crate::protocol::Line;
use crate::ptx::{self, Kernel};
use crate::{quantity, stats};
use std::path::PathBuf;
use std::rc::Rc;

/// How to measure.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which GPU, as the driver counts them.
    pub device: u32,
    /// Fewer repeats.
    pub quick: bool,
    /// Where to look for cuBLAS first.
    pub cublas: Option<PathBuf>,
}

/// What the measurements need.
pub(crate) struct Bench<'a> {
    cuda: Rc<Cuda>,
    stream: Stream,
    start: Event,
    stop: Event,
    facts: DeviceFacts,
    capability: u32,
    base: Module,
    /// Clock and nanoseconds of start and end, by block.
    records: Buffer,
    options: &'a Options,
    say: &'a mut dyn FnMut(Line),
}

/// A step: its name and what it does.
type Step<'a> = (&'static str, fn(&mut Bench<'a>) -> Result<(), DriverError>);

fn steps<'a>() -> [Step<'a>; 14] {
    [
        ("clocks up", Bench::warm_up),
        ("arithmetic", Bench::arithmetic),
        ("launches", Bench::launches),
        ("tensor cores", Bench::tensor_cores),
        ("L1 and shared memory", Bench::near_memory),
        ("cache latencies", Bench::latencies),
        ("DRAM latency", Bench::dram_latency),
        ("DRAM latency under load", Bench::dram_loaded),
        ("L2 cache", Bench::l2),
        ("launches again", Bench::launches),
        ("DRAM", Bench::dram),
        ("host copies", Bench::host_copies),
        ("matrix products", Bench::products),
        ("launches once more", Bench::launches),
    ]
}

/// Blocks that can leave a record.
const MAX_BLOCKS: u64 = 1 << 16;
/// How often a noisy figure is measured before it is given up.
const ATTEMPTS: usize = 3;

/// Measures everything. An error has been said as `Failed` too.
pub fn run(options: &Options, say: &mut dyn FnMut(Line)) -> Result<(), DriverError> {
    let result = measure(options, say);
    match &result {
        Ok(()) => say(Line::End),
        Err(error) => say(Line::Failed(error.to_string())),
    }
    result
}

fn measure(options: &Options, say: &mut dyn FnMut(Line)) -> Result<(), DriverError> {
    let cuda = Cuda::open(options.device)?;
    let facts = cuda.facts()?;
    say(Line::Device { facts: facts.clone(), board: board(&facts.bus) });
    let capability = facts.capability.0 * 10 + facts.capability.1;
    let base = cuda.module(&ptx::base(capability).text)?;
    let mut bench = Bench {
        stream: cuda.stream()?,
        start: cuda.event()?,
        stop: cuda.event()?,
        records: Buffer::new(&cuda, MAX_BLOCKS * 32)?,
        cuda,
        facts,
        capability,
        base,
        options,
        say,
    };
    let steps = steps();
    for (step, (what, run)) in steps.iter().enumerate() {
        (bench.say)(Line::Begin { what: (*what).to_string(), step, steps: steps.len() });
        match run(&mut bench) {
            Ok(()) => {}
            // Too little memory spoils one step, not the next; anything else may have broken the context.
            Err(error @ DriverError::Memory { .. }) => bench.skip(what, &error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// One record of a block.
#[derive(Debug, Clone, Copy)]
struct Record {
    cycles: f64,
    nanoseconds: f64,
}

impl Bench<'_> {
    fn kernel(&self, (name, parameters): Kernel) -> Result<Function, DriverError> {
        self.base.function(name, parameters)
    }

    fn skip(&mut self, what: &str, why: &str) {
        (self.say)(Line::Skip { what: what.to_string(), why: why.to_string() });
    }

    fn note(&mut self, text: String) {
        (self.say)(Line::Note(text));
    }

    fn repeats(&self) -> usize {
        if self.options.quick { 7 } else { 15 }
    }

    /// Seconds on the device of what `work` queues.
    fn seconds(&self, work: impl FnOnce(&Stream) -> Result<(), DriverError>) -> Result<f64, DriverError> {
        self.stream.record(&self.start)?;
        work(&self.stream)?;
        self.stream.record(&self.stop)?;
        Ok(self.stop.since(&self.start)? / 1e3)
    }

    /// Measures until the samples agree, and says them.
    fn value(
        &mut self,
        key: &str,
        mut sample: impl FnMut(&mut Self) -> Result<f64, DriverError>,
    ) -> Result<(), DriverError> {
        let limit = quantity::find(key).map_or(0.0, |q| q.limit);
        let mut best: Option<(f64, Vec<f64>)> = None;
        for _ in 0..ATTEMPTS {
            // A time of zero gives no rate; JSON has no infinity, and 0 is refused on the other side.
            let finite = |x: f64| if x.is_finite() { x } else { 0.0 };
            let samples =
                (0..self.repeats()).map(|_| sample(self).map(finite)).collect::<Result<Vec<_>, _>>()?;
            let spread = stats::summary(&samples).map_or(f64::INFINITY, |s| s.spread);
            if best.as_ref().is_none_or(|(least, _)| spread < *least) {
                best = Some((spread, samples));
            }
            // Half of the limit: a figure that just passes today should pass tomorrow.
            if spread <= limit / 2.0 {
                break;
            }
        }
        let samples = best.map(|(_, samples)| samples).unwrap_or_default();
        (self.say)(Line::Value { key: key.to_string(), samples });
        Ok(())
    }

    /// The records of the first blocks.
    fn read_records(&self, blocks: u32) -> Result<Vec<Record>, DriverError> {
        self.stream.wait()?;
        let words = self.records.read(blocks as usize * 4)?;
        let record = |w: &[u64]| Record {
            cycles: w[1].wrapping_sub(w[0]) as f64,
            nanoseconds: w[3].wrapping_sub(w[2]) as f64,
        };
        Ok(words.chunks_exact(4).map(record).collect())
    }

    /// Clock in MHz from the records of a kernel that ran for long.
    fn clock_mhz(&self, blocks: u32) -> Result<f64, DriverError> {
        let rates: Vec<f64> = self
            .read_records(blocks)?
            .iter()
            .filter(|r| r.nanoseconds > 0.0)
            .map(|r| r.cycles / r.nanoseconds * 1e3)
            .collect();
        Ok(stats::summary(&rates).map_or(0.0, |s| s.median))
    }

    /// A multiple of `unit` that makes `run` last about `wanted` seconds; at least one unit.
    fn sized(
        &self,
        wanted: f64,
        unit: u64,
        run: impl Fn(&Stream, u32) -> Result<(), DriverError>,
    ) -> Result<u32, DriverError> {
        let mut count = unit;
        // Twice: the first run may have compiled or woken something.
        for _ in 0..8 {
            self.seconds(|s| run(s, count as u32))?;
            let taken = self.seconds(|s| run(s, count as u32))?;
            if taken > wanted / 4.0 || count >= u64::from(u32::MAX / 16) {
                let scale = (wanted / taken.max(1e-9)).clamp(0.01, 16.0);
                count = ((count as f64 * scale / unit as f64).round() as u64).max(1) * unit;
                break;
            }
            count *= 4;
        }
        Ok(count.min(u64::from(u32::MAX / 2)) as u32)
    }

    fn records_arg(&self) -> Arg {
        Arg::U64(self.records.address())
    }
}
