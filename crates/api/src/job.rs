//! Lowered iterations, kept for the next question about the same run.

use crate::error::ApiError;
use crate::question::Run;
use preflop_core::Gpu;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::{Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
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
    /// The optimizer of a training step.
    pub optimizer: Option<OptimizerChoice>,
    /// Its operators.
    pub iteration: Iteration,
}

type Key = (String, Option<u64>, Option<u64>, Precision, Mode, Option<OptimizerChoice>);

/// Runs kept; the largest models take about a megabyte each.
const KEPT: usize = 64;

/// The runs asked for last.
#[derive(Debug, Default)]
pub struct Memory {
    recent: Mutex<VecDeque<(Key, Arc<Job>)>>,
    largest: Mutex<HashMap<Room, u64>>,
}

/// What the largest batch depends on: model, tokens, number formats, mode, optimizer, and the bytes of the GPU. Not the
/// batch that was asked for.
type Room = (String, Option<u64>, Precision, Mode, Option<OptimizerChoice>, u64);

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
            gpu.memory.0.to_bits(),
        );
        if let Some(known) = self.largest.lock().unwrap_or_else(PoisonError::into_inner).get(&room) {
            return Ok(*known);
        }
        let peak = |batch| fit::peak_of_zoo(&job.model, batch, job.seq, options);
        let largest = fit::largest_batch(gpu, reserve, zoo::MAX_BATCH, peak)?;
        let mut kept = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_LARGEST {
            kept.clear();
        }
        kept.insert(room, largest);
        Ok(largest)
    }

    /// The run, lowered now or before.
    pub fn job(&self, run: &Run) -> Result<Arc<Job>, ApiError> {
        let key: Key = (run.model.to_lowercase(), run.batch, run.seq, run.precision, run.mode, run.optimizer);
        {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = recent.iter().position(|(k, _)| *k == key)
                && let Some(entry) = recent.remove(place)
            {
                let job = Arc::clone(&entry.1);
                recent.push_front(entry);
                return Ok(job);
            }
        }
        let graph = zoo::build(&run.model, run.batch, run.seq)?;
        let options = LowerOptions { mode: run.mode, precision: run.precision, optimizer: run.optimizer };
        let iteration = lower(&graph, &options)?;
        let optimizer = graph.steps_with(&options);
        let Graph { name: model, samples: batch, seq, .. } = graph;
        let job = Arc::new(Job { model, batch, seq, options, optimizer, iteration });
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(KEPT - 1);
        recent.push_front((key, Arc::clone(&job)));
        Ok(job)
    }
}
