//! Completes a GPU file: every gap gets a default that is derived from what is there, and said.

use super::file::GpuFile;
use super::{Architecture, DeltaFigures, Gpu, GpuError, Latencies, Peaks, Vendor};
use preflop_units::dtype::Dtype;
use preflop_units::names::did_you_mean;
use preflop_units::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Seconds};
use serde::Serialize;

/// A figure that the file did not hold.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Assumption {
    /// Section and key.
    pub key: String,
    /// The value taken, in the unit that the key names.
    pub value: f64,
    /// Why this value.
    pub why: String,
}

struct Gaps<'a> {
    file: &'a GpuFile,
    assumptions: Vec<Assumption>,
}

impl Gaps<'_> {
    fn need(&self, key: &str, why: &str) -> Result<f64, GpuError> {
        self.file.fact(key).ok_or_else(|| GpuError::Missing {
            file: self.file.file.clone(),
            key: key.to_string(),
            why: why.to_string(),
        })
    }

    fn or(&mut self, key: &str, value: f64, why: &str) -> f64 {
        self.file.fact(key).unwrap_or_else(|| {
            self.assumptions.push(Assumption { key: key.to_string(), value, why: why.to_string() });
            value
        })
    }
}

/// Figures typical of a generation, used where a file is silent.
struct Generation {
    /// fp32 lanes of one SM.
    lanes: f64,
    /// Resident threads and blocks of one SM.
    threads: f64,
    blocks: f64,
    /// KiB of shared memory per SM and per block, of L1 per SM.
    shared_sm: f64,
    shared_block: f64,
    l1: f64,
    /// Bytes per clock: L2 per SM, L1 per SM.
    l2_clock: f64,
    l1_clock: f64,
    /// L2 capacity in MiB per SM.
    l2_mib_per_sm: f64,
    /// Share of the tensor peak that large products hold, and the board watts per datasheet TFLOP/s of the GPU on
    /// which it was measured (0: not limited by power).
    tensor_share: f64,
    tensor_watts: f64,
    /// Share of the plain fp32 peak that large products hold.
    plain_share: f64,
    /// Share of the DRAM bandwidth that good kernels hold.
    dram_share: f64,
    /// Watts that one sustained fp32 TFLOP/s takes.
    watts_per_tflop: f64,
    /// Microseconds of an empty kernel in a row.
    floor_us: f64,
    /// Cycles: L1, shared, L2, DRAM.
    cycles: [f64; 4],
}

/// Share of the plain fp32 peak that large products hold on SMs with 128 lanes on the shared memory of 64 (H200 0.79).
const WIDE_SHARE: f64 = 0.79;

