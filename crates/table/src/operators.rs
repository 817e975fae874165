//! Rows that are operators: `op`, `phase`, `dtype` and a shape.

use crate::columns::{Column, Columns};
use crate::engine::{Engine, changes};
use crate::{TableError, shape};
use arrow_array::ArrayRef;
use arrow_schema::DataType;
use preflop_core::Gpu;
use preflop_core::ops::{OpCall, row};
use preflop_core::time::OpPrediction;
use rayon::prelude::*;
use std::sync::Arc;

/// The columns that mean something. The shape is a JSON object as text, a struct, or columns `shape.KEY`.
pub const COLUMNS: [&str; 5] = ["op", "phase", "dtype", "shape", "gpu"];

/// Rows that one core predicts together: enough that many ask the same trees.
const TOGETHER: usize = 1024;

pub(crate) fn is_column(name: &str) -> bool {
    COLUMNS.contains(&name) || name.starts_with("shape.") || name.starts_with("gpu.")
}

/// Where shapes come from.
enum Shapes<'a> {
    Json(Column<'a>),
    Keys(Vec<(&'a str, Column<'a>)>),
}

/// The columns of a batch of operators.
struct Rows<'a> {
    op: Column<'a>,
    phase: Option<Column<'a>>,
    dtype: Column<'a>,
    shape: Shapes<'a>,
    gpu: Column<'a>,
    changes: Vec<(&'static str, Column<'a>)>,
}

impl<'a> Rows<'a> {
    fn new(columns: &'a Columns, fields: &'a [(String, ArrayRef)]) -> Result<Self, TableError> {
        let need = |name: &str, hint: &str| {
            columns
                .get(name)
                .ok_or_else(|| TableError::Missing { column: name.to_string(), hint: format!("; {hint}") })
        };
        let keys = columns.below("shape.");
        let shape = match columns.get("shape") {
            Some(_) if !keys.is_empty() => {
                let problem = "the table has columns `shape.KEY` too; one of the two".to_string();
                return Err(TableError::Column { column: "shape".into(), problem });
            }
            Some(column) => match column.data_type() {
                DataType::Struct(_) => Shapes::Keys(
                    fields.iter().map(|(key, array)| (key.as_str(), Column::new(key, array))).collect(),
                ),
                DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Shapes::Json(column),
                other => {
                    let problem = format!("is {other}; it must be a JSON object as text, or a struct");
                    return Err(TableError::Column { column: "shape".into(), problem });
                }
            },
            None if keys.is_empty() => {
                let hint =
                    "; a shape is a JSON object as text, a struct, or columns `shape.m`, `shape.n` ..".into();
                return Err(TableError::Missing { column: "shape".into(), hint });
            }
            None => Shapes::Keys(keys),
        };
        Ok(Self {
            op: need("op", "it names the operator, such as `mm`")?,
            phase: columns.get("phase"),
            dtype: need("dtype", "it names the number format: fp32, tf32, bf16, fp16, fp8")?,
            shape,
            gpu: need("gpu", "name the GPU, in a column or for the whole table")?,
            changes: changes(columns),
        })
    }

    fn call(&self, i: usize) -> Result<OpCall, String> {
        let need = |column: &Column<'a>| column.text(i)?.ok_or_else(|| format!("`{}` is empty", column.name));
        let (op, dtype) = (need(&self.op)?, need(&self.dtype)?);
        let phase = match &self.phase {
            Some(column) => column.text(i)?.unwrap_or("fwd"),
            None => "fwd",
        };
        match &self.shape {
            Shapes::Json(column) => row::parse(op, phase, dtype, need(column)?).map_err(|e| e.to_string()),
            Shapes::Keys(keys) => shape::call(op, phase, dtype, keys, i),
        }
    }
}

/// Predicts rows on all cores.
pub(crate) fn predict(
    engine: &Engine,
    columns: &Columns,
    count: usize,
) -> Result<Vec<Result<OpPrediction, String>>, TableError> {
    let fields = columns.get("shape").map(|c| c.fields()).transpose()?.unwrap_or_default();
    let rows = Rows::new(columns, &fields)?;
    // As many pieces as there are cores share the work evenly, also in a small table.
    let piece = count.div_ceil(2 * rayon::current_num_threads().max(1)).clamp(64, TOGETHER);
    let starts: Vec<usize> = (0..count).step_by(piece).collect();
    let pieces: Vec<Vec<Result<OpPrediction, String>>> = starts
        .into_par_iter()
        .map(|start| piece_of(engine, &rows, start, (start + piece).min(count)))
        .collect();
    Ok(pieces.into_iter().flatten().collect())
}

fn piece_of(engine: &Engine, rows: &Rows<'_>, start: usize, end: usize) -> Vec<Result<OpPrediction, String>> {
    let mut last: Option<(&str, Result<Arc<Gpu>, String>)> = None;
    let asked: Vec<Result<(OpCall, Arc<Gpu>), String>> = (start..end)
        .map(|i| {
            let call = rows.call(i)?;
            let name = rows.gpu.text(i)?.ok_or("`gpu` is empty")?;
            let gpu = match &last {
                // Most tables have one GPU, or long runs of one.
                Some((known, gpu)) if *known == name && rows.changes.is_empty() => gpu.clone(),
                _ => {
                    let gpu = engine.gpu(name, &rows.changes, i);
                    last = Some((name, gpu.clone()));
                    gpu
                }
            }?;
            Ok((call, gpu))
        })
        .collect();
    let mut out: Vec<Result<OpPrediction, String>> =
        asked.iter().map(|a| Err(a.as_ref().err().cloned().unwrap_or_default())).collect();
    let place = |i: &usize| asked[*i].as_ref().map_or(0, |(_, gpu)| Arc::as_ptr(gpu).addr());
    let mut order: Vec<usize> = (0..asked.len()).filter(|i| asked[*i].is_ok()).collect();
    order.sort_by_key(place);
    for group in order.chunk_by(|a, b| place(a) == place(b)) {
        let good: Vec<(usize, &OpCall, &Arc<Gpu>)> =
            group.iter().filter_map(|i| asked[*i].as_ref().ok().map(|(call, gpu)| (*i, call, gpu))).collect();
        let Some((_, _, gpu)) = good.first() else { continue };
        let calls: Vec<&OpCall> = good.iter().map(|(_, call, _)| *call).collect();
        for ((i, call, _), p) in good.iter().zip(engine.model.predict_many(&calls, gpu)) {
            out[*i] = finite(call, p);
        }
    }
    out
}

fn finite(call: &OpCall, p: OpPrediction) -> Result<OpPrediction, String> {
    let all = [p.time.0, p.low.0, p.high.0, p.flops.0, p.dram.0, p.l2.0, p.l1.0];
    if all.iter().any(|x| !x.is_finite()) {
        return Err(format!("op `{}`: its sizes are too large to predict", call.name()));
    }
    Ok(p)
}
