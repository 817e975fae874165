//! One batch in, one batch out.

use crate::answer::{self, JOB_ANSWERS, OPERATOR_ANSWERS};
use crate::cache::Cache;
use crate::choices;
use crate::columns::{Column, Columns, Fixed};
use crate::jobs::{self, Lowered};
use crate::operators;
use crate::{Kind, TableError};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use preflop_cluster::Cluster;
use preflop_cluster::collective::Collectives;
use preflop_core::Gpu;
use preflop_core::cost::{Catalogue, Pricing};
use preflop_core::gpu::{catalog, changeable};
use preflop_core::model::{Graph, Stage, zoo};
use preflop_core::names::did_you_mean;
use preflop_core::time::{OpPrediction, TimeModel};
use std::sync::Arc;

/// Where names of GPUs, models and clusters lead. A shell that reads files has one that knows paths too.
pub trait Source: Send + Sync + std::fmt::Debug {
    /// A GPU.
    fn gpu(&self, name: &str) -> Result<Gpu, String>;
    /// A model, or a step of generation with it.
    fn model(&self, name: &str, batch: Option<u64>, seq: Option<u64>, stage: Stage) -> Result<Graph, String>;
    /// A cluster.
    fn cluster(&self, name: &str) -> Result<Cluster, String>;
}

/// What is built in.
#[derive(Debug, Clone, Copy)]
pub struct Built;

impl Source for Built {
    fn gpu(&self, name: &str) -> Result<Gpu, String> {
        catalog::find(name).map_err(|e| e.to_string())
    }

    fn model(&self, name: &str, batch: Option<u64>, seq: Option<u64>, stage: Stage) -> Result<Graph, String> {
        zoo::build_stage(name, batch, seq, stage).map_err(|e| e.to_string())
    }

    fn cluster(&self, name: &str) -> Result<Cluster, String> {
        Cluster::named(name).map_err(|e| e.to_string())
    }
}

/// Which columns of the input stay beside the answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keep {
    /// All.
    #[default]
    All,
    /// None.
    Nothing,
    /// These.
    These(Vec<String>),
}

/// What holds for a whole table.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Columns that the table does not have, with the value of every row: `("gpu", "h200")`.
    pub fixed: Vec<Fixed>,
    /// What stays.
    pub keep: Keep,
}

/// GPUs with changed figures that are kept: a few kilobytes each.
const MAX_GPUS: usize = 4096;
/// Jobs whose operators are kept: up to a megabyte each.
const MAX_JOBS: usize = 128;