/// Typical figures by generation.
///
/// Sources: CUDA programming guide (limits); the catalogue's own measured files for L2 bytes per clock
/// (V100 22, TITAN Xp 22, A100 36, L40S 15, H200 37, MI210 28, MI300X 23); tensor shares from large bf16
/// products (A100 0.84, H100 0.82, L40S 0.67 at 350 W, B200 0.71) and, on AMD, fp32 ones (MI100 0.75); plain shares from
/// large fp32 products (P100 0.96, V100 1.0, A100 0.98 before its power limit binds, H200 0.79); DRAM shares from long elementwise calls and large products
/// (P4 and T4 0.75, P100 0.76, TITAN Xp 0.82, V100 0.91, A100 0.85-0.89, L40S 0.86, H100, H200 and B200 0.89, MI100 0.81); watts per TFLOP/s from long products on
/// power-limited cards (P4 17.9 on 16 nm, T4 16.7 on 12 nm, A100 PCIe 14.7). Ada's, which nobody measured, lies between the T4's by what the
/// datasheets of L4 and T4 say (4.7) and the A100's by those of H100 PCIe and A100 PCIe (7.8).
fn generation(architecture: Architecture) -> Generation {
    let base = Generation {
        lanes: 128.0,
        threads: 2048.0,
        blocks: 32.0,
        shared_sm: 96.0,
        shared_block: 48.0,
        l1: 128.0,
        l2_clock: 35.0,
        l1_clock: 128.0,
        l2_mib_per_sm: 0.4,
        tensor_share: 0.8,
        tensor_watts: 0.0,
        plain_share: 0.9,
        dram_share: 0.85,
        watts_per_tflop: 5.5,
        floor_us: 2.2,
        cycles: [35.0, 25.0, 220.0, 500.0],
    };
    match architecture {
        // Nobody measured these two for the project: Pascal's shares, the limits of the CUDA programming guide.
        Architecture::Kepler => Generation {
            lanes: 192.0,
            blocks: 16.0,
            shared_sm: 48.0,
            l1: 16.0,
            l2_clock: 21.0,
            l1_clock: 64.0,
            l2_mib_per_sm: 0.1,
            dram_share: 0.75,
            watts_per_tflop: 30.0,
            plain_share: 0.75,
            floor_us: 4.0,
            cycles: [35.0, 26.0, 200.0, 400.0],
            ..base
        },
        Architecture::Maxwell => Generation {
            l1: 24.0,
            l2_clock: 21.0,
            l1_clock: 64.0,
            l2_mib_per_sm: 0.12,
            dram_share: 0.77,
            watts_per_tflop: 30.0,
            plain_share: 0.95,
            floor_us: 3.5,
            cycles: [82.0, 24.0, 207.0, 400.0],
            ..base
        },
        Architecture::Pascal => Generation {
            l1: 48.0,
            l2_clock: 21.0,
            l1_clock: 64.0,
            l2_mib_per_sm: 0.08,
            dram_share: 0.77,
            watts_per_tflop: 17.0,
            plain_share: 0.97,
            floor_us: 3.0,
            cycles: [82.0, 24.0, 216.0, 500.0],
            ..base
        },
        Architecture::Volta => Generation {
            lanes: 64.0,
            shared_block: 96.0,
            l2_clock: 22.0,
            l2_mib_per_sm: 0.075,
            dram_share: 0.9,
            watts_per_tflop: 17.0,
            plain_share: 0.97,
            floor_us: 2.6,
            cycles: [30.0, 24.0, 215.0, 430.0],
            ..base
        },
        Architecture::Turing => Generation {
            lanes: 64.0,
            threads: 1024.0,
            blocks: 16.0,
            shared_sm: 64.0,
            shared_block: 64.0,
            l1: 96.0,
            l2_clock: 13.0,
            l1_clock: 64.0,
            l2_mib_per_sm: 0.09,
            dram_share: 0.8,
            tensor_share: 0.75,
            watts_per_tflop: 17.0,
            plain_share: 0.97,
            floor_us: 2.6,
            ..base
        },
        Architecture::Ampere => Generation {
            shared_sm: 164.0,
            shared_block: 163.0,
            l1: 192.0,
            tensor_share: 0.84,
            plain_share: 0.97,
            watts_per_tflop: 14.7,
            ..base
        },
        Architecture::Ada => Generation {
            threads: 1536.0,
            blocks: 24.0,
            shared_sm: 100.0,
            shared_block: 99.0,
            l2_clock: 15.0,
            l2_mib_per_sm: 0.6,
            tensor_share: 0.67,
            tensor_watts: 0.967,
            plain_share: WIDE_SHARE,
            watts_per_tflop: 6.25,
            ..base
        },
        Architecture::Hopper => Generation {
            shared_sm: 228.0,
            shared_block: 227.0,
            l1: 256.0,
            tensor_share: 0.81,
            tensor_watts: 0.708,
            plain_share: WIDE_SHARE,
            dram_share: 0.89,
            ..base
        },
        Architecture::Blackwell => Generation {
            shared_sm: 228.0,
            shared_block: 227.0,
            l1: 256.0,
            l2_mib_per_sm: 0.85,
            tensor_share: 0.76,
            plain_share: WIDE_SHARE,
            dram_share: 0.89,
            watts_per_tflop: 5.0,
            ..base
        },
        Architecture::Vega | Architecture::Cdna1 | Architecture::Cdna2 | Architecture::Cdna3 => Generation {
            lanes: 64.0,
            shared_sm: 64.0,
            shared_block: 64.0,
            l1: 16.0,
            l2_clock: if architecture == Architecture::Cdna1 { 15.0 } else { 24.0 },
            l1_clock: 64.0,
            l2_mib_per_sm: 0.06,
            tensor_share: if architecture == Architecture::Cdna3 { 0.52 } else { 0.75 },
            watts_per_tflop: 8.0,
            floor_us: 4.0,
            cycles: [120.0, 60.0, 220.0, 600.0],
            ..base
        },
        Architecture::Other => base,
    }
}

