//! Lowered iterations, kept for the next question about the same run.

use crate::error::ApiError;
use crate::question::Run;
use preflop_core::Gpu;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::{Form, Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, zoo};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// A run, lowered.
#[derive(Debug)]
pub struct Job {
    /// Model name as the zoo has it.
    pub model: String,
    /// Samples of one iteration.
    pub batch: u64,
    /// Tokens of one sample.
    pub seq: Option<u64>,
    /// How it was lowered.
    pub options: LowerOptions,
    /// In which form it is run.
    pub form: Form,
    /// What a reader should know about it.
    pub notes: Vec<String>,
    /// The optimizer of a training step.
    pub optimizer: Option<OptimizerChoice>,
    /// Its operators.
    pub iteration: Iteration,
}

type Key = (String, Option<u64>, Option<u64>, Precision, Mode, Option<OptimizerChoice>, Form);

/// Runs kept; the largest models take about a megabyte each.
const KEPT: usize = 64;

/// Networks kept: runs that differ in format, mode or optimizer share one.
const KEPT_GRAPHS: usize = 8;

/// Values asked for last, the latest first.
#[derive(Debug)]
struct Recent<K, V> {
    kept: Mutex<VecDeque<(K, Arc<V>)>>,
    most: usize,
}

impl<K: PartialEq, V> Recent<K, V> {
    fn new(most: usize) -> Self {
        Self { kept: Mutex::default(), most }
    }

    /// The value of a key, made now if it is not kept. Nobody waits for one who makes it; two may make the same.
    fn get<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = kept.iter().position(|(k, _)| *k == key)
                && let Some(entry) = kept.remove(place)
            {
                let value = Arc::clone(&entry.1);
                kept.push_front(entry);
                return Ok(value);
            }
        }
        let value = Arc::new(make()?);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(self.most.saturating_sub(1));
        kept.push_front((key, Arc::clone(&value)));
        Ok(value)
    }
}

/// Networks and runs asked for last.
#[derive(Debug)]
pub struct Memory {
    graphs: Recent<(String, Option<u64>, Option<u64>), Graph>,
    jobs: Recent<Key, Job>,
    largest: Mutex<HashMap<Room, u64>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { graphs: Recent::new(KEPT_GRAPHS), jobs: Recent::new(KEPT), largest: Mutex::default() }
    }
}

/// What the largest batch depends on: model, tokens, number formats, mode, optimizer, and the bytes of the GPU. Not the
/// batch that was asked for.
type Room = (String, Option<u64>, Precision, Mode, Option<OptimizerChoice>, Form, u64);

/// Largest batches kept: every GPU's of every format, mode and optimizer of ten models.
const KEPT_LARGEST: usize = 1 << 14;

impl Memory {
    /// The largest batch of a run that fits a GPU, found now or before.
    pub fn largest_batch(&self, job: &Job, gpu: &Gpu, reserve: &Reserve) -> Result<u64, ApiError> {
        let options = &job.options;
        let room = (
            job.model.clone(),
            job.seq,
            options.precision,
            options.mode,
            options.optimizer,
            job.form,
            gpu.memory.0.to_bits(),
        );
        if let Some(known) = self.largest.lock().unwrap_or_else(PoisonError::into_inner).get(&room) {
            return Ok(*known);
        }
        let peak = |batch| {
            fit::peak(batch, || {
                let mut graph = zoo::build(&job.model, Some(batch), job.seq)?;
                job.form.shape(&mut graph, options.mode)?;
                job.form.lower(&graph, options)
            })
        };
        let largest = fit::largest_batch(gpu, reserve, zoo::MAX_BATCH, peak)?;
        let mut kept = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_LARGEST {
            kept.clear();
        }
        kept.insert(room, largest);
        Ok(largest)
    }

    /// The network of a run, built now or before.
    pub fn graph(&self, run: &Run) -> Result<Arc<Graph>, ApiError> {
        let key = (run.model.to_lowercase(), run.batch, run.seq);
        self.graphs.get(key, || Ok(zoo::build(&run.model, run.batch, run.seq)?))
    }

    /// The run, lowered now or before.
    pub fn job(&self, run: &Run) -> Result<Arc<Job>, ApiError> {
        let form = run.form();
        let key: Key =
            (run.model.to_lowercase(), run.batch, run.seq, run.precision, run.mode, run.optimizer, form);
        self.jobs.get(key, || {
            let shared = self.graph(run)?;
            let mut shaped: Graph;
            let graph: &Graph = if (Form { run: None, ..form }).is_plain() {
                &shared
            } else {
                shaped = (*shared).clone();
                form.shape(&mut shaped, run.mode)?;
                &shaped
            };
            let options = LowerOptions { mode: run.mode, precision: run.precision, optimizer: run.optimizer };
            let iteration = form.lower(graph, &options)?;
            let (model, optimizer) = (graph.name.clone(), graph.steps_with(&options));
            let (batch, seq, notes) = (graph.samples, graph.seq, form.notes(graph, &iteration));
            Ok(Job { model, batch, seq, options, form, notes, optimizer, iteration })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_asked_for_last_are_kept() {
        let recent = Recent::new(2);
        let asked = |key: u32| {
            let mut made = false;
            let value = recent.get(key, || {
                made = true;
                Ok::<_, ()>(key * 10)
            });
            assert_eq!(*value.unwrap(), key * 10);
            made
        };
        assert_eq!([1, 2, 1, 3].map(asked), [true, true, false, true]);
        assert_eq!([1, 3, 2].map(asked), [false, false, true], "2 was asked for least recently");
        assert_eq!(recent.get(9, || Err::<u32, _>("no")), Err("no"));
    }
}