/// A GPU by name, with changed figures as (key, bits of the value).
type GpuKey = (String, Vec<(&'static str, u64)>);

/// Everything that predictions need, made once and shared by all threads.
#[derive(Debug)]
pub struct Engine {
    pub(crate) model: TimeModel,
    pub(crate) prices: Catalogue,
    pub(crate) pricing: Pricing,
    pub(crate) source: Box<dyn Source>,
    pub(crate) collectives: Collectives,
    pub(crate) lowered: Cache<jobs::Key, Lowered>,
    gpus: Cache<GpuKey, Gpu>,
}

impl Engine {
    /// An engine with this time model and these names.
    pub fn new(model: TimeModel, source: Box<dyn Source>) -> Result<Self, TableError> {
        let prices = Catalogue::embedded().map_err(|e| TableError::Value(e.to_string()))?;
        Ok(Self {
            model,
            prices,
            pricing: Pricing::OnDemand,
            source,
            collectives: Collectives::embedded(),
            lowered: Cache::new(MAX_JOBS),
            gpus: Cache::new(MAX_GPUS),
        })
    }

    /// Where names lead.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// What the rows of a table with this schema are.
    pub fn kind(schema: &Schema, question: &Question) -> Result<Kind, TableError> {
        let has = |name: &str| {
            schema.column_with_name(name).is_some() || question.fixed.iter().any(|(n, _)| n == name)
        };
        match (has("model"), has("op")) {
            (true, false) => Ok(Kind::Jobs),
            (false, true) => Ok(Kind::Operators),
            (true, true) => Err(TableError::Value(
                "the table has both `model` (jobs) and `op` (operators); take one".into(),
            )),
            (false, false) => {
                let names = schema.fields().iter().map(|f| f.name().as_str());
                let near = ["model", "op"].map(|wanted| did_you_mean(wanted, names.clone()));
                Err(TableError::Kind(near.concat()))
            }
        }
    }

    /// The schema of the answers to a table with this schema.
    pub fn schema(&self, schema: &Schema, question: &Question) -> Result<SchemaRef, TableError> {
        let kind = Self::kind(schema, question)?;
        let known = |name: &str| match kind {
            Kind::Operators => operators::is_column(name),
            Kind::Jobs => jobs::is_column(name),
        };
        for field in schema.fields() {
            if let Some(key) = field.name().strip_prefix("gpu.") {
                let wrong = |problem| TableError::Column { column: field.name().clone(), problem };
                changeable(key).map_err(wrong)?;
            } else if !known(field.name()) {
                check_stranger(kind, field.name())?;
            }
        }
        for (name, value) in &question.fixed {
            if !known(name) {
                let hint = did_you_mean(name, names(kind).iter().copied());
                return Err(TableError::Value(format!(
                    "no column `{name}` of a table of {}{hint}",
                    word(kind)
                )));
            }
            choices::check_choice(name, value).map_err(TableError::Value)?;
        }
        let answers: &[&str] = match kind {
            Kind::Operators => &OPERATOR_ANSWERS,
            Kind::Jobs => &JOB_ANSWERS,
        };
        let mut fields = Vec::new();
        for i in kept(schema, &question.keep)? {
            let field = schema.field(i);
            if answers.contains(&field.name().as_str()) {
                let problem =
                    "is also what an answer is called; rename or drop it, or say which columns to keep";
                return Err(TableError::Column {
                    column: field.name().clone(),
                    problem: problem.to_string(),
                });
            }
            fields.push(Arc::new(field.clone()));
        }
        fields.extend(answer::fields(answers).into_iter().map(Arc::new));
        Ok(Arc::new(Schema::new(fields)))
    }

    /// The answers to a batch.
    pub fn predict(&self, batch: &RecordBatch, question: &Question) -> Result<RecordBatch, TableError> {
        let schema = self.schema(batch.schema_ref(), question)?;
        let answers = match Self::kind(batch.schema_ref(), question)? {
            Kind::Operators => answer::operators(&self.operators(batch, question)?),
            Kind::Jobs => {
                let columns = Columns::of(batch, jobs::is_column, &question.fixed)?;
                answer::jobs(&jobs::predict(self, &columns, batch.num_rows()))
            }
        };
        let mut columns: Vec<ArrayRef> = kept(batch.schema_ref(), &question.keep)?
            .into_iter()
            .map(|i| Arc::clone(batch.column(i)))
            .collect();
        columns.extend(answers);
        Ok(RecordBatch::try_new(schema, columns)?)
    }

    /// The predictions of a batch of operators.
    pub fn operators(
        &self,
        batch: &RecordBatch,
        question: &Question,
    ) -> Result<Vec<Result<OpPrediction, String>>, TableError> {
        let columns = Columns::of(batch, operators::is_column, &question.fixed)?;
        operators::predict(self, &columns, batch.num_rows())
    }

    /// The GPU of a row: its name, with figures that columns `gpu.KEY` change.
    pub(crate) fn gpu(
        &self,
        name: &str,
        changes: &[(&'static str, Column<'_>)],
        row: usize,
    ) -> Result<Arc<Gpu>, String> {
        let mut changed = Vec::new();
        for (key, column) in changes {
            if let Some(value) = column.number(row)? {
                changed.push((*key, value));
            }
        }
        let key = (name.to_string(), changed.iter().map(|(k, v)| (*k, v.to_bits())).collect());
        self.gpus.get(key, || {
            let base = self.source.gpu(name)?;
            changed
                .iter()
                .try_fold(base, |gpu, (key, value)| gpu.with_figure(key, *value).map_err(|e| e.to_string()))
        })
    }
}

/// The columns `gpu.KEY`.
pub(crate) fn changes(columns: &Columns) -> Vec<(&'static str, Column<'_>)> {
    columns
        .below("gpu.")
        .into_iter()
        .filter_map(|(key, column)| Some((changeable(key).ok()?, column)))
        .collect()
}

/// A column that we do not know is carried along, unless it looks like one that we do.
fn check_stranger(kind: Kind, name: &str) -> Result<(), TableError> {
    // Short names are close to many words.
    let near = did_you_mean(name, names(kind).iter().copied().filter(|n| n.len() > 4));
    if kind == Kind::Jobs && !near.is_empty() && !JOB_ANSWERS.contains(&name) {
        let problem = format!("is not known{near} (a column that means nothing here needs another name)");
        return Err(TableError::Column { column: name.to_string(), problem });
    }
    Ok(())
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Operators => "operators",
        Kind::Jobs => "jobs",
    }
}

fn names(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Operators => &operators::COLUMNS,
        Kind::Jobs => &jobs::COLUMNS,
    }
}

/// Places of the columns that stay.
fn kept(schema: &Schema, keep: &Keep) -> Result<Vec<usize>, TableError> {
    match keep {
        Keep::All => Ok((0..schema.fields().len()).collect()),
        Keep::Nothing => Ok(Vec::new()),
        Keep::These(names) => names
            .iter()
            .map(|name| {
                schema.column_with_name(name).map(|(i, _)| i).ok_or_else(|| TableError::Missing {
                    column: name.clone(),
                    hint: did_you_mean(name, schema.fields().iter().map(|f| f.name().as_str())),
                })
            })
            .collect(),
    }
}
