//! `predict --launches`: what the GPU would run, kernel by kernel, as a profiler lists it.

use crate::grid::Grid;
use crate::output::{self, Align, Output};
use crate::shape;
use preflop_core::model::Iteration;
use preflop_core::schedule::timeline::Scheduled;
use preflop_core::time::IterationPrediction;
use preflop_core::units::Seconds;
use serde::Serialize;
use std::io::{self, Write};

/// Kernels of one kind that a call launches in a row.
#[derive(Debug, Serialize)]
pub struct Row<'a> {
    name: &'a str,
    phase: &'static str,
    op: &'a str,
    kernel: &'static str,
    part: &'static str,
    count: u32,
    tile: Option<[u32; 2]>,
    grid: Option<f64>,
    streams: u32,
    start_us: f64,
    time_us: f64,
    bound: &'static str,
    pipe: &'static str,
    flops: f64,
    l1_bytes: f64,
    l2_bytes: f64,
    dram_bytes: f64,
}

/// The rows of an iteration, in the order in which they run.
pub fn rows<'a>(
    iteration: &'a Iteration,
    prediction: &IterationPrediction,
    launches: &[Scheduled],
) -> Vec<Row<'a>> {
    let row = |s: &Scheduled| {
        let step = &iteration.steps[s.step];
        let [l1_bytes, l2_bytes, dram_bytes] = s.launch.bytes;
        let bound = prediction.steps.get(s.step).map_or("", |p| p.one.bound.name());
        Row {
            name: &step.name,
            phase: step.phase.name(),
            op: step.call.name(),
            kernel: s.launch.family,
            part: s.launch.part.name(),
            count: s.launch.count,
            tile: s.launch.tile,
            grid: s.launch.ctas,
            streams: s.launch.streams,
            start_us: s.start.us(),
            time_us: s.launch.seconds * 1e6,
            bound,
            pipe: s.launch.pipe.name(),
            flops: s.launch.flops,
            l1_bytes,
            l2_bytes,
            dram_bytes,
        }
    };
    launches.iter().map(row).collect()
}

/// The rows as a table; narrow terminals do without grid, tile and start.
pub fn write(out: &mut impl Write, rows: &[Row], output: &Output) -> io::Result<()> {
    let longest = if output.width >= 100 { 32 } else { 18 };
    let mut grid = Grid::default();
    let time = |us: f64| output::time(Seconds(us / 1e6));
    grid.add("start", Align::Right, 5, rows.iter().map(|r| time(r.start_us)));
    grid.add("kernel", Align::Keep, 0, rows.iter().map(|r| shape::shortened(r.kernel, longest)));
    grid.add("layer", Align::Keep, 1, rows.iter().map(|r| shape::shortened(r.name, longest)));
    let tile = |r: &Row| r.tile.map_or_else(String::new, |[m, n]| format!("{m}x{n}"));
    grid.add("tile", Align::Keep, 3, rows.iter().map(tile));
    let blocks = |r: &Row| r.grid.map_or_else(String::new, |g| output::grouped(g as u64));
    grid.add("grid", Align::Right, 4, rows.iter().map(blocks));
    grid.add("count", Align::Right, 2, rows.iter().map(|r| r.count.to_string()));
    grid.add("time", Align::Right, 0, rows.iter().map(|r| time(r.time_us)));
    grid.add("bound", Align::Keep, 1, rows.iter().map(|r| r.bound.to_string()));
    grid.write(out, output)?;
    let all: u32 = rows.iter().map(|r| r.count).sum();
    writeln!(out, "{}", output.dim(&format!("{} launches", output::grouped(u64::from(all)))))
}
