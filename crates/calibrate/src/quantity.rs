//! The figures that a calibration measures: where each stands in a GPU file, and how noisy it may be.

/// One figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// Key in `[measured]`.
    pub key: &'static str,
    /// What it is, for notes and tables.
    pub what: &'static str,
    /// Largest spread (see `stats`) that still counts as a measurement.
    pub limit: f64,
    /// The figure of the model that this one replaces: section and key.
    pub model: Option<&'static str>,
    /// Replaces it only where the GPU is not in the catalogue: there a datasheet or a longer measurement knows better.
    pub fallback: bool,
    /// A cost that the host's processor sets: the quickest of several visits counts, and runs differ more.
    pub host: bool,
}

const fn q(key: &'static str, limit: f64, model: Option<&'static str>, what: &'static str) -> Quantity {
    Quantity { key, what, limit, model, fallback: false, host: false }
}

const fn fallback(key: &'static str, limit: f64, model: &'static str, what: &'static str) -> Quantity {
    Quantity { key, what, limit, model: Some(model), fallback: true, host: false }
}

impl Quantity {
    const fn by_host(self) -> Self {
        Self { host: true, ..self }
    }
}

/// Two runs on one machine agree within this share in what the host's processor sets (seen on an H200 in a shared
/// virtual machine: 9 %). Figures of the GPU alone agree far better.
pub const HOST_AGREEMENT: f64 = 0.15;

/// Rates repeat to a percent or two; a twentieth means that something else was running.
const RATE: f64 = 0.05;
/// Copies over a shared bus, and what the host's processor has a part in.
const HOST: f64 = 0.15;

/// All figures, in the order of the file.
pub const QUANTITIES: &[Quantity] = &[
    q("fp64_fma_tflops", RATE, None, "multiply-adds in registers, no tensor cores"),
    q("fp32_fma_tflops", RATE, None, "multiply-adds in registers, no tensor cores"),
    q("fp16_fma_tflops", RATE, None, "pairs of multiply-adds in registers, no tensor cores"),
    q(
        "tf32_mma_tflops",
        RATE,
        None,
        "tensor cores from registers through `mma.sync`; newer instructions may be faster",
    ),
    q(
        "fp16_mma_tflops",
        RATE,
        None,
        "tensor cores from registers through `mma.sync`; newer instructions may be faster",
    ),
    q(
        "bf16_mma_tflops",
        RATE,
        None,
        "tensor cores from registers through `mma.sync`; newer instructions may be faster",
    ),
    q(
        "fp8_mma_tflops",
        RATE,
        None,
        "tensor cores from registers through `mma.sync`; newer instructions may be faster",
    ),
    q(
        "fp64_matmul_tflops",
        RATE,
        Some("sustained.fp64_tflops"),
        "ten square products of random numbers through cuBLAS after a pause",
    ),
    q(
        "fp32_matmul_tflops",
        RATE,
        Some("sustained.fp32_tflops"),
        "ten square products of random numbers through cuBLAS after a pause",
    ),
    q(
        "tf32_matmul_tflops",
        RATE,
        Some("sustained.tf32_tflops"),
        "ten square products of random numbers through cuBLAS after a pause",
    ),
    q(
        "fp16_matmul_tflops",
        RATE,
        Some("sustained.fp16_tflops"),
        "ten square products of random numbers through cuBLAS after a pause",
    ),
    q(
        "bf16_matmul_tflops",
        RATE,
        Some("sustained.bf16_tflops"),
        "ten square products of random numbers through cuBLAS after a pause",
    ),
    q(
        "fp8_matmul_tflops",
        RATE,
        Some("sustained.fp8_tflops"),
        "ten square products of random numbers through cuBLAS after a pauseLt, fast accumulation",
    ),
    q(
        "matmul_held_tflops",
        RATE,
        None,
        "16-bit products (bf16; before Ampere fp16) after seconds of nothing else, at the power limit",
    ),
    q("dram_copy_gbs", RATE, Some("sustained.dram_gbs"), "device-to-device copy, bytes read and written"),
    q("dram_read_gbs", RATE, None, "reads of a buffer far larger than the L2"),
    q("dram_write_gbs", RATE, None, "fill of a buffer far larger than the L2"),
    fallback(
        "l2_read_gbs",
        RATE,
        "memory.l2_gbs",
        "every SM reads its own part of a buffer of a quarter of the L2, past the L1",
    ),
    fallback(
        "l2_seen_mib",
        RATE,
        "memory.l2_mib",
        "buffer size at which repeated reads fall half way (geometric mean) from L2 to DRAM rate",
    ),
    fallback(
        "l1_bytes_per_clk_per_sm",
        RATE,
        "memory.l1_bytes_per_clk_per_sm",
        "16-byte loads that hit the L1",
    ),
    fallback(
        "shared_bytes_per_clk_per_sm",
        RATE,
        "memory.shared_bytes_per_clk_per_sm",
        "16-byte loads from shared memory",
    ),
    q("shared_cycles", RATE, Some("latency.shared_cycles"), "dependent loads of one thread"),
    q("l1_cycles", RATE, Some("latency.l1_cycles"), "dependent loads of one thread"),
    q(
        "l2_cycles",
        RATE,
        Some("latency.l2_cycles"),
        "dependent loads of one thread, buffer of a sixteenth of the L2 or 2 MiB",
    ),
    q(
        "l2_far_cycles",
        RATE,
        None,
        "dependent loads of one thread, buffer of five eighths of the L2: beyond the nearer half",
    ),
    q(
        "dram_cycles",
        RATE,
        Some("latency.dram_cycles"),
        "dependent loads of one thread from a buffer that the L2 does not hold",
    ),
    q("fma_clock_mhz", RATE, None, "clock of the SMs during fp32 multiply-adds"),
    q("matmul_clock_mhz", RATE, Some("sustained.clock_mhz"), "clock of the SMs at that"),
    q("graph_kernel_us", RATE, None, "an empty kernel in a row of them inside a CUDA graph, device time"),
    fallback(
        "stream_kernel_us",
        HOST,
        "launch.kernel_us",
        "an empty kernel in a plain stream, device time, the quickest of many rows",
    )
    .by_host(),
    q(
        "host_launch_us",
        HOST,
        Some("launch.host_us"),
        "host time of one launch call, the quickest of many rows",
    )
    .by_host(),
    q(
        "graph_launch_us",
        HOST,
        None,
        "host time of launching a graph of one kernel, the quickest of many rows",
    )
    .by_host(),
    fallback("host_to_device_gbs", HOST, "memory.host_gbs", "copy from page-locked memory"),
    q("device_to_host_gbs", HOST, None, "copy to page-locked memory"),
];

/// The figure of that key.
pub fn find(key: &str) -> Option<&'static Quantity> {
    QUANTITIES.iter().find(|q| q.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use preflop_core::gpu::FIELDS;

    #[test]
    fn every_figure_has_a_place_in_gpu_files() {
        for quantity in QUANTITIES {
            assert!(
                FIELDS.iter().any(|f| f.section == "measured" && f.key == quantity.key),
                "{}",
                quantity.key
            );
            if let Some(model) = quantity.model {
                let (section, key) = model.rsplit_once('.').unwrap();
                assert!(FIELDS.iter().any(|f| f.section == section && f.key == key), "{model}");
            }
        }
        let measured = FIELDS.iter().filter(|f| f.section == "measured").count();
        assert_eq!(measured, QUANTITIES.len());
    }
}
