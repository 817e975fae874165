//! The published fp32 operators of NeuSight, and the host's time that is in them.
//!
//! A row is the wall time of one eager call: kernels begin when the host has launched them, so what the host takes stands in front of them. It is read off the rows themselves:
//!
//! * products: no call of a GPU and file took less than the shortest of them, which hardly computes. That is 28 to 89 us.
//! * convolutions: the host slowed down as the file was measured, from 70 us to 300 (V100) and 750 us (P4), which shows in the shortest of any hundred rows. It never fell, so no row
//!   holds more of it than any later one took in all.
//!
//! Rows under 0.2 ms without it say more about the host than about the GPU and are left out.

use crate::data::Measured;
use crate::sets::Sets;
use anyhow::Result;
use preflop_core::ops::{Conv, Elementwise, ElementwiseKind, Gemm, Op, OpCall, Rowwise, RowwiseKind};
use preflop_core::{Dtype, Pass};
use std::collections::BTreeMap;

/// Shorter calls are left out.
const LEAST_US: f64 = 200.0;

/// Index of a GPU by its name in the files.
pub fn gpu(sets: &Sets, device: &str) -> Option<usize> {
    let name = match device.replace('_', " ").as_str() {
        "Tesla P4" => "p4",
        "Tesla P100-PCIE-16GB" => "p100-pcie",
        "Tesla V100-PCIE-32GB" => "v100-pcie-32gb",
        "Tesla T4" => "t4",
        "NVIDIA A100-PCIE-40GB" => "a100-pcie-40gb",
        "AMD Instinct MI100" => "mi100",
        _ => return None,
    };
    sets.index(name).ok()
}

/// The rows that are not mostly the host's.
fn long(mut rows: Vec<Measured>) -> Vec<Measured> {
    rows.retain(|m| m.us > LEAST_US);
    rows
}

/// Takes the same time of the host out of every row of a GPU: the shortest call's.
fn without_steady_host(rows: &mut [Measured]) {
    let mut shortest: BTreeMap<usize, f64> = BTreeMap::new();
    for m in rows.iter() {
        let us = shortest.entry(m.gpu).or_insert(m.us);
        *us = us.min(m.us);
    }
    for m in rows {
        m.us -= shortest[&m.gpu];
    }
}

/// Takes out a time of the host that grew from row to row of a GPU: the shortest call from there on.
fn without_growing_host(rows: &mut [Measured]) {
    let mut shortest: BTreeMap<usize, f64> = BTreeMap::new();
    for m in rows.iter_mut().rev() {
        let us = shortest.entry(m.gpu).or_insert(m.us);
        *us = us.min(m.us);
        m.us -= *us;
    }
}

/// fp32 products on six GPUs. There N is the reduction: (B,M,N) x (B,N,K).
pub fn products(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    for file in ["bmm", "linear"] {
        let mut rows = Vec::new();
        let mut reader = csv::Reader::from_reader(sets.open(&format!("neusight/{file}_fwd_fp32.csv.gz"))?);
        for record in reader.records() {
            let r = record?;
            let Some(gpu) = gpu(sets, &r[1]) else { continue };
            let d = |i: usize| r[i].parse::<u64>();
            let (b, m, k, n) = (d(4)?, d(5)?, d(6)?, d(7)?);
            let gemm = if file == "bmm" { Gemm::bmm(b, m, n, k) } else { Gemm::linear(b * m, n, k, true) };
            rows.push(Measured {
                call: OpCall::fwd(Op::Gemm(gemm), Dtype::Fp32),
                gpu,
                us: r[8].parse::<f64>()? * 1e3,
                kernels: r[9].to_string(),
                source: "published",
            });
        }
        without_steady_host(&mut rows);
        out.extend(long(rows));
    }
    Ok(out)
}

/// Did a linear layer of the P4 run a kernel of an older library? Those of its test half did, at up to four times the rate of the other half, and whole networks on it
/// run as slowly as the other half: 8192 x 4096 x 1024 takes 27.9 ms in a network. They teach nothing, but are scored, as that library ran them.
pub fn older_library(m: &Measured) -> bool {
    m.kernels.starts_with("sgemm_128x128x8")
}

