//! From an operator to the kernels a library would launch: tiles, waves, split-K, algorithm.

pub mod attention;
pub mod conv;
pub mod conv_features;
pub mod conv_form;
pub mod depthwise;
pub mod fused;
pub mod gemm;
pub mod launch;
pub mod linear;
pub mod listed;
pub mod plain_conv;
pub mod plain_rivals;
pub mod rnn;
pub mod rnn_older;
pub mod row_reads;
pub mod rows;
pub mod skinny;
pub mod stream;
pub mod tensor_conv;
pub mod tile;
pub mod traffic;

use preflop_gpu::{Architecture, Gpu, Vendor};
use preflop_units::dtype::Dtype;
use preflop_units::math::Elementary as _;
use tile::Tiling;

/// The few figures of a GPU that the closed forms use, for one number format. SI units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Streaming multiprocessors.
    pub sm: f64,
    /// Sustained FLOP/s of matrix products in this format.
    pub peak: f64,
    /// FLOP/s of products too short for the board's power limit to bind, if that is more.
    pub burst: f64,
    /// Seconds up to which a product is as short as that, and from which on it runs at `peak`.
    pub lasting: [f64; 2],
    /// Sustained DRAM bytes per second.
    pub dram: f64,
    /// L2 bytes per second.
    pub l2: f64,
    /// L2 capacity in bytes.
    pub l2_size: f64,
    /// Bytes per second of operands that stayed in the L2 since the last call.
    pub hot: f64,
    /// Bytes up to which operands stay there.
    pub hot_size: f64,
    /// The same of the GPU whose constants apply.
    pub fitted_size: f64,
    /// What competes for those bytes from one call to the next.
    pub reuse: Reuse,
    /// Seconds that one result of a tile takes an SM, per element of the sum that it costs ([`tile::Constants::drain`]).
    pub drain: f64,
    /// Latencies over those at the clock of the GPU whose kernels were measured first, an H200.
    pub latency: f64,
    /// Do arithmetic and traffic hinder each other where they take about as long?
    pub soft: bool,
    /// How far SMs that have finished go on with CTAs of others: with 0 the last wave takes as long as a full one, with 1 as long as its share of one.
    pub uneven: f64,
    /// Least length of a part of a sum that is split.
    pub min_part: f64,
    /// Are operands read in pieces along the sum ([`row_reads`])?
    pub in_pieces: bool,
}

/// How calls of one shape follow each other in a measurement: over how many sets of operands, and how sharply the L2
/// gives way once they exceed it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reuse {
    /// Sets of operands in turn.
    pub sets: f64,
    /// Share of the bytes that stay at which the first operands are lost, and at which all are.
    pub edge: [f64; 2],
}

impl Reuse {
    /// The project's own way: up to eight sets. The ramp stands for the L2's imperfect replacement.
    pub const OWN: Self = Self { sets: 8.0, edge: [0.8, 1.2] };
    /// The way of a server's measurements: layers of one shape in turn. Operands that no longer fit are
    /// lost all at once, as each is read again only after all others: published rows of an L40S (96 MiB) fall from 1.1 to 0.6 TB/s
    /// between 16 and 17.5 MiB of weights each, 0.83 and 0.91 of the L2 with five sets, and from 0.9 to 0.5 TB/s between 14 and 16 MiB of inputs beside
    /// 1 MiB of weights. The project's own rows of an H200 have one input; they fit as well either way (6.9 and 7.0 %).
    pub const SERVED: Self = Self { sets: 5.0, edge: [0.85, 0.95] };

    /// Share of a call's bytes that come from DRAM: operands `first` and `second` and the result, in bytes.
    pub fn miss(&self, [first, second, result]: [f64; 3], stay: f64) -> f64 {
        let all = self.sets * (first + second) + result;
        let [from, to] = self.edge;
        ((all / stay - from) / (to - from)).clamp(0.0, 1.0)
    }
}

/// Boost clock at which [`Machine::latency`] is 1.
const LATENCY_CLOCK: f64 = 1.98e9;
/// Share of the datasheet's DRAM bandwidth that good kernels hold.
const DRAM_SHARE: f64 = 0.85;

/// Calls up to the first run as fast as the clock allows, from the second on as the board's power limit allows: measured
/// one by one, with pauses between them, short calls leave the average power below the limit. P4, T4 and A100 show it; the
/// figures are those with which V100, A100 and T4 are best predicted from each other.
const PLAIN_LASTING: [f64; 2] = [0.1e-3, 5e-3];

