//! Lowered iterations, kept for the next question about the same run.

use crate::error::ApiError;
use crate::model_file::{ModelFiles, PREFIX};
use crate::question::Run;
use preflop_core::Gpu;
use preflop_core::cost::room::Room;
use preflop_core::cost::{Reserve, fit};
use preflop_core::model::{
    Form, Graph, Iteration, LowerOptions, Mode, OptimizerChoice, Precision, Run as Launching, Stage, zoo,
};
use preflop_core::units::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// A run, lowered.
#[derive(Debug)]
pub struct Job {
    /// The model as it was asked for: a name, or that of a file.
    pub asked: String,
    /// How a recorded step is launched; nothing where it was not recorded.
    pub fixed: Option<Launching>,
    /// Model name as the zoo or the file has it.
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
    pub files: ModelFiles,
    graphs: Recent<(String, Option<u64>, Option<u64>), Graph>,
    jobs: Recent<Key, Job>,
    largest: Mutex<HashMap<Fitting, u64>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            files: ModelFiles::default(),
            graphs: Recent::new(KEPT_GRAPHS),
            jobs: Recent::new(KEPT),
            largest: Mutex::default(),
        }
    }
}

/// What the largest batch depends on: model, tokens, number formats, mode, optimizer, and the bytes of the GPU. Not the
/// batch that was asked for.
type Fitting = (String, Option<u64>, Precision, Mode, Option<OptimizerChoice>, Form, u64);

/// Largest batches kept: every GPU's of every format, mode and optimizer of ten models.
const KEPT_LARGEST: usize = 1 << 14;

/// Names of the zoo are the same in any case; names of files are not.
fn key_of(model: &str) -> String {
    if model.starts_with(PREFIX) { model.to_string() } else { model.to_lowercase() }
}

impl Memory {
    /// The largest batch of a run that fits a GPU, found now or before.
    pub fn largest_batch(&self, job: &Job, gpu: &Gpu, reserve: &Reserve) -> Result<u64, ApiError> {
        let options = &job.options;
        let room = (
            job.asked.clone(),
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
            if !job.asked.starts_with(PREFIX) {
                let peak = fit::peak(batch, || {
                    let mut graph = zoo::build(&job.asked, Some(batch), job.seq)?;
                    job.form.shape(&mut graph, options.mode)?;
                    job.form.lower(&graph, options)
                });
                return Ok(peak?);
            }
            let lowered = self.build(&job.asked, Some(batch), job.seq, Stage::Full).and_then(|mut graph| {
                job.form.shape(&mut graph, options.mode)?;
                Ok(job.form.lower(&graph, options)?)
            });
            match lowered {
                // Beyond what the file itself allows nothing fits.
                Err(_) if batch > 1 => Ok(Bytes(f64::INFINITY)),
                other => other.map(|iteration| fit::prudent_peak(&iteration)),
            }
        };
        let largest = fit::largest_batch(gpu, reserve, zoo::MAX_BATCH, peak)?;
        let mut kept = self.largest.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_LARGEST {
            kept.clear();
        }
        kept.insert(room, largest);
        Ok(largest)
    }

    /// A network by name, of the zoo or of a file.
    pub fn build(
        &self,
        model: &str,
        batch: Option<u64>,
        seq: Option<u64>,
        stage: Stage,
    ) -> Result<Graph, ApiError> {
        if model.starts_with(PREFIX) {
            return self.files.find(model)?.graph(batch, seq, stage);
        }
        Ok(zoo::build_stage(model, batch, seq, stage)?)
    }

    /// The network of a run, built now or before.
    pub fn graph(&self, run: &Run) -> Result<Arc<Graph>, ApiError> {
        let key = (key_of(&run.model), run.batch, run.seq);
        self.graphs.get(key, || self.build(&run.model, run.batch, run.seq, Stage::Full))
    }

    /// The run, lowered now or before.
    pub fn job(&self, run: &Run) -> Result<Arc<Job>, ApiError> {
        let form = run.form();
        let key: Key = (key_of(&run.model), run.batch, run.seq, run.precision, run.mode, run.optimizer, form);
        self.jobs.get(key, || of(run, &*self.graph(run)?))
    }

    /// The run, with what may be changed about it.
    pub fn room<'a>(
        &'a self,
        run: &'a Run,
        job: &'a Job,
    ) -> Room<'a, impl FnMut(u64) -> Option<Graph> + use<'a>> {
        let network = |batch| {
            let batch = if batch == job.batch { run.batch } else { Some(batch) };
            self.build(&run.model, batch, run.seq, Stage::Full).ok()
        };
        Room::new(job.options, job.form, &job.iteration, network)
    }

    /// The run, lowered now and kept nowhere: one of many that are tried.
    pub fn lowered(&self, run: &Run) -> Result<Arc<Job>, ApiError> {
        let graph = self.build(&run.model, run.batch, run.seq, Stage::Full)?;
        Ok(Arc::new(of(run, &graph)?))
    }
}

/// A run of this network, lowered.
fn of(run: &Run, shared: &Graph) -> Result<Job, ApiError> {
    let options = LowerOptions { mode: run.mode, precision: run.precision, optimizer: run.optimizer };
    let options = shared.settled(options);
    let fixed = shared.fixed.as_ref().map(|f| f.run);
    let asked = run.form();
    // A recorded step is launched as it was recorded, unless something else is asked for.
    let form = Form { run: asked.run.filter(|run| fixed.is_none() || *run != Launching::Eager), ..asked };
    let mut shaped: Graph;
    let graph: &Graph = if (Form { run: None, ..form }).is_plain() {
        shared
    } else {
        shaped = shared.clone();
        form.shape(&mut shaped, options.mode)?;
        &shaped
    };
    let iteration = form.lower(graph, &options)?;
    let (model, optimizer) = (graph.name.clone(), graph.steps_with(&options));
    let (batch, seq, notes) = (graph.samples, graph.seq, form.notes(graph, &iteration));
    let asked = run.model.clone();
    Ok(Job { asked, fixed, model, batch, seq, options, form, notes, optimizer, iteration })
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