const TYPICAL: &str = "typical of this generation";

/// Fills all gaps of a GPU file.
pub(super) fn complete(file: GpuFile) -> Result<Gpu, GpuError> {
    let architecture = architecture(&file)?;
    let vendor = vendor(&file)?;
    let typical = generation(architecture);
    let typical = match file.fact("chip_limits.fp32_lanes_per_sm") {
        // The Ampere of desks and workstations has twice the lanes of an A100's SM.
        Some(lanes) if architecture == Architecture::Ampere && lanes > 64.0 => {
            Generation { plain_share: WIDE_SHARE, ..typical }
        }
        _ => typical,
    };
    let mut g = Gaps { file: &file, assumptions: Vec::new() };

    let sm = g.need("chip_limits.sm_count", "every time and traffic figure depends on it")?;
    let boost = g.need("chip_limits.boost_mhz", "rates per clock need it")?;
    let dram = g.need("memory.dram_gbs", "memory-bound operators need it")?;
    let (plain, tensor) = peaks(&mut g, sm, boost)?;
    let fp32 = plain.get(Dtype::Fp32).unwrap_or(FlopsPerSecond(1e12)).tflops();

    let lanes = (fp32 * 1e6 / (2.0 * sm * boost)).round().max(1.0);
    let tdp = g.or("power.tdp_w", 300.0, "common board power; only energy and power-limited rates use it");
    let base_mhz = g.or("chip_limits.base_mhz", boost * 0.8, "0.8 of the boost clock");
    let l2_default = sm * typical.l2_mib_per_sm;
    let l2_rate = sm * boost * 1e6 * typical.l2_clock / 1e9;
    let clocks = sm * boost * 1e6;
    let half_rate = tensor.get(Dtype::Fp16).is_some_and(|p| p.0 <= HALF_RATE * clocks);
    let plain_share = typical.plain_share * if half_rate { ABOVE_BOOST } else { 1.0 };
    let typical = Generation { plain_share, ..typical };
    let sustained = sustained_peaks(&mut g, &plain, &tensor, tdp, clocks, &typical);
    let delta = delta_figures(&file, typical.cycles[3]);
    let l2_nominal = g.or("memory.l2_gbs", l2_rate, "bytes per clock and SM typical of this generation");
    let dram_sustained = g.or(
        "sustained.dram_gbs",
        dram * dram_share(file.text("memory.dram_kind"), architecture, (tdp, half_rate), &typical),
        "datasheet x the share that good kernels hold on this generation and kind of memory",
    );

    let gpu = Gpu {
        name: file.text("name").unwrap_or("custom").to_string(),
        title: file.text("title").or(file.text("name")).unwrap_or("custom GPU").to_string(),
        vendor,
        architecture,
        chip: file.text("chip").unwrap_or_default().to_string(),
        compute_capability: file.text("compute_capability").unwrap_or_default().to_string(),
        form: file.text("form").unwrap_or_default().to_string(),
        release_year: file.fact("release_year").map(|y| y as u32),
        sm_count: sm as u32,
        base_clock: Hertz(base_mhz * 1e6),
        boost_clock: Hertz(boost * 1e6),
        usual_clock: Hertz(boost * 1e6 * if half_rate { HALF_RATE_SHARE } else { 1.0 }),
        fp32_lanes_per_sm: g.or(
            "chip_limits.fp32_lanes_per_sm",
            if fp32 > 0.0 { lanes } else { typical.lanes },
            "fp32 peak / (2 x SMs x boost clock)",
        ) as u32,
        registers_per_sm: g.or("chip_limits.registers_per_sm", 65536.0, TYPICAL) as u32,
        shared_per_sm: Bytes(
            g.or("chip_limits.shared_memory_per_sm_kib", typical.shared_sm, TYPICAL) * 1024.0,
        ),
        shared_per_block: Bytes(
            g.or("chip_limits.shared_memory_per_block_kib", typical.shared_block, TYPICAL) * 1024.0,
        ),
        l1_per_sm: Bytes(g.or("chip_limits.l1_per_sm_kib", typical.l1, TYPICAL) * 1024.0),
        threads_per_sm: g.or("chip_limits.threads_per_sm", typical.threads, TYPICAL) as u32,
        blocks_per_sm: g.or("chip_limits.blocks_per_sm", typical.blocks, TYPICAL) as u32,
        warp_size: g.or("chip_limits.warp_size", if vendor == Vendor::Amd { 64.0 } else { 32.0 }, TYPICAL)
            as u32,
        memory: Bytes(
            g.or("memory.capacity_gib", 16.0, "a common size; only `fits` uses it") * f64::from(1 << 30),
        ),
        dram_kind: file.text("memory.dram_kind").unwrap_or("DRAM").to_string(),
        dram: BytesPerSecond::from_gbs(dram),
        dram_sustained: BytesPerSecond::from_gbs(dram_sustained),
        l2_size: Bytes::from_mib(g.or("memory.l2_mib", l2_default, "L2 per SM typical of this generation")),
        l2: BytesPerSecond::from_gbs(file.fact("sustained.l2_gbs").unwrap_or(l2_nominal)),
        l1_bytes_per_clock: g.or("memory.l1_bytes_per_clk_per_sm", typical.l1_clock, TYPICAL),
        shared_bytes_per_clock: g.or("memory.shared_bytes_per_clk_per_sm", 128.0, "32 banks of 4 bytes"),
        host_interface: file.text("memory.host_interface").unwrap_or("PCIe").to_string(),
        host: BytesPerSecond::from_gbs(g.or("memory.host_gbs", 25.0, "PCIe 4.0 x16 in practice")),
        link: file
            .text("link.kind")
            .zip(file.fact("link.gbs"))
            .map(|(kind, gbs)| (kind.to_string(), BytesPerSecond::from_gbs(gbs))),
        peer_access: peer_access(&file, half_rate)?,
        latency: Latencies {
            l1_cycles: g.or("latency.l1_cycles", typical.cycles[0], TYPICAL),
            shared_cycles: g.or("latency.shared_cycles", typical.cycles[1], TYPICAL),
            l2_cycles: g.or("latency.l2_cycles", typical.cycles[2], TYPICAL),
            dram_cycles: g.or("latency.dram_cycles", typical.cycles[3], TYPICAL),
        },
        plain,
        tensor,
        sustained,
        plain_limit: FlopsPerSecond::from_tflops(plain_limit(
            plain.get(Dtype::Fp32).unwrap_or(FlopsPerSecond(1e12)),
            tdp,
            &typical,
        )),
        plain_burst: FlopsPerSecond::from_tflops(typical.plain_share * fp32),
        tdp_w: tdp,
        idle_w: g.or("power.idle_w", tdp * 0.12, "0.12 of the board power, as idle data-centre cards draw"),
        kernel_floor: Seconds::from_us(g.or("launch.kernel_us", typical.floor_us, TYPICAL)),
        host_launch: Seconds::from_us(g.or("launch.host_us", 5.0, "one CUDA launch call on a server CPU")),
        delta,
        facts: Vec::new(),
        assumptions: Vec::new(),
    };
    let assumptions = g.assumptions;
    Ok(Gpu { facts: file.facts, assumptions, ..gpu })
}

