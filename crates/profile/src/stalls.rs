//! Hardware counters of a kernel: FLOPs, bytes, and why its warps stall.
//!
//! Metric names are Nsight Compute's. The stall reasons are put into the five classes of the study of five
//! applications on seven GPUs: execution dependency, memory dependency, synchronisation, pipe busy,
//! instruction fetch; Hopper's `gmma` is shown apart.

use super::{Counters, Names};
use serde::Serialize;

/// How a stall figure is counted. The two are never mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StallForm {
    /// Share of the stalled warp cycles, in percent.
    Percent,
    /// Stalled warps per issued instruction.
    PerIssue,
}

/// Stalls in classes, as shares of all classes together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Stalls {
    /// How they were counted.
    pub form: StallForm,
    /// Short scoreboard and fixed latency: waiting for one's own arithmetic or shared memory.
    pub execution_dependency: f64,
    /// Long scoreboard: waiting for L1, L2 or DRAM.
    pub memory_dependency: f64,
    /// Barriers and memory fences.
    pub synchronisation: f64,
    /// The pipe was busy.
    pub pipe_busy: f64,
    /// No instruction at hand.
    pub instruction_fetch: f64,
    /// Hopper: waiting for a warp-group product.
    pub gmma: f64,
    /// Everything else.
    pub other: f64,
}

/// What the counters of one kernel say.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Counted {
    /// Kernel.
    pub kernel: String,
    /// Duration.
    pub time_us: Option<f64>,
    /// Floating-point operations, by width: fp64, fp32, fp16, tensor cores.
    pub flops: Flops,
    /// Bytes to and from DRAM.
    pub dram_bytes: Option<f64>,
    /// Bytes through the L2.
    pub l2_bytes: Option<f64>,
    /// Bytes through the L1s.
    pub l1_bytes: Option<f64>,
    /// Achieved occupancy in percent.
    pub occupancy_percent: Option<f64>,
    /// Stalls, where recorded.
    pub stalls: Option<Stalls>,
}

/// FLOPs by pipe.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Flops {
    /// 64 bit.
    pub fp64: f64,
    /// 32 bit.
    pub fp32: f64,
    /// 16 bit on the plain pipe.
    pub fp16: f64,
    /// Tensor cores.
    pub tensor: f64,
}

impl Flops {
    /// All pipes.
    pub fn total(&self) -> f64 {
        self.fp64 + self.fp32 + self.fp16 + self.tensor
    }
}

/// FLOPs of one tensor instruction of a warp on Volta, as the time-based Roofline study counts them.
const VOLTA_TENSOR_FLOPS: f64 = 512.0;

struct Metrics<'a> {
    names: &'a Names,
    counters: &'a Counters,
}

impl Metrics<'_> {
    fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.counters.metrics.iter().map(|(id, value)| (self.names.text(*id), *value))
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// The sum over all metrics that fit.
    fn sum(&self, fits: impl Fn(&str) -> bool) -> f64 {
        self.iter().filter(|(n, _)| fits(n)).map(|(_, v)| v).sum()
    }

    /// Additions, products and twice the fused multiply-adds of one width.
    fn thread_flops(&self, width: char) -> f64 {
        ["add", "mul", "fma"]
            .iter()
            .map(|op| {
                let suffix = format!("sass_thread_inst_executed_op_{width}{op}_pred_on.sum");
                let weight = if *op == "fma" { 2.0 } else { 1.0 };
                weight * self.iter().find(|(n, _)| n.ends_with(&suffix)).map_or(0.0, |(_, v)| v)
            })
            .sum()
    }
}

