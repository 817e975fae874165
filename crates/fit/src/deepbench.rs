//! DeepBench on TITAN Xp and V100, as its source says it ran (`other_gpus/README.md` of the published measurements).

use crate::data::Measured;
use crate::sets::Sets;
use anyhow::{Context, Result};
use preflop_core::ops::{Conv, Gemm, Layout, Op, OpCall, Rnn, RnnKind};
use preflop_core::{Dtype, Pass};
use std::collections::{BTreeMap, HashMap};

/// Shorter rows are left out: they are given to 1 us.
const LEAST_US: f64 = 50.0;

type Fields<'a> = &'a dyn Fn(&str) -> Result<&'a str>;

fn read(sets: &Sets, file: &str, mut row: impl FnMut(Fields) -> Result<()>) -> Result<()> {
    let mut reader = csv::Reader::from_reader(sets.open(&format!("other_gpus/{file}"))?);
    let columns: HashMap<String, usize> =
        reader.headers()?.iter().enumerate().map(|(i, c)| (c.to_string(), i)).collect();
    for record in reader.records() {
        let record = record?;
        let field = |name: &str| {
            let at = columns.get(name).with_context(|| format!("{file}: no column {name}"))?;
            Ok(&record[*at])
        };
        row(&field)?;
    }
    Ok(())
}

fn whole(text: &str) -> Result<u64> {
    Ok(text.parse::<f64>()? as u64)
}

fn dtype(text: &str) -> Dtype {
    if text == "fp16" { Dtype::Fp16 } else { Dtype::Fp32 }
}

fn measured(sets: &Sets, op: Op, pass: Pass, dtype: Dtype, gpu: &str, us: f64) -> Option<Measured> {
    let gpu = sets.index(gpu).ok()?;
    (us > LEAST_US).then(|| Measured {
        call: OpCall::new(op, pass, dtype),
        gpu,
        us,
        kernels: String::new(),
        source: "deepbench",
    })
}

/// Convolutions in all passes; those in fp16 ran in NHWC with channels rounded up to eight.
pub fn convolutions(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    read(sets, "deepbench_conv.csv", |field| {
        let number = |name| whole(field(name)?);
        let dtype = dtype(field("dtype")?);
        let channels = |c: u64| if dtype == Dtype::Fp16 { c.div_ceil(8) * 8 } else { c };
        let pass = match field("phase")? {
            "bwd_data" => Pass::Dgrad,
            "bwd_weight" => Pass::Wgrad,
            _ => Pass::Fwd,
        };
        let conv = Conv {
            w: number("W")?,
            s: number("S")?,
            stride: [number("stride_h")?, number("stride_w")?],
            pad: [number("pad_h")?, number("pad_w")?],
            channels_last: dtype == Dtype::Fp16,
            ..Conv::square(
                number("N")?,
                channels(number("C")?),
                number("H")?,
                channels(number("K")?),
                number("R")?,
                1,
                0,
            )
        };
        let us = field("time_ms")?.parse::<f64>()? * 1e3;
        out.extend(measured(sets, Op::Conv(conv), pass, dtype, field("gpu")?, us));
        Ok(())
    })?;
    Ok(out)
}

/// Products: column-major there, so M and N change places; those in fp16 had sizes rounded up to eight.
pub fn products(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    read(sets, "deepbench_gemm.csv", |field| {
        let dtype = dtype(field("dtype")?);
        let number = |name| {
            let n = whole(field(name)?)?;
            Ok::<u64, anyhow::Error>(if dtype == Dtype::Fp16 { n.div_ceil(8) * 8 } else { n })
        };
        let (m, n, k) = (number("N")?, number("M")?, number("K")?);
        let gemm = match (field("transA")?, field("transB")?) {
            ("T", "N") => Gemm::linear(m, n, k, false),
            ("N", "N") => Gemm::mm(m, n, k, Layout::Nn),
            _ => Gemm::mm(m, n, k, Layout::Tn),
        };
        let us = field("time_ms")?.parse::<f64>()? * 1e3;
        out.extend(measured(sets, Op::Gemm(gemm), Pass::Fwd, dtype, field("gpu")?, us));
        Ok(())
    })?;
    Ok(out)
}

/// Recurrent layers without products of the input (`CUDNN_SKIP_INPUT`): forward, and backward over data and weights together.
pub fn recurrent(sets: &Sets) -> Result<Vec<Measured>> {
    let mut out = Vec::new();
    let mut backward: BTreeMap<Vec<String>, (Option<Measured>, u32)> = BTreeMap::new();
    read(sets, "deepbench_rnn.csv", |field| {
        let kind = match field("op")? {
            "rnn_lstm" => RnnKind::Lstm,
            "rnn_gru" => RnnKind::Gru,
            _ => RnnKind::Tanh,
        };
        let op = Rnn {
            kind,
            batch: whole(field("batch")?)?,
            seq: whole(field("timesteps")?)?,
            input: 0,
            hidden: whole(field("hidden")?)?,
            layers: 1,
            bidirectional: false,
        };
        let us = field("time_ms")?.parse::<f64>()? * 1e3;
        let forward = field("phase")? == "fwd";
        let pass = if forward { Pass::Fwd } else { Pass::Bwd };
        let row = measured(sets, Op::Rnn(op), pass, dtype(field("dtype")?), field("gpu")?, us);
        if forward {
            out.extend(row);
            return Ok(());
        }
        let names = ["gpu", "op", "dtype", "hidden", "batch", "timesteps", "software"];
        let key = names.iter().map(|n| Ok(field(n)?.to_string())).collect::<Result<_>>()?;
        let (sum, parts) = backward.entry(key).or_default();
        *parts += 1;
        match (sum, row) {
            (Some(sum), Some(row)) => sum.us += row.us,
            (sum, row) => *sum = row,
        }
        Ok(())
    })?;
    out.extend(backward.into_values().filter(|(_, parts)| *parts == 2).filter_map(|(sum, _)| sum));
    Ok(out)
}