fn architecture(file: &GpuFile) -> Result<Architecture, GpuError> {
    let Some(name) = file.text("architecture") else { return Ok(Architecture::Other) };
    Architecture::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| GpuError::Value {
        file: file.file.clone(),
        key: "architecture".to_string(),
        problem: format!(
            "is `{name}`, which is not known{}; `other` works for anything else",
            did_you_mean(name, Architecture::ALL.iter().map(|a| a.name()))
        ),
    })
}

/// Peer access over the host bus: as the file says, else by what sets boards for desks apart, half-rate sums of their tensor pipes.
fn peer_access(file: &GpuFile, half_rate: bool) -> Result<bool, GpuError> {
    match file.text("link.peer") {
        None => Ok(!half_rate),
        Some("direct") => Ok(true),
        Some("host") => Ok(false),
        Some(other) => Err(GpuError::Value {
            file: file.file.clone(),
            key: "link.peer".to_string(),
            problem: format!("is `{other}`; it must be direct or host"),
        }),
    }
}

fn vendor(file: &GpuFile) -> Result<Vendor, GpuError> {
    match file.text("vendor") {
        None | Some("other") => Ok(Vendor::Other),
        Some("nvidia") => Ok(Vendor::Nvidia),
        Some("amd") => Ok(Vendor::Amd),
        Some(name) => Err(GpuError::Value {
            file: file.file.clone(),
            key: "vendor".to_string(),
            problem: format!("is `{name}`; it must be nvidia, amd or other"),
        }),
    }
}

