//! How fast the units compute from registers.

use super::Bench;
use crate::driver::{Arg, DriverError, Function};
use crate::ptx::{self, FMA_F16, FMA_F32, FMA_F64, FMA_PER_ITERATION, MMA_PER_ITERATION};

/// Threads of one block: eight warps.
const BLOCK: u32 = 256;
/// Length of one measurement in seconds: launch costs do not show.
const LENGTH: f64 = 0.01;

/// Key, kernel, FLOPs of one instruction of one thread, factor and summand as bits.
type Chains = (&'static str, Option<Function>, f64, (u32, u32));

impl Bench<'_> {
    /// Runs until the clocks have left their idle state.
    pub(super) fn warm_up(&mut self) -> Result<(), DriverError> {
        let f = self.kernel(FMA_F32)?;
        let (grid, args) = (self.fma_grid(), self.fma_args(0x3f7f_0000, 0x3c00_0000));
        let iterations = self.sized(LENGTH, 1, |s, n| s.launch(f, grid, BLOCK, &args(n)))?;
        for _ in 0..if self.options.quick { 30 } else { 60 } {
            self.stream.launch(f, grid, BLOCK, &args(iterations))?;
        }
        self.stream.wait()
    }

    fn fma_grid(&self) -> u32 {
        self.facts.sm_count * (self.facts.threads_per_sm / BLOCK).max(1)
    }

    /// Arguments of an FMA kernel for a number of iterations: x = x a + b, which settles at b / (1 - a).
    fn fma_args(&self, a: u32, b: u32) -> impl Fn(u32) -> [Arg; 4] + use<> {
        let records = self.records_arg();
        move |n| [records, Arg::U32(n), Arg::U32(a), Arg::U32(b)]
    }

    pub(super) fn arithmetic(&mut self) -> Result<(), DriverError> {
        let half = match self.capability {
            53.. => match self.cuda.module(&ptx::half(self.capability).text) {
                Ok(module) => Some(module.function(FMA_F16.0, FMA_F16.1)?),
                Err(error) => {
                    self.skip("fp16_fma_tflops", &error.to_string());
                    None
                }
            },
            _ => None,
        };
        // 0.996 and 1/128 in fp32; 0.9995 and 0.0156 twice in fp16.
        let single = (0x3f7f_0000, 0x3c00_0000);
        let kernels: [Chains; 3] = [
            ("fp32_fma_tflops", Some(self.kernel(FMA_F32)?), 2.0, single),
            ("fp64_fma_tflops", Some(self.kernel(FMA_F64)?), 2.0, single),
            ("fp16_fma_tflops", half, 4.0, (0x3bff_3bff, 0x2400_2400)),
        ];
        let grid = self.fma_grid();
        for (key, function, flops, (a, b)) in kernels {
            let Some(f) = function else { continue };
            let args = self.fma_args(a, b);
            let n = self.sized(LENGTH, 1, |s, n| s.launch(f, grid, BLOCK, &args(n)))?;
            let work = flops * f64::from(grid) * f64::from(BLOCK) * FMA_PER_ITERATION as f64 * f64::from(n);
            self.value(key, |b| Ok(work / b.seconds(|s| s.launch(f, grid, BLOCK, &args(n)))? / 1e12))?;
            if key == "fp32_fma_tflops" {
                self.value("fma_clock_mhz", |b| {
                    b.stream.launch(f, grid, BLOCK, &args(n))?;
                    b.clock_mhz(grid.min(256))
                })?;
            }
        }
        Ok(())
    }

    pub(super) fn tensor_cores(&mut self) -> Result<(), DriverError> {
        let modules = ptx::tensor(self.capability);
        if modules.is_empty() {
            self.skip("tensor cores", "this GPU has none");
        }
        for (text, kernels) in modules {
            let module = match self.cuda.module(&text.text) {
                Ok(module) => module,
                Err(error) => {
                    self.skip(text.name, &error.to_string());
                    continue;
                }
            };
            for ((name, parameters), flops, format) in kernels {
                let f = module.function(name, parameters)?;
                let (grid, records) = (2 * self.facts.sm_count, self.records_arg());
                let args = move |n| [records, Arg::U32(n)];
                let n = self.sized(LENGTH, 1, |s, n| s.launch(f, grid, BLOCK, &args(n)))?;
                let warps = f64::from(grid * BLOCK / 32);
                let work = flops as f64 * warps * MMA_PER_ITERATION as f64 * f64::from(n);
                let key = format!("{format}_mma_tflops");
                self.value(&key, |b| Ok(work / b.seconds(|s| s.launch(f, grid, BLOCK, &args(n)))? / 1e12))?;
            }
        }
        Ok(())
    }
}
