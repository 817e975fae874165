//! How long one load takes when nothing else happens: one thread follows a chain of addresses.

use super::Bench;
use crate::driver::{Arg, Buffer, DriverError};
use crate::ptx::{CHASE_L1, CHASE_L2, CHASE_SHARED, CHASE_UNROLL, Kernel};

/// Distance of two elements of a chain: a cache line.
const LINE: u64 = 128;
/// Steps on the clock.
const STEPS: u64 = 8192;
/// Buffer of the DRAM test: several times any L2, few enough pages that their translations stay near.
const DRAM_BYTES: u64 = 256 << 20;

/// A chain through all elements in random order, as word offsets: `next[i]` follows `i`. One cycle (Sattolo's
/// algorithm), so that every element is met once before the first comes again.
pub(crate) fn cycle(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed | 1;
    for i in (1..count).rev() {
        // xorshift64 (Marsaglia 2003); the bias of the remainder does not matter here.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(i, (state % i as u64) as usize);
    }
    let mut next = vec![0; count];
    for i in 0..count {
        next[order[i]] = order[(i + 1) % count];
    }
    next
}

impl Bench<'_> {
    /// Cycles of one load in a chain.
    fn chase(&self, kernel: Kernel, start: u64, warm: u64, steps: u64) -> Result<f64, DriverError> {
        let f = self.kernel(kernel)?;
        let round = |n: u64| (n.div_ceil(CHASE_UNROLL) * CHASE_UNROLL) as u32;
        let args = [self.records_arg(), Arg::U64(start), Arg::U32(round(warm)), Arg::U32(round(steps))];
        self.stream.launch(f, 1, 1, &args)?;
        let cycles = self.read_records(1)?.first().map_or(0.0, |r| r.cycles);
        Ok(cycles / f64::from(round(steps)))
    }

    /// A chain over the first `bytes` of a buffer.
    pub(super) fn lay_chain(buffer: &Buffer, bytes: u64, seed: u64) -> Result<u64, DriverError> {
        let count = (bytes / LINE).max(2);
        let mut words = vec![0u64; (count * LINE / 8) as usize];
        for (i, next) in cycle(count as usize, seed).into_iter().enumerate() {
            words[i * (LINE / 8) as usize] = buffer.address() + next as u64 * LINE;
        }
        buffer.write(&words)?;
        Ok(count)
    }

    pub(super) fn latencies(&mut self) -> Result<(), DriverError> {
        self.value("shared_cycles", |b| b.chase(CHASE_SHARED, 0, 0, STEPS))?;
        let l2 = if self.facts.l2_bytes == 0 { 4 << 20 } else { self.facts.l2_bytes };
        let buffer = Buffer::new(&self.cuda, l2.max(1 << 20))?;
        let start = buffer.address();

        let count = Self::lay_chain(&buffer, 8 << 10, 1)?;
        self.value("l1_cycles", |b| b.chase(CHASE_L1, start, count, STEPS))?;

        let near_bytes = (l2 / 16).min(2 << 20);
        let count = Self::lay_chain(&buffer, near_bytes, 2)?;
        self.value("l2_cycles", |b| b.chase(CHASE_L2, start, 2 * count, STEPS))?;
        let near = self.chase(CHASE_L2, start, 2 * count, STEPS)?;

        let mut curve = Vec::new();
        for eighths in 1..=7 {
            let count = Self::lay_chain(&buffer, l2 * eighths / 8, 3)?;
            let cycles = self.chase(CHASE_L2, start, count, count.max(STEPS))?;
            curve.push(format!("{:.1}:{cycles:.0}", (l2 * eighths / 8) as f64 / f64::from(1 << 20)));
        }
        self.note(format!("L2 latency, MiB:cycles {}", curve.join(" ")));
        let count = Self::lay_chain(&buffer, l2 * 5 / 8, 4)?;
        let far = self.chase(CHASE_L2, start, count, count)?;
        if far > 1.1 * near {
            // One lap warms the cache; the clock runs over another.
            self.value("l2_far_cycles", |b| b.chase(CHASE_L2, start, count, count.min(65_536)))?;
        } else {
            self.skip("l2_far_cycles", "all of the L2 is equally near");
        }
        Ok(())
    }

    pub(super) fn dram_latency(&mut self) -> Result<(), DriverError> {
        let l2 = self.facts.l2_bytes.max(1 << 20);
        let bytes = DRAM_BYTES.max(4 * l2).min(self.cuda.free_memory()? / 4) / LINE * LINE;
        if bytes < 2 * l2 {
            return Err(DriverError::Memory { mib: (4 * l2) >> 20 });
        }
        let buffer = Buffer::new(&self.cuda, bytes)?;
        let flush = Buffer::new(&self.cuda, (2 * l2).max(64 << 20))?;
        let mut seed = 5;
        self.value("dram_cycles", |b| {
            // A new chain each time, and other data through the L2 before it.
            if seed == 5 {
                Self::lay_chain(&buffer, bytes, seed)?;
            }
            seed += 1;
            let offset = (seed * 7919 % (bytes / LINE)) * LINE;
            flush.set(seed as u32, &b.stream)?;
            b.stream.wait()?;
            b.chase(CHASE_L2, buffer.address() + offset, 0, STEPS)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_meets_every_element_once() {
        for count in [1, 2, 3, 64, 1000] {
            let next = cycle(count, 42);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = next[at];
                steps += 1;
                if at == 0 {
                    break;
                }
                assert!(steps <= count);
            }
            assert_eq!(steps, count);
        }
    }
}
