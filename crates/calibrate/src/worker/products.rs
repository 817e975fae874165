//! Large matrix products through cuBLAS, as the frameworks run them.

use super::Bench;
use crate::driver::{Arg, Blas, BlasLt, Buffer, DriverError, Format, Stream};
use crate::protocol::Line;
use crate::ptx::{FILL_BF16, FILL_F16, FILL_F32, FILL_F64, FILL_FP8, PROBE};
use std::time::Duration;

/// Sizes of square matrices, largest first. 8192 is the size of the published figures.
const SIZES: [u64; 3] = [8192, 4096, 2048];
/// Longest single product in seconds; slower formats get smaller matrices.
const LONGEST: f64 = 0.06;
/// Length of a burst in seconds: ten products of 8192 rows in 16 bits on a large GPU.
const BURST: f64 = 0.015;
/// Products before those on the clock.
const WARM_UPS: u32 = 3;
/// Time without work before a burst, in which the board forgets the last one.
const PAUSE: Duration = Duration::from_millis(150);
const QUICK_PAUSE: Duration = Duration::from_millis(100);
/// Seconds of nothing but products after which the board is at the power that it holds.
const LOAD: f64 = 1.5;
const QUICK_LOAD: f64 = 0.5;
/// Time that the clock is watched between measurements, in nanoseconds.
const PROBE_NS: u32 = 100_000;

impl Bench<'_> {
    fn fill(&self, buffer: &Buffer, format: Format, count: u64, seed: u32) -> Result<(), DriverError> {
        let kernel = match format {
            Format::Fp64 => FILL_F64,
            Format::Fp32 | Format::Tf32 => FILL_F32,
            Format::Fp16 => FILL_F16,
            Format::Bf16 => FILL_BF16,
            Format::Fp8 => FILL_FP8,
        };
        let args = [Arg::U64(buffer.address()), Arg::U64(count), Arg::U32(seed)];
        self.stream.launch(self.kernel(kernel)?, self.facts.sm_count * 8, 256, &args)
    }

    /// The largest size whose three matrices fit three times into what is free.
    fn largest(&self, bytes_each: u64) -> Result<u64, DriverError> {
        let free = self.cuda.free_memory()?;
        SIZES
            .into_iter()
            .find(|n| 9 * n * n * bytes_each < free)
            .ok_or(DriverError::Memory { mib: (9 * SIZES[2] * SIZES[2] * bytes_each) >> 20 })
    }

    pub(super) fn products(&mut self) -> Result<(), DriverError> {
        let hint = self.options.cublas.clone();
        let blas = match Blas::open(hint.as_deref(), &self.stream) {
            Ok(blas) => blas,
            Err(error) => {
                self.skip("matrix products", &format!("cuBLAS: {error}; `--cublas PATH` says where it is"));
                return Ok(());
            }
        };
        let mut formats = vec![Format::Fp64, Format::Fp32, Format::Fp16];
        if self.capability >= 80 {
            formats = vec![Format::Fp64, Format::Fp32, Format::Tf32, Format::Fp16, Format::Bf16];
        }
        for format in formats {
            let n = self.largest(format.size())?;
            let buffers = self.matrices(format, n, format.size())?;
            let [a, b, c] = &buffers;
            let mut size = n;
            // A first, small product tells how long a large one would take.
            let small = SIZES[2].min(n);
            blas.product(format, small, [a, b, c])?;
            let one = self.seconds(|_| blas.product(format, small, [a, b, c]))?;
            while size > small && one * (size as f64 / small as f64).powi(3) > LONGEST {
                size /= 2;
            }
            let held = format == Format::Bf16 || (format == Format::Fp16 && self.capability < 80);
            self.rate(format, size, held, &|_| blas.product(format, size, [a, b, c]))?;
        }
        if self.capability >= 89 {
            self.eight_bit(hint.as_deref())?;
        }
        Ok(())
    }

    fn matrices(&self, format: Format, n: u64, out_size: u64) -> Result<[Buffer; 3], DriverError> {
        let buffers = [
            Buffer::new(&self.cuda, n * n * format.size())?,
            Buffer::new(&self.cuda, n * n * format.size())?,
            Buffer::new(&self.cuda, n * n * out_size)?,
        ];
        self.fill(&buffers[0], format, n * n, 0x1234_5678)?;
        self.fill(&buffers[1], format, n * n, 0x8765_4321)?;
        self.stream.wait()?;
        Ok(buffers)
    }

    fn eight_bit(&mut self, hint: Option<&std::path::Path>) -> Result<(), DriverError> {
        let n = self.largest(2)?;
        let lt = match BlasLt::open(hint, &self.stream, n) {
            Ok(lt) => lt,
            Err(error) => {
                self.skip("fp8_matmul_tflops", &error.to_string());
                return Ok(());
            }
        };
        let [a, b, c] = &self.matrices(Format::Fp8, n, Format::Bf16.size())?;
        self.rate(Format::Fp8, n, false, &|s| lt.product(s, [a, b, c]))
    }

    /// The rate of a short burst of products after a pause, which is what operators within a job get; for one format
    /// also the rate that is held when nothing else runs, at the power limit, and the clock at that.
    fn rate(
        &mut self,
        format: Format,
        n: u64,
        held: bool,
        product: &dyn Fn(&Stream) -> Result<(), DriverError>,
    ) -> Result<(), DriverError> {
        let flops = 2.0 * (n as f64).powi(3);
        product(&self.stream)?;
        let one = self.seconds(product)?;
        let many = |s: &Stream, count: u32| (0..count).try_for_each(|_| product(s));
        let group = ((BURST / one).round() as u32).clamp(2, 10);
        let pause = if self.options.quick { QUICK_PAUSE } else { PAUSE };
        self.value(&format!("{}_matmul_tflops", format.name()), |b| {
            std::thread::sleep(pause);
            many(&b.stream, WARM_UPS)?;
            Ok(flops * f64::from(group) / b.seconds(|s| many(s, group))? / 1e12)
        })?;
        self.note(format!("{} products of {n} x {n} matrices, {group} at a time", format.name()));
        if !held {
            return Ok(());
        }
        let load = if self.options.quick { QUICK_LOAD } else { LOAD };
        let long = ((BURST / one).round() as u32).max(1);
        many(&self.stream, ((load / one) as u32).clamp(1, 2000))?;
        let (probe, args) = (self.kernel(PROBE)?, [self.records_arg(), Arg::U32(PROBE_NS)]);
        let mut clocks = Vec::new();
        self.value("matmul_held_tflops", |b| {
            let taken = b.seconds(|s| many(s, 2 * long))?;
            product(&b.stream)?;
            b.stream.launch(probe, 1, 1, &args)?;
            clocks.push(b.clock_mhz(1)?);
            Ok(flops * f64::from(2 * long) / taken / 1e12)
        })?;
        let last = clocks.split_off(clocks.len().saturating_sub(self.repeats()));
        (self.say)(Line::Value { key: "matmul_clock_mhz".to_string(), samples: last });
        Ok(())
    }
}
