//! The machine as plain numbers: a row of the paper's Table I with the latencies that it leaves out.

use super::DeltaError;
use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, BytesPerSecond, Seconds};

/// Share of the shared-memory path that loads reach: 96 of 128 B per clock and SM. Stores reach all of it.
/// The paper prints neither; this pair reproduces its statements on options 3 and 4 (docs/delta.md).
pub const SMEM_LOAD_SHARE: f64 = 0.75;

/// What DeLTA needs to know of a GPU, real or not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Num_SM.
    pub num_sm: u32,
    /// Core clock in Hz, for times in cycles (Fig. 19).
    pub clock_hz: f64,
    /// BW_MAC of one SM: multiply-accumulates per second.
    pub mac_per_s_per_sm: f64,
    /// Instructions of a warp that an SM issues in the time that its lanes take for one multiplication of as many threads: 1 or 2.
    pub issue_slots: f64,
    /// 32-bit registers of one SM.
    pub registers_per_sm: f64,
    /// Shared memory of one SM.
    pub smem_per_sm: Bytes,
    /// BW_SMEM_ST of one SM.
    pub smem_store: BytesPerSecond,
    /// BW_SMEM_LD of one SM.
    pub smem_load: BytesPerSecond,
    /// BW_L1 of one SM.
    pub l1_per_sm: BytesPerSecond,
    /// BW_L2 of the chip.
    pub l2: BytesPerSecond,
    /// BW_DRAM of the chip, as a kernel reaches it.
    pub dram: BytesPerSecond,
    /// LAT_L1.
    pub lat_l1: Seconds,
    /// LAT_L2.
    pub lat_l2: Seconds,
    /// LAT_DRAM.
    pub lat_dram: Seconds,
    /// LAT_SMEM.
    pub lat_smem: Seconds,
    /// Bytes of one L1 request: 128 on Pascal, 32 on Volta and later (paper, Sec. VII-A).
    pub l1_request_bytes: f64,
    /// Smallest transaction of the memory system.
    pub sector_bytes: f64,
}

/// NVIDIA and AMD alike move sectors of 32 B at least (paper, Sec. IV).
const SECTOR_BYTES: f64 = 32.0;

impl Machine {
    /// The GPU with the paper's Table I figures where it has them, else from the catalogue.
    pub fn of(gpu: &Gpu, dtype: Dtype) -> Self {
        let mut machine = Self::from_catalogue(gpu, dtype);
        let Some(paper) = gpu.delta else { return machine };
        let clock = paper.clock.0;
        // Table I's BW_MAC is lanes x clock: 128 x 1.58 GHz x 2 x 30 SMs = 12,134 GFLOPS on TITAN Xp.
        // Other formats keep their ratio to fp32.
        let format = gpu_rate(gpu, dtype) / gpu_rate(gpu, Dtype::Fp32);
        machine.num_sm = paper.num_sm;
        machine.clock_hz = clock;
        machine.mac_per_s_per_sm = f64::from(gpu.fp32_lanes_per_sm) * clock * format;
        machine.smem_store = BytesPerSecond(gpu.shared_bytes_per_clock * clock);
        machine.smem_load = machine.smem_store * SMEM_LOAD_SHARE;
        machine.l1_per_sm = paper.l1_per_sm;
        machine.l2 = paper.l2;
        machine.dram = paper.dram;
        machine.lat_l1 = Seconds(paper.latency.l1_cycles / clock);
        machine.lat_l2 = Seconds(paper.latency.l2_cycles / clock);
        machine.lat_dram = Seconds(paper.latency.dram_cycles / clock);
        machine.lat_smem = Seconds(paper.latency.shared_cycles / clock);
        machine
    }

    /// The GPU from its catalogue figures alone: boost clock, datasheet arithmetic, sustained DRAM bandwidth.
    pub fn from_catalogue(gpu: &Gpu, dtype: Dtype) -> Self {
        let clock = gpu.boost_clock.0;
        let smem = BytesPerSecond(gpu.shared_bytes_per_clock * clock);
        Self {
            num_sm: gpu.sm_count,
            clock_hz: clock,
            issue_slots: issue_slots(gpu),
            mac_per_s_per_sm: gpu_rate(gpu, dtype) / 2.0 / f64::from(gpu.sm_count),
            registers_per_sm: f64::from(gpu.registers_per_sm),
            smem_per_sm: gpu.shared_per_sm,
            smem_store: smem,
            smem_load: smem * SMEM_LOAD_SHARE,
            l1_per_sm: BytesPerSecond(gpu.l1_bytes_per_clock * clock),
            l2: gpu.l2,
            dram: gpu.dram_sustained,
            lat_l1: Seconds(gpu.latency.l1_cycles / clock),
            lat_l2: Seconds(gpu.latency.l2_cycles / clock),
            lat_dram: Seconds(gpu.latency.dram_cycles / clock),
            lat_smem: Seconds(gpu.latency.shared_cycles / clock),
            l1_request_bytes: l1_request_bytes(gpu),
            sector_bytes: SECTOR_BYTES,
        }
    }

