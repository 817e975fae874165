//! Lowered iterations, kept for the next question about the same run.

use crate::error::ApiError;
use crate::question::Run;
use preflop_core::model::{Iteration, LowerOptions, Mode, OptimizerChoice, Precision, lower, zoo};
use std::collections::VecDeque;
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
}

impl Memory {
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
        let job =
            Arc::new(Job { model: graph.name, batch: graph.samples, seq: graph.seq, options, iteration });
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.truncate(KEPT - 1);
        recent.push_front((key, Arc::clone(&job)));
        Ok(job)
    }
}