fn rate_key(section: &str, dtype: Dtype) -> String {
    let unit = if dtype == Dtype::Int8 { "tops" } else { "tflops" };
    format!("{section}.{}_{unit}", dtype.name())
}

fn peaks(g: &mut Gaps, sm: f64, boost_mhz: f64) -> Result<(Peaks, Peaks), GpuError> {
    let (mut plain, mut tensor) = (Peaks::default(), Peaks::default());
    for d in Dtype::MATH {
        if let Some(t) = g.file.fact(&rate_key("peak.plain", d)) {
            plain.set(d, FlopsPerSecond::from_tflops(t));
        }
        if let Some(t) = g.file.fact(&rate_key("peak.tensor", d)) {
            tensor.set(d, FlopsPerSecond::from_tflops(t));
        }
    }
    if plain.get(Dtype::Fp32).is_none() {
        let lanes = g.file.fact("chip_limits.fp32_lanes_per_sm");
        let Some(lanes) = lanes else {
            return Err(GpuError::Missing {
                file: g.file.file.clone(),
                key: "peak.plain.fp32_tflops".to_string(),
                why: "give it, or `chip_limits.fp32_lanes_per_sm` to derive it from".to_string(),
            });
        };
        let t = g.or(
            "peak.plain.fp32_tflops",
            2.0 * sm * lanes * boost_mhz / 1e6,
            "2 x SMs x lanes x boost clock",
        );
        plain.set(Dtype::Fp32, FlopsPerSecond::from_tflops(t));
    }
    Ok((plain, tensor))
}

/// fp32 rate that datasheet and power limit allow.
fn plain_limit(peak: FlopsPerSecond, tdp_w: f64, typical: &Generation) -> f64 {
    (tdp_w / typical.watts_per_tflop).min(typical.plain_share * peak.tflops())
}

