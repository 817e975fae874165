//! The keys of a GPU file: section, key, range. One table drives parsing, checking and display.

/// One figure that a GPU file may hold.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// TOML section.
    pub section: &'static str,
    /// Key; its ending names the unit.
    pub key: &'static str,
    /// Smallest value that makes sense.
    pub min: f64,
    /// Largest value that makes sense, far above anything built.
    pub max: f64,
}

const fn f(section: &'static str, key: &'static str, min: f64, max: f64) -> Field {
    Field { section, key, min, max }
}

/// All figures. Ranges are wide on purpose: they catch wrong units, not daring designs.
pub const FIELDS: &[Field] = &[
    f("", "release_year", 1990.0, 2100.0),
    f("chip_limits", "sm_count", 1.0, 100_000.0),
    f("chip_limits", "base_mhz", 1.0, 100_000.0),
    f("chip_limits", "boost_mhz", 1.0, 100_000.0),
    f("chip_limits", "fp32_lanes_per_sm", 1.0, 65_536.0),
    f("chip_limits", "registers_per_sm", 1024.0, 1e8),
    f("chip_limits", "shared_memory_per_sm_kib", 1.0, 1e6),
    f("chip_limits", "shared_memory_per_block_kib", 1.0, 1e6),
    f("chip_limits", "l1_per_sm_kib", 1.0, 1e6),
    f("chip_limits", "threads_per_sm", 32.0, 65_536.0),
    f("chip_limits", "blocks_per_sm", 1.0, 1024.0),
    f("chip_limits", "warp_size", 1.0, 1024.0),
    f("memory", "capacity_gib", 0.1, 1e5),
    f("memory", "bus_bits", 8.0, 1e6),
    f("memory", "dram_gbs", 1.0, 1e6),
    f("memory", "l2_mib", 0.01, 1e5),
    f("memory", "l2_gbs", 1.0, 1e7),
    f("memory", "l1_bytes_per_clk_per_sm", 1.0, 1e5),
    f("memory", "shared_bytes_per_clk_per_sm", 1.0, 1e5),
    f("memory", "host_gbs", 0.1, 1e5),
    f("latency", "l1_cycles", 1.0, 1e5),
    f("latency", "shared_cycles", 1.0, 1e5),
    f("latency", "l2_cycles", 1.0, 1e5),
    f("latency", "dram_cycles", 1.0, 1e5),
    f("peak.plain", "fp64_tflops", 0.001, 1e6),
    f("peak.plain", "fp32_tflops", 0.001, 1e6),
    f("peak.plain", "fp16_tflops", 0.001, 1e6),
    f("peak.plain", "bf16_tflops", 0.001, 1e6),
    f("peak.plain", "int8_tops", 0.001, 1e6),
    f("peak.tensor", "fp64_tflops", 0.001, 1e6),
    f("peak.tensor", "fp32_tflops", 0.001, 1e6),
    f("peak.tensor", "tf32_tflops", 0.001, 1e6),
    f("peak.tensor", "fp16_tflops", 0.001, 1e6),
    f("peak.tensor", "bf16_tflops", 0.001, 1e6),
    f("peak.tensor", "fp8_tflops", 0.001, 1e6),
    f("peak.tensor", "fp4_tflops", 0.001, 1e6),
    f("peak.tensor", "int8_tops", 0.001, 1e6),
    f("sustained", "fp64_tflops", 0.001, 1e6),
    f("sustained", "fp32_tflops", 0.001, 1e6),
    f("sustained", "tf32_tflops", 0.001, 1e6),
    f("sustained", "fp16_tflops", 0.001, 1e6),
    f("sustained", "bf16_tflops", 0.001, 1e6),
    f("sustained", "fp8_tflops", 0.001, 1e6),
    f("sustained", "fp4_tflops", 0.001, 1e6),
    f("sustained", "int8_tops", 0.001, 1e6),
    f("sustained", "dram_gbs", 1.0, 1e6),
    f("sustained", "l2_gbs", 1.0, 1e7),
    f("sustained", "clock_mhz", 1.0, 100_000.0),
    f("power", "tdp_w", 1.0, 1e5),
    f("power", "idle_w", 0.0, 1e5),
    f("launch", "kernel_us", 0.01, 1e4),
    f("launch", "host_us", 0.01, 1e5),
    f("delta", "num_sm", 1.0, 1e5),
    f("delta", "clk_mhz", 1.0, 1e5),
    f("delta", "bw_dram_gbs", 1.0, 1e6),
    f("delta", "bw_l2_gbs", 1.0, 1e7),
    f("delta", "bw_l1_gbs_per_sm", 1.0, 1e6),
    f("delta", "l1_cycles", 1.0, 1e5),
    f("delta", "l2_cycles", 1.0, 1e5),
    f("delta", "dram_cycles", 1.0, 1e5),
    f("delta", "shared_cycles", 1.0, 1e5),
];

/// Plain strings at the top of the file or in `[memory]`.
pub const TEXTS: &[(&str, &str)] = &[
    ("", "name"),
    ("", "title"),
    ("", "vendor"),
    ("", "architecture"),
    ("", "chip"),
    ("", "compute_capability"),
    ("", "form"),
    ("memory", "dram_kind"),
    ("memory", "host_interface"),
];