    /// Refuses a machine on which nothing could run.
    pub fn check(&self) -> Result<(), DeltaError> {
        if self.num_sm == 0 {
            return Err(DeltaError::Machine {
                figure: "the number of SMs",
                value: "0".into(),
                needed: "at least 1",
            });
        }
        let rates = [
            ("the clock", self.clock_hz),
            ("the MAC rate per SM", self.mac_per_s_per_sm),
            ("the registers per SM", self.registers_per_sm),
            ("the shared memory per SM", self.smem_per_sm.0),
            ("the shared-memory store bandwidth", self.smem_store.0),
            ("the shared-memory load bandwidth", self.smem_load.0),
            ("the L1 bandwidth per SM", self.l1_per_sm.0),
            ("the L2 bandwidth", self.l2.0),
            ("the DRAM bandwidth", self.dram.0),
            ("the L1 request", self.l1_request_bytes),
            ("the sector", self.sector_bytes),
        ];
        for (figure, value) in rates {
            if !(value > 0.0 && value.is_finite()) {
                return Err(DeltaError::Machine {
                    figure,
                    value: value.to_string(),
                    needed: "above 0 and finite",
                });
            }
        }
        let latencies = [self.lat_l1.0, self.lat_l2.0, self.lat_dram.0, self.lat_smem.0];
        if let Some(odd) = latencies.iter().find(|l| !(**l >= 0.0 && l.is_finite())) {
            return Err(DeltaError::Machine {
                figure: "a latency",
                value: odd.to_string(),
                needed: "0 or more",
            });
        }
        Ok(())
    }

    /// The same machine with this DRAM latency, such as one read off a curve of latency under load (Fig. 18).
    #[must_use]
    pub fn with_dram_latency(self, cycles: f64) -> Self {
        Self { lat_dram: Seconds(cycles / self.clock_hz), ..self }
    }

    /// BW_L2 / Num_SM, the share of one SM (Eq. 11).
    pub fn l2_per_sm(&self) -> BytesPerSecond {
        self.l2 / f64::from(self.num_sm)
    }

    /// BW_DRAM / Num_SM, the share of one SM (Eq. 11).
    pub fn dram_per_sm(&self) -> BytesPerSecond {
        self.dram / f64::from(self.num_sm)
    }
}

/// FLOP/s at which the paper's kind of kernel multiplies: the plain pipe for fp32, tensor cores where the
/// format has them.
fn gpu_rate(gpu: &Gpu, dtype: Dtype) -> f64 {
    if dtype == Dtype::Fp32 { gpu.plain_peak(dtype).0 } else { gpu.peak(dtype).0 }
}

/// A scheduler issues one instruction of a warp in a clock; Volta, Turing and the A100 gave each 16 lanes for fp32, all others as many as a warp has threads (CUDA programming
/// guide, multiprocessors by compute capability).
fn issue_slots(gpu: &Gpu) -> f64 {
    let halved = match gpu.architecture {
        Architecture::Volta | Architecture::Turing => true,
        Architecture::Ampere => gpu.compute_capability == "8.0",
        _ => false,
    };
    if halved { 2.0 } else { 1.0 }
}

/// AMD's vector L1 has lines of 64 B up to CDNA 2 and of 128 B on CDNA 3; NVIDIA: see the field.
fn l1_request_bytes(gpu: &Gpu) -> f64 {
    match (gpu.vendor, gpu.architecture) {
        (Vendor::Nvidia, Architecture::Kepler | Architecture::Maxwell | Architecture::Pascal)
        | (Vendor::Amd, Architecture::Cdna3) => 128.0,
        (Vendor::Amd, _) => 64.0,
        _ => SECTOR_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;

    #[test]
    fn table_one_of_the_paper() {
        // (GPU, SMs, GFLOPS, L1 GB/s per SM, L2 GB/s, DRAM GB/s), all as printed
        for (name, num_sm, gflops, l1, l2, dram) in [
            ("titan-xp", 30, 12_134.0, 92.0, 1051.0, 450.0),
            ("p100-pcie", 56, 8_602.0, 38.1, 1382.0, 550.0),
            ("v100-pcie-16gb", 84, 14_837.0, 94.1, 2167.0, 850.0),
        ] {
            let m = Machine::of(&catalog::find(name).unwrap(), Dtype::Fp32);
            let got = m.mac_per_s_per_sm * 2.0 * f64::from(m.num_sm) / 1e9;
            assert!((got / gflops - 1.0).abs() < 1e-3, "{name}: {got} GFLOPS, Table I says {gflops}");
            assert_eq!(m.num_sm, num_sm, "{name}");
            assert_eq!([m.l1_per_sm.gbs(), m.l2.gbs(), m.dram.gbs()], [l1, l2, dram], "{name}");
        }
    }

    #[test]
    fn every_catalogue_gpu_is_a_machine() {
        for gpu in catalog::all().unwrap() {
            for dtype in [Dtype::Fp32, Dtype::Fp16] {
                Machine::of(&gpu, dtype).check().unwrap();
                Machine::from_catalogue(&gpu, dtype).check().unwrap();
            }
        }
    }

    #[test]
    fn requests_shrink_with_volta() {
        let bytes = |name: &str| Machine::of(&catalog::find(name).unwrap(), Dtype::Fp32).l1_request_bytes;
        assert_eq!([bytes("titan-xp"), bytes("v100-pcie-16gb"), bytes("h200")], [128.0, 32.0, 32.0]);
    }

    #[test]
    fn refuses_a_chip_without_sms() {
        let mut m = Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32);
        m.num_sm = 0;
        assert!(m.check().unwrap_err().to_string().contains("number of SMs is 0"));
    }
}