/// Share of the datasheet's bandwidth that good kernels hold. GDDR6 boards with room for power hold more than the inference cards and data-centre
/// boards that the generations' figures come from: whole image networks on an RTX 3090, a 2080 Ti and others fit with 0.90 to 0.95. Inference cards of Pascal and
/// Turing, whose memory keeps its check bits beside the data, hold less, as do boards that are no GeForce, of which check bits take a sixteenth: an L40S has 44.4 of its 48 GB and holds 0.855; a P4 0.75 and a T4 0.76, in elementwise calls of any length without the host's time.
fn dram_share(
    kind: Option<&str>,
    architecture: Architecture,
    (tdp_w, half_rate): (f64, bool),
    typical: &Generation,
) -> f64 {
    const GDDR6: f64 = 0.91;
    const ROOM_W: f64 = 150.0;
    /// What check bits leave.
    const UNCHECKED: f64 = 15.0 / 16.0;
    const FEW: f64 = 0.76;
    const FEW_W: f64 = 80.0;
    use Architecture as A;
    let newer = matches!(architecture, A::Turing | A::Ampere | A::Ada | A::Blackwell);
    let gddr = kind.is_some_and(|k| k.starts_with("GDDR6") || k.starts_with("GDDR7"));
    match () {
        () if matches!(architecture, A::Pascal | A::Turing)
            && kind.is_some_and(|k| k.starts_with("GDDR"))
            && tdp_w <= FEW_W =>
        {
            FEW
        }
        () if newer && gddr && tdp_w >= ROOM_W => GDDR6 * if half_rate { 1.0 } else { UNCHECKED },
        () => typical.dram_share,
    }
}

/// Tensor FLOP per clock and SM up to which a board sums in fp32 at half the rate of its chip.
const HALF_RATE: f64 = 600.0;
/// What such boards hold of their datasheet's rate: at half rate no power limit binds, and they run above the boost clock. Image transformers on three
/// of them fit with 1.05 to 1.15; owners see 1.85 GHz on an RTX 3090 (1.695 in the datasheet) and 1.75 to 1.9 on an RTX 2080 Ti (1.545).
const HALF_RATE_SHARE: f64 = 1.10;

/// Such boards are GeForce boards: their datasheets name a usual clock, and cooled well they run above it. fp32 networks on an RTX 2080 Ti are predicted 5 to 17 % long
/// without it.
const ABOVE_BOOST: f64 = HALF_RATE_SHARE;

/// Rates that large products hold: measured if the file has them, else
/// tensor: datasheet x the generation's share; plain fp32: min(share x datasheet, TDP / watts per TFLOP/s).
///
/// A board with less power per TFLOP/s than the one whose share was measured runs slower by the square root: an H100
/// with half the watts holds 0.66 of its peak, not 0.41.
///
/// `clocks` are the SMs' clocks per second, all SMs together.
fn sustained_peaks(
    g: &mut Gaps,
    plain: &Peaks,
    tensor: &Peaks,
    tdp_w: f64,
    clocks: f64,
    typical: &Generation,
) -> Peaks {
    let mut out = Peaks::default();
    // A measured 16-bit share carries over to the other tensor formats of the same chip.
    let measured_share = [Dtype::Bf16, Dtype::Fp16].into_iter().find_map(|d| {
        Some(FlopsPerSecond::from_tflops(g.file.fact(&rate_key("sustained", d))?) / tensor.get(d)?)
    });
    let half = tensor.get(Dtype::Bf16).or_else(|| tensor.get(Dtype::Fp16));
    let power = match half {
        Some(peak) if typical.tensor_watts > 0.0 => {
            (tdp_w / peak.tflops() / typical.tensor_watts).sqrt().min(1.0)
        }
        _ => 1.0,
    };
    // By fp16: an MI100 runs bf16 at half of it and is no such board.
    let half_rate = tensor.get(Dtype::Fp16).or(half).is_some_and(|peak| peak.0 / clocks <= HALF_RATE);
    let share = if half_rate { HALF_RATE_SHARE } else { typical.tensor_share * power };
    for d in Dtype::MATH {
        let key = rate_key("sustained", d);
        let (value, why) = if let Some(peak) = tensor.get(d) {
            match measured_share {
                Some(share) => (peak.tflops() * share, "datasheet x the share measured for 16-bit products"),
                None => (
                    peak.tflops() * share,
                    "datasheet x the share typical of this generation, rate of sums and power limit",
                ),
            }
        } else if let Some(peak) = plain.get(d) {
            let value = if d == Dtype::Fp32 {
                plain_limit(peak, tdp_w, typical)
            } else {
                typical.plain_share * peak.tflops()
            };
            (value, "the lower of datasheet x a share and what the power limit allows")
        } else {
            continue;
        };
        out.set(d, FlopsPerSecond::from_tflops(g.or(&key, value, why)));
    }
    for d in [Dtype::Fp16, Dtype::Bf16] {
        // 16-bit products run on the fp32 pipe where that is faster.
        if let (None, Some(own), Some(fp32)) = (tensor.get(d), out.get(d), out.get(Dtype::Fp32)) {
            out.set(d, own.max(fp32));
        }
    }
    out
}