/// Reads the counters of one kernel.
pub fn read(counters: &Counters, names: &Names) -> Counted {
    let m = Metrics { names, counters };
    let tensor_ops = m.sum(|n| {
        let sum = n.rsplit_once('.').is_some_and(|(_, rollup)| rollup == "sum");
        n.starts_with("sm__ops_path_tensor_src_") && sum && !n.contains("_sparsity_")
    });
    let tensor = if tensor_ops > 0.0 {
        tensor_ops
    } else {
        VOLTA_TENSOR_FLOPS * m.get("sm__inst_executed_pipe_tensor.sum").unwrap_or(0.0)
    };
    let flops =
        Flops { fp64: m.thread_flops('d'), fp32: m.thread_flops('f'), fp16: m.thread_flops('h'), tensor };
    let dram = m.get("dram__bytes.sum").or_else(|| {
        // Blackwell has only the two directions.
        Some(m.get("dram__bytes_read.sum")? + m.get("dram__bytes_write.sum")?)
    });
    let seconds = counters.dur_ns as f64 / 1e9;
    let dram = dram.or_else(|| m.get("Memory Throughput [byte/s]").map(|rate| rate * seconds));
    Counted {
        kernel: names.text(counters.kernel).to_string(),
        time_us: (counters.dur_ns > 0).then_some(seconds * 1e6),
        flops,
        dram_bytes: dram,
        l2_bytes: m.get("lts__t_bytes.sum"),
        l1_bytes: m.get("l1tex__t_bytes.sum"),
        occupancy_percent: m
            .get("sm__warps_active.avg.pct_of_peak_sustained_active")
            .or_else(|| m.get("Achieved Occupancy [%]")),
        stalls: stalls(&m),
    }
}

/// Prefix and suffix of the two forms.
const FORMS: [(StallForm, &str, &str); 2] = [
    (StallForm::PerIssue, "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"),
    (StallForm::Percent, "smsp__warp_issue_stalled_", "_per_warp_active.pct"),
];

fn stalls(m: &Metrics) -> Option<Stalls> {
    for (form, prefix, suffix) in FORMS {
        let mut classes = [0.0; 7];
        for (name, value) in m.iter() {
            let Some(reason) = name.strip_prefix(prefix).and_then(|n| n.strip_suffix(suffix)) else {
                continue;
            };
            let class = match reason {
                "short_scoreboard" | "wait" => 0,
                "long_scoreboard" => 1,
                "barrier" | "membar" => 2,
                "math_pipe_throttle" | "mio_throttle" => 3,
                "no_instruction" | "no_instructions" => 4,
                "gmma" => 5,
                // Issuing is no stall.
                "selected" => continue,
                _ => 6,
            };
            classes[class] += value.max(0.0);
        }
        let all: f64 = classes.iter().sum();
        if all > 0.0 {
            let [
                execution_dependency,
                memory_dependency,
                synchronisation,
                pipe_busy,
                instruction_fetch,
                gmma,
                other,
            ] = classes.map(|c| c / all);
            return Some(Stalls {
                form,
                execution_dependency,
                memory_dependency,
                synchronisation,
                pipe_busy,
                instruction_fetch,
                gmma,
                other,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(names: &mut Names, metrics: &[(&str, f64)]) -> Counters {
        let metrics = metrics.iter().map(|(n, v)| (names.add(n), *v)).collect();
        Counters { kernel: names.add("k"), dur_ns: 2_000, metrics }
    }

    #[test]
    fn fused_multiply_adds_count_twice() {
        let mut names = Names::new();
        let c = counters(
            &mut names,
            &[
                ("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", 10.0),
                ("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 100.0),
                ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1000.0),
                ("sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_on.sum", 77.0),
            ],
        );
        let counted = read(&c, &names);
        assert_eq!((counted.flops.fp32, counted.flops.tensor, counted.time_us), (210.0, 1000.0, Some(2.0)));
    }

    #[test]
    fn five_classes_of_one_form() {
        let mut names = Names::new();
        let c = counters(
            &mut names,
            &[
                ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", 6.0),
                ("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", 1.0),
                ("smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", 1.0),
                ("smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", 1.0),
                ("smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", 2.0),
                // The other form must not be added in.
                ("smsp__warp_issue_stalled_barrier_per_warp_active.pct", 90.0),
            ],
        );
        let s = read(&c, &names).stalls.unwrap();
        assert_eq!(s.form, StallForm::PerIssue);
        assert_eq!(
            [s.memory_dependency, s.execution_dependency, s.synchronisation, s.other],
            [0.6, 0.2, 0.0, 0.2]
        );
    }
}