/// The same of 16-bit products on tensor cores in published rows of A100, H100, L40S and B200: up to a millisecond they run as fast as any, those of a tenth of a second at
/// 0.95, 0.73, 0.75 and 0.68 of that with each GPU's own constants.
const TENSOR_LASTING: [f64; 2] = [1e-3, 0.1];
/// Watts per datasheet TFLOP/s of 16-bit tensor cores from which the power limit does not bind; with fewer they hold the square root of the share. An A100 has 1.28, an L40S 0.97, an H100 0.71
/// and a B200 0.44.
const TENSOR_WATTS: f64 = 1.4;

/// How far a server's products go on with other CTAs where SMs have finished ([`Machine::uneven`]). In a prototype the closed form is 10.8 % off without it in the mean of A100, B200 and L40S, each left out, 10.6 with
/// 0.6 and 10.5 with 0.8, on the same rows; with their own constants H100 and H200 come closer too. Published fp32 products do not.
const UNEVEN: f64 = 0.6;
/// Least length of a part of a sum in a server's products: 64, 128 and 256 leave 10.7, 10.7 and 11.0 % there.
const SERVED_PART: f64 = 64.0;

/// What convolutions run faster than long products where the power limit binds. With it P4, T4 and V100 are best predicted from each other.
const LIGHTER: f64 = 1.4;

impl Machine {
    /// The machine as products of this format see it.
    pub fn of(gpu: &Gpu, dtype: Dtype) -> Self {
        Self {
            sm: f64::from(gpu.sm_count),
            peak: gpu.sustained_peak(dtype).0,
            burst: 0.0,
            lasting: PLAIN_LASTING,
            dram: gpu.dram_sustained.0,
            l2: gpu.l2.0,
            l2_size: gpu.l2_size.0,
            hot: gpu.l2.0,
            hot_size: gpu.l2_size.0,
            fitted_size: gpu.l2_size.0,
            reuse: Reuse::OWN,
            drain: drain(gpu, dtype),
            latency: LATENCY_CLOCK / gpu.boost_clock.0,
            soft: false,
            uneven: 0.0,
            min_part: gemm::MIN_PART,
            in_pieces: false,
        }
    }

    /// The machine as products of an inference server see it. A100 and Hopper have an L2 in two halves that both
    /// keep what all SMs read, so half of it counts.
    pub fn served(gpu: &Gpu, dtype: Dtype) -> Self {
        let halves = gpu.architecture == Architecture::Hopper || gpu.compute_capability == "8.0";
        let own = Self::of(gpu, dtype);
        let hot_size = own.l2_size * if halves { 0.5 } else { 1.0 };
        Self {
            peak: own.peak * lasting_share(gpu),
            burst: own.peak,
            lasting: TENSOR_LASTING,
            hot_size,
            fitted_size: hot_size,
            reuse: Reuse::SERVED,
            soft: true,
            uneven: UNEVEN,
            min_part: SERVED_PART,
            ..own
        }
    }

    /// The machine as fp32 convolutions on plain pipes see it: by datasheet and power limit, since measured rates of
    /// products do not carry over to them (a T4 runs convolutions faster), and with operands from DRAM.
    pub fn convolution(gpu: &Gpu, dtype: Dtype) -> Self {
        let own = Self::of(gpu, dtype);
        let peak = (LIGHTER * gpu.plain_limit.0).min(gpu.plain_burst.0);
        Self { peak, dram: DRAM_SHARE * gpu.dram.0, hot_size: 1.0, fitted_size: 1.0, ..own }
    }

    /// The machine as published fp32 products on plain pipes see it.
    pub fn plain(gpu: &Gpu, dtype: Dtype) -> Self {
        Self { soft: true, burst: gpu.plain_burst.0, ..Self::of(gpu, dtype) }
    }

    /// This machine with constants that were fitted on another.
    #[must_use]
    pub fn fitted_on(self, other: &Self) -> Self {
        Self { fitted_size: other.hot_size, ..self }
    }