/// Table I prints no latencies: a DRAM latency that the file lacks is the generation's.
fn delta_figures(file: &GpuFile, typical_dram_cycles: f64) -> Option<DeltaFigures> {
    let d = |key: &str| file.fact(&format!("delta.{key}"));
    Some(DeltaFigures {
        num_sm: d("num_sm")? as u32,
        clock: Hertz(d("clk_mhz")? * 1e6),
        dram: BytesPerSecond::from_gbs(d("bw_dram_gbs")?),
        l2: BytesPerSecond::from_gbs(d("bw_l2_gbs")?),
        l1_per_sm: BytesPerSecond::from_gbs(d("bw_l1_gbs_per_sm")?),
        latency: Latencies {
            l1_cycles: d("l1_cycles")?,
            shared_cycles: d("shared_cycles")?,
            l2_cycles: d("l2_cycles")?,
            dram_cycles: d("dram_cycles")
                .or_else(|| file.fact("latency.dram_cycles"))
                .unwrap_or(typical_dram_cycles),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const SMALL: &str = "[chip_limits]\nsm_count = 10\nboost_mhz = 1000\n[memory]\ndram_gbs = 100\n[peak.plain]\nfp32_tflops = 2.56\n";

    #[test]
    fn a_small_file_is_completed_and_says_so() {
        let gpu = parse(SMALL, "small.toml").unwrap();
        // 2.56e12 / (2 * 10 * 1e9) = 128 lanes
        assert_eq!(gpu.fp32_lanes_per_sm, 128);
        assert!((gpu.dram_sustained.gbs() - 85.0).abs() < 1e-9);
        assert!(gpu.assumptions.iter().any(|a| a.key == "sustained.dram_gbs"));
        assert_eq!(gpu.peak(Dtype::Bf16), gpu.peak(Dtype::Fp32));
    }

    #[test]
    fn slow_bf16_does_not_make_a_board_for_desks() {
        let file =
            format!("{SMALL}[peak.tensor]\nfp16_tflops = 10.24\nbf16_tflops = 5.12\nfp32_tflops = 2.56\n");
        let gpu = parse(&file, "small.toml").unwrap();
        assert!(gpu.sustained_peak(Dtype::Fp32).tflops() < 2.56);
    }

    #[test]
    fn wrong_files_say_what_and_where() {
        let say = |text: &str| parse(text, "x.toml").unwrap_err().to_string();
        assert!(say("").contains("chip_limits.sm_count"));
        assert!(say("a = [").contains("line 1"));
        assert!(
            say(&SMALL.replace("sm_count = 10", "sm_cuont = 10"))
                .contains("did you mean `chip_limits.sm_count`")
        );
        assert!(say(&SMALL.replace("sm_count = 10", "sm_count = 0")).contains("from 1 to"));
        assert!(say(&SMALL.replace("sm_count = 10", "sm_count = nan")).contains("NaN"));
        assert!(say(&SMALL.replace("sm_count = 10", "sm_count = \"ten\"")).contains("must be a number"));
        assert!(say(&format!("architecture = \"hoper\"\n{SMALL}")).contains("`hopper`"));
    }
}
