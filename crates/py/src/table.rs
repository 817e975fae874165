//! Tables and sweeps: Arrow in, Arrow out, through the C interface that all data frames share. The interpreter's lock is released
//! while rows are predicted.

use preflop_cli::tables;
use preflop_sweep::{Parts, Plan, StudyError, Target};
use preflop_table::format::{Format, parquet_bytes};
use preflop_table::{Keep, Predicted, Question, TableError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PyRecordBatchReader;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::{Mutex, PoisonError};

fn failed(error: &TableError) -> PyErr {
    PyValueError::new_err((error.to_string(), None::<String>))
}

fn study_failed(error: &StudyError) -> PyErr {
    PyValueError::new_err((error.to_string(), None::<String>))
}

/// The answers to a table, as a stream of batches that are predicted as they are asked for.
///
/// `fixed` are columns that the table lacks with the value of all rows, `keep` the columns that stay (`None`: all).
#[pyfunction]
#[allow(clippy::needless_pass_by_value)]
pub fn predict_table(
    py: Python<'_>,
    table: PyRecordBatchReader,
    fixed: Vec<(String, String)>,
    keep: Option<Vec<String>>,
    threads: Option<usize>,
) -> PyResult<PyRecordBatchReader> {
    let input = table.into_reader()?;
    let keep = keep.map_or(Keep::All, Keep::These);
    let answers = py.detach(|| {
        let answers = Predicted::new(input, tables::engine()?, Question { fixed, keep })?;
        match threads {
            Some(count) => answers.with_threads(count),
            None => Ok(answers),
        }
    });
    Ok(PyRecordBatchReader::new(Box::new(answers.map_err(|e| failed(&e))?)))
}

/// A study made ready: any of its parts, and the folder that keeps them.
#[pyclass(frozen)]
#[derive(Debug)]
pub struct Sweep {
    plan: Mutex<Plan>,
    rows: u64,
    parts: u64,
    kept: Mutex<Option<(Target, Parts)>>,
    threads: Option<ThreadPool>,
}

#[pymethods]
impl Sweep {
    /// Reads a study and checks its names. Parts are computed by all cores, or so many threads.
    #[new]
    #[pyo3(signature = (text, file, part_rows=None, threads=None))]
    fn new(
        py: Python<'_>,
        text: &str,
        file: &str,
        part_rows: Option<u64>,
        threads: Option<usize>,
    ) -> PyResult<Self> {
        let pool = threads.map(|count| ThreadPoolBuilder::new().num_threads(count).build()).transpose();
        let threads =
            pool.map_err(|e| PyValueError::new_err((format!("cannot start threads: {e}"), None::<String>)))?;
        py.detach(|| {
            let plan = Plan::of_study(text, file, part_rows)?;
            plan.check(&*tables::engine()?)?;
            let (rows, parts) = (plan.about().rows, plan.about().parts());
            Ok(Self { plan: Mutex::new(plan), rows, parts, kept: Mutex::new(None), threads })
        })
        .map_err(|e: StudyError| study_failed(&e))
    }

    /// How many rows there are.
    #[getter]
    fn rows(&self) -> u64 {
        self.rows
    }

    /// How many parts there are.
    #[getter]
    fn parts(&self) -> u64 {
        self.parts
    }

    /// Computes a part: the bytes of a Parquet file.
    fn part<'py>(&self, py: Python<'py>, part: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = py.detach(|| {
            let engine = tables::engine()?;
            let compute =
                || self.plan.lock().unwrap_or_else(PoisonError::into_inner).part(part, &engine, |_| ());
            let batch = match &self.threads {
                Some(threads) => threads.install(compute),
                None => compute(),
            }?;
            Ok(parquet_bytes(&batch)?)
        });
        Ok(PyBytes::new(py, &bytes.map_err(|e: StudyError| study_failed(&e))?))
    }

    /// Opens the folder of parts of an output, and gives those that are missing.
    #[pyo3(signature = (output, format=None, restart=false))]
    fn open(&self, output: &str, format: Option<&str>, restart: bool) -> PyResult<Vec<u64>> {
        let format = match format {
            Some(name) => Some(Format::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Format::ALL.iter().map(|(_, name, _)| *name).collect();
                PyValueError::new_err((
                    format!("unknown format `{name}`"),
                    Some(format!("it may be {}", known.join(", "))),
                ))
            })?),
            None => None,
        };
        let about = self.plan.lock().unwrap_or_else(PoisonError::into_inner).about().clone();
        let target = Target::of(output, format).map_err(|e| study_failed(&e))?;
        let parts = target.parts(&about, restart).map_err(|e| study_failed(&e))?;
        let missing = parts.missing();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some((target, parts));
        Ok(missing)
    }

    /// Keeps a part; False where it is there already.
    fn keep(&self, py: Python<'_>, part: u64, bytes: &[u8]) -> PyResult<bool> {
        py.detach(|| {
            self.with_parts(|_, parts| {
                if parts.has(part) {
                    return Ok(false);
                }
                parts.keep(part, bytes)?;
                Ok(true)
            })
        })
    }

    /// Puts all parts together; gives how many rows could not be predicted.
    fn finish(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.with_parts(Target::finish))
    }
}

impl Sweep {
    fn with_parts<T>(&self, work: impl FnOnce(&Target, &Parts) -> Result<T, StudyError>) -> PyResult<T> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((target, parts)) = &*kept else {
            return Err(PyValueError::new_err(("no output is open", None::<String>)));
        };
        work(target, parts).map_err(|e| study_failed(&e))
    }
}
