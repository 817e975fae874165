//! Hardware counters of one kernel (Nsight Compute's names) as work.
//!
//! ```text
//! bytes:  dram__bytes.sum (or read + write), lts__t_bytes.sum, l1tex__t_bytes.sum
//! plain:  sm__sass_thread_inst_executed_op_{d,f,h}{add,mul}_pred_on.sum + 2 x ..fma..
//! tensor: Volta 512 x sm__inst_executed_pipe_tensor.sum; later sm__ops_path_tensor_src_*.sum
//! ```
//!
//! Source: Yang et al., "Hierarchical Roofline Analysis for GPUs", arXiv 2009.02449, for bytes, plain FLOPs and Volta;
//! the `ops_path` counters already count FLOPs, and their `sparsity` children are parts of them.

use super::bounds::Work;
use super::machine::Pipe;
use preflop_units::dtype::Dtype;
use preflop_units::{Bytes, Flops, Seconds};

/// FLOPs of one tensor instruction on Volta, HMMA.884: 8 x 8 x 4 multiply-adds of two FLOPs.
const VOLTA_TENSOR_FLOPS: f64 = 512.0;

/// The work of a kernel from its counters, each a name and a value in its base unit.
pub fn work_of_counters(metrics: &[(&str, f64)], time: Seconds) -> Work {
    let get = |name: &str| metrics.iter().find(|m| m.0 == name).map(|m| m.1);
    let mut flops: Vec<(Pipe, Flops)> = Vec::new();
    for (letter, dtype) in [("d", Dtype::Fp64), ("f", Dtype::Fp32), ("h", Dtype::Fp16)] {
        let count = |what: &str| {
            get(&format!("sm__sass_thread_inst_executed_op_{letter}{what}_pred_on.sum")).unwrap_or(0.0)
        };
        let sum = count("add") + count("mul") + 2.0 * count("fma");
        if sum > 0.0 {
            flops.push((Pipe { dtype, tensor: false }, Flops(sum)));
        }
    }
    let paths = tensor_paths(metrics);
    if paths.is_empty() {
        let volta = get("sm__inst_executed_pipe_tensor.sum").unwrap_or(0.0) * VOLTA_TENSOR_FLOPS;
        if volta > 0.0 {
            flops.push((Pipe { dtype: Dtype::Fp16, tensor: true }, Flops(volta)));
        }
    }
    flops.extend(paths);
    let both = || Some(get("dram__bytes_read.sum")? + get("dram__bytes_write.sum")?);
    // The details page has no bytes, but their rate.
    let by_rate = || Some(get("Memory Throughput [byte/s]")? * time.0);
    Work {
        flops,
        bytes: [
            get("dram__bytes.sum").or_else(both).or_else(by_rate),
            get("lts__t_bytes.sum"),
            get("l1tex__t_bytes.sum"),
        ]
        .map(|b| b.map(Bytes)),
        launches: 1.0,
        time,
    }
}

/// Were FLOPs counted at all? Without, a kernel's FLOPs are unknown, not zero.
pub(super) fn counts_flops(metrics: &[(&str, f64)]) -> bool {
    let flops =
        ["sm__sass_thread_inst_executed_op_", "sm__inst_executed_pipe_tensor", "sm__ops_path_tensor_src_"];
    metrics.iter().any(|(name, _)| flops.iter().any(|f| name.starts_with(f)))
}

/// FLOPs of the tensor paths by format: `sm__ops_path_tensor_src_bf16_dst_fp32.sum` counts for bf16.
fn tensor_paths(metrics: &[(&str, f64)]) -> Vec<(Pipe, Flops)> {
    let mut sums: Vec<(Pipe, Flops)> = Vec::new();
    for (name, value) in metrics.iter().filter(|m| m.1 > 0.0 && !m.0.contains("sparsity")) {
        let Some(rest) = name.strip_prefix("sm__ops_path_tensor_src_") else { continue };
        let Some(path) = rest.strip_suffix(".sum") else { continue };
        let source = path.split('_').next().unwrap_or(path);
        let Some(dtype) = Dtype::from_name(source) else { continue };
        let pipe = Pipe { dtype, tensor: true };
        match sums.iter_mut().find(|s| s.0 == pipe) {
            Some(sum) => sum.1 += Flops(*value),
            None => sums.push((pipe, Flops(*value))),
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_volta_kernel() {
        let work = work_of_counters(
            &[
                ("dram__bytes.sum", 100.0),
                ("lts__t_bytes.sum", 200.0),
                ("sm__sass_thread_inst_executed_op_fadd_pred_on.sum", 3.0),
                ("sm__sass_thread_inst_executed_op_ffma_pred_on.sum", 5.0),
                ("sm__inst_executed_pipe_tensor.sum", 2.0),
            ],
            Seconds(1.0),
        );
        // 3 + 2 x 5 = 13 plain, 2 x 512 = 1024 tensor
        let named: Vec<(String, f64)> = work.flops.iter().map(|(p, f)| (p.name(), f.0)).collect();
        assert_eq!(named, [("fp32".to_string(), 13.0), ("fp16 tensor".to_string(), 1024.0)]);
        assert_eq!(work.bytes(Level::Dram), Some(Bytes(100.0)));
        assert_eq!(work.bytes(Level::L1), None);
    }

    #[test]
    fn a_details_page_has_rates() {
        let metrics = [("Memory Throughput [byte/s]", 200.0)];
        let work = work_of_counters(&metrics, Seconds(2.0));
        assert_eq!(work.bytes(Level::Dram), Some(Bytes(400.0)));
        assert!(work.flops.is_empty() && !counts_flops(&metrics));
    }

    #[test]
    fn later_chips_count_flops_by_path_and_bytes_by_direction() {
        let work = work_of_counters(
            &[
                ("dram__bytes_read.sum", 60.0),
                ("dram__bytes_write.sum", 40.0),
                ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 700.0),
                ("sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum", 700.0),
                ("sm__inst_executed_pipe_tensor.sum", 9.0),
            ],
            Seconds(1.0),
        );
        assert_eq!(work.total_flops(), Flops(700.0));
        assert_eq!(work.flops[0].0.name(), "bf16 tensor");
        assert_eq!(work.bytes(Level::Dram), Some(Bytes(100.0)));
    }
}
