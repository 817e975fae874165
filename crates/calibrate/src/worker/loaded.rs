//! How long one load from DRAM takes while others use the bandwidth (DeLTA, appendix B, Fig. 18): one thread follows a chain of
//! addresses, and beside it more and more blocks read a buffer of their own.

use super::Bench;
use crate::driver::{Arg, Buffer, DriverError, Stream};
use crate::ptx::{CHASE_L2, CHASE_UNROLL, READ_L2, READ_UNROLL};

/// Steps of the chain on the clock: some milliseconds.
const STEPS: u64 = 4096;
/// Threads of a reading block, and the bytes that it reads at a time.
const BLOCK: u32 = 512;
const CHUNK: u64 = BLOCK as u64 * 16;
/// Bytes of the chain and of the buffer that is read; both many times any L2.
const CHAIN_BYTES: u64 = 256 << 20;
const READ_BYTES: u64 = 2 << 30;
/// Bytes that one reading block moves, and all of them together at most: 20 ms or more on any GPU, which is longer than the
/// chain takes when the memory is full.
const BLOCK_BYTES: u64 = 3 << 30;
const MOST_BYTES: u64 = 100 << 30;

impl Bench<'_> {
    /// Says the curve: bandwidth that the readers get, and the latency beside them.
    pub(super) fn dram_loaded(&mut self) -> Result<(), DriverError> {
        let free = self.cuda.free_memory()?;
        let (chain_bytes, read_bytes) = (CHAIN_BYTES.min(free / 8), READ_BYTES.min(free / 4));
        if chain_bytes < 2 * self.facts.l2_bytes.max(1 << 20) {
            return Err(DriverError::Memory { mib: (16 * self.facts.l2_bytes) >> 20 });
        }
        let (chain, data) = (Buffer::new(&self.cuda, chain_bytes)?, Buffer::new(&self.cuda, read_bytes)?);
        let count = Self::lay_chain(&chain, chain_bytes, 11)?;
        data.set(1, &self.stream)?;
        let readers = self.cuda.stream()?;
        // One SM is left to the chain.
        let most = 2 * self.facts.sm_count.saturating_sub(1);
        let mut grids = vec![0];
        grids.extend((1..=24).map(|i| most * i / 24).filter(|g| *g > 0));
        grids.dedup();
        let mut curve = Vec::new();
        for (i, grid) in grids.into_iter().enumerate() {
            let start = chain.address() + (i as u64 * 7919 % count) * 128;
            let (rate, cycles) = self.beside(&readers, &data, grid, start)?;
            curve.push(format!("{:.0}:{cycles:.0}", rate / 1e9));
        }
        self.note(format!("DRAM latency under load, GB/s:cycles {}", curve.join(" ")));
        Ok(())
    }

    /// Bytes a second that `grid` reading blocks get, and cycles of one load of the chain beside them.
    fn beside(
        &self,
        readers: &Stream,
        data: &Buffer,
        grid: u32,
        start: u64,
    ) -> Result<(f64, f64), DriverError> {
        let records = Buffer::new(&self.cuda, u64::from(grid.max(1)) * 32)?;
        let (read, chase) = (self.kernel(READ_L2)?, self.kernel(CHASE_L2)?);
        let mut bytes = 0;
        if grid > 0 {
            let region = (data.bytes() / u64::from(grid) / CHUNK).max(1) * CHUNK;
            let region = region.min(u64::from(u32::MAX / 2) / CHUNK * CHUNK);
            let wanted = BLOCK_BYTES.min(MOST_BYTES / u64::from(grid));
            let loads = (wanted / CHUNK).div_ceil(READ_UNROLL) * READ_UNROLL;
            bytes = loads * CHUNK;
            let args = [
                Arg::U64(records.address()),
                Arg::U64(data.address()),
                Arg::U32(region as u32),
                Arg::U32(loads as u32),
                Arg::U32(0),
            ];
            readers.launch(read, grid, BLOCK, &args)?;
        }
        let steps = STEPS.div_ceil(CHASE_UNROLL) * CHASE_UNROLL;
        let args =
            [self.records_arg(), Arg::U64(start), Arg::U32(CHASE_UNROLL as u32), Arg::U32(steps as u32)];
        self.stream.launch(chase, 1, 1, &args)?;
        let cycles = self.read_records(1)?.first().map_or(0.0, |r| r.cycles) / steps as f64;
        readers.wait()?;
        let rate = if grid > 0 {
            let words = records.read(grid as usize * 4)?;
            let (mut first, mut last) = (u64::MAX, 0);
            for record in words.chunks_exact(4) {
                (first, last) = (first.min(record[2]), last.max(record[3]));
            }
            (bytes * u64::from(grid)) as f64 / (last.saturating_sub(first).max(1) as f64 / 1e9)
        } else {
            0.0
        };
        Ok((rate, cycles))
    }
}
