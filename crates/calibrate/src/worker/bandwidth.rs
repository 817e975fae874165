//! How many bytes pass each level of the memory.

use super::Bench;
use crate::driver::{Arg, Buffer, DriverError, Pinned};
use crate::ptx::{READ_L1, READ_L2, READ_SHARED, READ_UNROLL, SHARED_BYTES};
use crate::stats;

/// Threads of a block that reads from the L2 or DRAM, and such blocks per SM: 1024 threads are enough to hide the
/// latency, and few enough that the regions of all blocks make small steps in a sweep of sizes.
const BLOCK: u32 = 512;
const BLOCKS_PER_SM: u32 = 2;
/// Bytes that one block reads at a time.
const CHUNK: u64 = BLOCK as u64 * 16;
/// Buffers of the DRAM tests.
const DRAM_BYTES: u64 = 2 << 30;
/// Copies, fills or readings in one measurement of the DRAM.
const TIMES: u32 = 8;
/// Bytes read in one measurement of the L2.
const L2_TRAFFIC: u64 = 16 << 30;
/// Buffer of the copies to and from the host.
const HOST_BYTES: u64 = 256 << 20;

impl Bench<'_> {
    fn read_grid(&self) -> u32 {
        self.facts.sm_count * BLOCKS_PER_SM
    }

    /// L1 and shared memory: one full block per SM reads 16 KiB over and over; its own clock tells.
    pub(super) fn near_memory(&mut self) -> Result<(), DriverError> {
        let room = Buffer::new(&self.cuda, SHARED_BYTES * u64::from(self.facts.sm_count))?;
        room.set(0, &self.stream)?;
        let (block, loads) = (1024, 64 * READ_UNROLL as u32);
        let grid = self.facts.sm_count;
        let bytes = f64::from(block) * 16.0 * f64::from(loads);
        for (key, kernel) in
            [("l1_bytes_per_clk_per_sm", READ_L1), ("shared_bytes_per_clk_per_sm", READ_SHARED)]
        {
            let f = self.kernel(kernel)?;
            let args = [
                self.records_arg(),
                Arg::U64(room.address()),
                Arg::U32(SHARED_BYTES as u32),
                Arg::U32(loads),
                Arg::U32(0),
            ];
            self.stream.launch(f, grid, block, &args)?;
            self.value(key, |b| {
                b.stream.launch(f, grid, block, &args)?;
                let rates: Vec<f64> = b.read_records(grid)?.iter().map(|r| bytes / r.cycles).collect();
                Ok(stats::summary(&rates).map_or(0.0, |s| s.median))
            })?;
        }
        Ok(())
    }

    /// Bytes a second of reads that go over the first `bytes` of a buffer again and again, each block over its part.
    /// No part is shared: where many SMs ask for the same line, Hopper's L2 answers them together, and the rate is not
    /// that of the cache.
    fn read_rate(&self, buffer: &Buffer, bytes: u64, traffic: u64) -> Result<f64, DriverError> {
        let (f, grid) = (self.kernel(READ_L2)?, self.read_grid());
        let region = (bytes / u64::from(grid) / CHUNK).max(1) * CHUNK;
        let loads = (traffic / u64::from(grid) / CHUNK).div_ceil(READ_UNROLL) * READ_UNROLL;
        let args = [
            self.records_arg(),
            Arg::U64(buffer.address()),
            Arg::U32(region as u32),
            Arg::U32(loads as u32),
            Arg::U32(0),
        ];
        let moved = (loads * CHUNK * u64::from(grid)) as f64;
        Ok(moved / self.seconds(|s| s.launch(f, grid, BLOCK, &args))?)
    }

    pub(super) fn l2(&mut self) -> Result<(), DriverError> {
        let l2 = if self.facts.l2_bytes == 0 { 4 << 20 } else { self.facts.l2_bytes };
        let step = u64::from(self.read_grid()) * CHUNK;
        let buffer = Buffer::new(&self.cuda, 2 * l2 + step)?;
        buffer.set(1, &self.stream)?;
        self.read_rate(&buffer, l2 / 4, L2_TRAFFIC)?;
        self.value("l2_read_gbs", |b| Ok(b.read_rate(&buffer, l2 / 4, L2_TRAFFIC)? / 1e9))?;
        // Sizes from a quarter of what the driver says to twice as much, in steps of one chunk per block.
        let sizes: Vec<u64> =
            (1..).map(|i| i * step).skip_while(|s| *s < l2 / 4).take_while(|s| *s <= 2 * l2).collect();
        let stride = sizes.len().div_ceil(if self.options.quick { 24 } else { 48 }).max(1);
        let sizes: Vec<u64> = sizes.into_iter().step_by(stride).collect();
        let traffic = L2_TRAFFIC / 8;
        let mut seen = Vec::new();
        for _ in 0..if self.options.quick { 3 } else { 7 } {
            let mut points = Vec::new();
            for size in &sizes {
                // The first reading brings the buffer in.
                self.read_rate(&buffer, *size, *size)?;
                points.push((*size as f64 / f64::from(1 << 20), self.read_rate(&buffer, *size, traffic)?));
            }
            if seen.is_empty() {
                let text: Vec<String> =
                    points.iter().map(|(x, y)| format!("{x:.1}:{:.0}", y / 1e9)).collect();
                self.note(format!("L2 sweep, MiB:GB/s {}", text.join(" ")));
            }
            seen.extend(stats::knee(&points));
        }
        if seen.len() < 3 {
            self.skip("l2_seen_mib", "the read rate does not fall with the size of the buffer");
        } else {
            (self.say)(crate::protocol::Line::Value { key: "l2_seen_mib".to_string(), samples: seen });
        }
        Ok(())
    }

    pub(super) fn dram(&mut self) -> Result<(), DriverError> {
        // A quarter of what is free for each of two buffers, and in any case many times the L2.
        let bytes = DRAM_BYTES.min(self.cuda.free_memory()? / 4) >> 20 << 20;
        if bytes < 8 * self.facts.l2_bytes.max(1 << 20) {
            return Err(DriverError::Memory { mib: (8 * self.facts.l2_bytes) >> 20 });
        }
        let (a, b) = (Buffer::new(&self.cuda, bytes)?, Buffer::new(&self.cuda, bytes)?);
        a.set(0x3f80_1234, &self.stream)?;
        b.set(0, &self.stream)?;
        let moved = bytes as f64 * f64::from(TIMES) / 1e9;
        let repeat = |work: &dyn Fn(&crate::driver::Stream) -> Result<(), DriverError>,
                      s: &crate::driver::Stream| (0..TIMES).try_for_each(|_| work(s));
        self.value("dram_copy_gbs", |bench| {
            Ok(2.0 * moved / bench.seconds(|s| repeat(&|s| b.copy_from(&a, s), s))?)
        })?;
        self.value("dram_write_gbs", |bench| Ok(moved / bench.seconds(|s| repeat(&|s| b.set(0, s), s))?))?;
        let once = bytes / u64::from(self.read_grid()) / (CHUNK * READ_UNROLL)
            * (CHUNK * READ_UNROLL)
            * u64::from(self.read_grid());
        self.value("dram_read_gbs", |bench| Ok(bench.read_rate(&a, once, 2 * once)? / 1e9))
    }

    pub(super) fn host_copies(&mut self) -> Result<(), DriverError> {
        let pinned = match Pinned::new(&self.cuda, HOST_BYTES) {
            Ok(pinned) => pinned,
            Err(error) => {
                self.skip("host copies", &error.to_string());
                return Ok(());
            }
        };
        let device = Buffer::new(&self.cuda, HOST_BYTES)?;
        pinned.send(&device, &self.stream)?;
        self.stream.wait()?;
        self.value("host_to_device_gbs", |b| {
            Ok(HOST_BYTES as f64 / b.seconds(|s| pinned.send(&device, s))? / 1e9)
        })?;
        self.value("device_to_host_gbs", |b| {
            Ok(HOST_BYTES as f64 / b.seconds(|s| pinned.receive(&device, s))? / 1e9)
        })?;
        self.stream.wait()
    }
}