    /// What `form` says of a call, with the rate that the power limit allows for as long as the call takes.
    pub fn by_length(&self, form: impl Fn(&Self) -> Tiling) -> Tiling {
        if self.burst <= self.peak {
            return form(self);
        }
        let [free, limited] = self.lasting;
        let mut tiling = form(&Self { peak: self.burst, ..*self });
        // A longer call has a lower rate, which makes it longer: two rounds come within 1 %.
        for _ in 0..2 {
            if tiling.time <= free {
                break;
            }
            let long = (tiling.time / free).natural_log() / (limited / free).natural_log();
            let peak = self.burst * (self.peak / self.burst).power(long.min(1.0));
            tiling = form(&Self { peak, ..*self });
        }
        tiling
    }
}

/// Share of their rate that long 16-bit products keep under the board's power limit. AMD's typical rates come from long products.
fn lasting_share(gpu: &Gpu) -> f64 {
    let half = gpu.tensor.get(Dtype::Bf16).or_else(|| gpu.tensor.get(Dtype::Fp16));
    match half {
        Some(peak) if gpu.vendor == Vendor::Nvidia => {
            (gpu.tdp_w / peak.tflops() / TENSOR_WATTS).sqrt().min(1.0)
        }
        _ => 1.0,
    }
}

/// The generation whose kernels libraries run on a GPU: Blackwell for desks and workstations (compute capability 12)
/// has the tensor instructions of Ada, not those of the B200; Kepler's and Maxwell's are taken for Pascal's, the oldest that were measured.
pub fn kernels_of(gpu: &Gpu) -> Architecture {
    match gpu.architecture {
        Architecture::Kepler | Architecture::Maxwell => Architecture::Pascal,
        _ if gpu.compute_capability.starts_with("12.") => Architecture::Ada,
        other => other,
    }
}

/// FLOP per clock of one SM of the H200 in sustained 16-bit products: 790 TFLOP/s of 132 SMs at 1.98 GHz.
const REFERENCE_RATE: f64 = 3023.0;

/// Seconds that one result takes an SM, per element of the sum. Kernels for Hopper and the B200 store one tile while
/// they compute the next, so what is left follows the rate of their sums; before, an SM stores by the clock.
fn drain(gpu: &Gpu, dtype: Dtype) -> f64 {
    if matches!(kernels_of(gpu), Architecture::Hopper | Architecture::Blackwell) {
        2.0 * f64::from(gpu.sm_count) / gpu.sustained_peak(dtype).0
    } else {
        2.0 / (REFERENCE_RATE * gpu.boost_clock.0)
    }
}

/// Largest power of two that divides `x`, at most `cap`.
pub fn alignment(x: u64, cap: u64) -> u64 {
    if x == 0 { cap } else { (1 << x.trailing_zeros().min(62)).min(cap) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_gpu::catalog;
    use preflop_ops::Gemm;
    use tile::Constants;

    /// FLOP/s of a square product.
    fn rate(gpu: &str, edge: u64, limited: bool) -> f64 {
        let gpu = catalog::find(gpu).unwrap();
        let machine = Machine::plain(&gpu, Dtype::Fp32);
        let machine = Machine { burst: if limited { machine.burst } else { 0.0 }, ..machine };
        let g = Gemm::linear(edge, edge, edge, false);
        let t = gemm::plain_form(&g, &Constants::START, &machine, gpu.architecture);
        2.0 * (edge as f64).powi(3) / t.time
    }

    #[test]
    fn long_products_on_tensor_cores_run_into_the_power_limit() {
        let rate = |gpu: &str, edge: u64| {
            let gpu = catalog::find(gpu).unwrap();
            let machine = Machine::served(&gpu, Dtype::Bf16);
            let g = Gemm::linear(edge, edge, edge, false);
            2.0 * (edge as f64).powi(3) / gemm::form(&g, Dtype::Bf16, &Constants::START, &machine).time
        };
        let kept = |gpu: &str| rate(gpu, 65_536) / rate(gpu, 8192);
        assert!(kept("b200") < 0.8 && kept("h100-sxm") < 0.9 && kept("a100-sxm-80gb") > 0.93);
        assert!(kept("v100-sxm2-16gb") >= 1.0);
    }

    #[test]
    fn short_products_run_above_the_power_limit() {
        assert!(rate("t4", 768, true) > 1.2 * rate("t4", 768, false));
        assert_eq!(rate("t4", 8192, true), rate("t4", 8192, false));
        // A V100 has the watts.
        assert_eq!(rate("v100-pcie-32gb", 768, true), rate("v100-pcie-32gb", 768, false));
    }
}