/// fp32 vector operators on six GPUs.
pub fn vectors(sets: &Sets) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(sets.open("neusight/vector_fwd_fp32.csv.gz")?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let Some(gpu) = gpu(sets, &r[1]) else { continue };
        let (rows, cols) = (r[4].parse::<u64>()?, r[5].parse::<u64>()?);
        let e = |kind| Op::Elementwise(Elementwise { kind, n: rows * cols });
        let op = match &r[2] {
            "add" | "mul" | "div" | "pow" => e(ElementwiseKind::Add),
            "addu" | "mulu" | "divu" => e(ElementwiseKind::AddScalar),
            "powu" => e(ElementwiseKind::Pow),
            "relu" => e(ElementwiseKind::Relu),
            "gelu" => e(ElementwiseKind::Gelu),
            "tanh" => e(ElementwiseKind::Tanh),
            "softmax" => Op::Rowwise(Rowwise { kind: RowwiseKind::Softmax, rows, cols }),
            "ln" => Op::Rowwise(Rowwise { kind: RowwiseKind::LayerNorm, rows, cols }),
            _ => continue,
        };
        out.push(Measured {
            call: OpCall::new(op, Pass::Fwd, Dtype::Fp32),
            gpu,
            us: r[6].parse::<f64>()? * 1e3,
            kernels: r[2].to_string(),
            source: "published",
        });
    }
    Ok(long(out))
}

/// fp32 3x3 convolutions on P4, T4 and V100; cuDNN chose the fastest algorithm by trial.
pub fn convolutions(sets: &Sets) -> Result<Vec<Measured>> {
    let mut reader = csv::Reader::from_reader(sets.open("neusight/conv2d_fwd_fp32.csv.gz")?);
    let mut out = Vec::new();
    for record in reader.records() {
        let r = record?;
        let Some(gpu) = gpu(sets, &r[1]) else { continue };
        let d = |i: usize| r[i].parse::<u64>();
        let conv = Conv::square(d(4)?, d(5)?, d(8)?, d(6)?, d(7)?, d(9)?, d(10)?);
        out.push(Measured {
            call: OpCall::fwd(Op::Conv(conv), Dtype::Fp32),
            gpu,
            us: r[11].parse::<f64>()? * 1e3,
            kernels: r[24].to_string(),
            source: "published",
        });
    }
    without_growing_host(&mut out);
    Ok(long(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(times: &[(usize, f64)]) -> Vec<Measured> {
        let call = OpCall::fwd(Op::Gemm(Gemm::linear(8, 8, 8, false)), Dtype::Fp32);
        let row = |(gpu, us): &(usize, f64)| Measured {
            call: call.clone(),
            gpu: *gpu,
            us: *us,
            kernels: String::new(),
            source: "published",
        };
        times.iter().map(row).collect()
    }

    fn left(rows: &[Measured]) -> Vec<f64> {
        rows.iter().map(|m| m.us).collect()
    }

    #[test]
    fn a_steady_host_is_the_shortest_call_of_its_gpu() {
        let mut of_two = rows(&[(0, 90.0), (1, 500.0), (0, 70.0), (1, 40.0), (0, 300.0)]);
        without_steady_host(&mut of_two);
        assert_eq!(left(&of_two), [20.0, 460.0, 0.0, 0.0, 230.0]);
    }

    #[test]
    fn a_growing_host_never_took_more_than_any_later_call() {
        // From the end: 200 is the least so far, then 120, then 70; the 400 stands behind a 120.
        let mut grown = rows(&[(0, 70.0), (0, 400.0), (0, 120.0), (1, 50.0), (0, 900.0), (0, 200.0)]);
        without_growing_host(&mut grown);
        assert_eq!(left(&grown), [0.0, 280.0, 0.0, 0.0, 700.0, 0.0]);
    }
}
