//! A study: its columns, its design, and any range of its rows.

use crate::axis::{Axis, Value, array};
use crate::error::StudyError;
use crate::{design, read};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use preflop_core::model::Stage;
use preflop_table::{Kind, Source};
use std::ops::Range;
use std::sync::Arc;

/// How rows are made of the columns' values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// All combinations; the last column varies fastest.
    Grid,
    /// The rows that are listed.
    List,
    /// Each value by chance, independently.
    Random,
    /// Each column's values spread evenly over the rows, in a random order of its own (McKay, Beckman and Conover 1979).
    LatinHypercube,
}

impl Design {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 4] = [
        ("grid", Self::Grid),
        ("list", Self::List),
        ("random", Self::Random),
        ("latin-hypercube", Self::LatinHypercube),
    ];
}

/// A study that was read.
#[derive(Debug, Clone)]
pub struct Study {
    pub(crate) file: String,
    pub(crate) axes: Vec<Axis>,
    pub(crate) design: Design,
    pub(crate) rows: u64,
    pub(crate) seed: u64,
    pub(crate) kind: Kind,
    /// With [`Design::List`]: for each axis, the value of every row.
    pub(crate) listed: Vec<Vec<Option<Value>>>,
    schema: SchemaRef,
}

/// Rows of a study: a counter of 64 bits and files of a petabyte have their ends.
pub(crate) const MAX_ROWS: u64 = 1_000_000_000_000;

impl Study {
    /// Reads a study file; `file` names it in messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, StudyError> {
        read::study(text, file)
    }

    pub(crate) fn new(
        file: &str,
        axes: Vec<Axis>,
        design: Design,
        rows: u64,
        seed: u64,
        kind: Kind,
        listed: Vec<Vec<Option<Value>>>,
    ) -> Self {
        let schema = Arc::new(Schema::new(axes.iter().map(Axis::field).collect::<Vec<_>>()));
        Self { file: file.to_string(), axes, design, rows, seed, kind, listed, schema }
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Operators or jobs.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The design.
    pub fn design(&self) -> Design {
        self.design
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Are all models, GPUs and clusters known? Asks before the first row is computed.
    pub fn check(&self, source: &dyn Source) -> Result<(), StudyError> {
        for (i, axis) in self.axes.iter().enumerate() {
            let ask = |name: &str| match axis.name.as_str() {
                "gpu" => source.gpu(name).map(drop),
                "model" => source.model(name, None, None, Stage::Full).map(drop),
                "cluster" => source.cluster(name).map(drop),
                _ => Ok(()),
            };
            for name in design::texts_of(self, i) {
                ask(&name).map_err(|problem| StudyError::Line {
                    file: self.file.clone(),
                    line: axis.line,
                    problem: format!("`{}`: {problem}", axis.name),
                })?;
            }
        }
        Ok(())
    }

    /// Files that the study names: models, GPUs and clusters that are paths.
    pub fn files(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (i, axis) in self.axes.iter().enumerate() {
            if matches!(axis.name.as_str(), "gpu" | "model" | "cluster") {
                let paths =
                    design::texts_of(self, i).into_iter().filter(|t| std::path::Path::new(t).is_file());
                out.extend(paths);
            }
        }
        out.sort();
        out.dedup();
        out
    }

    /// These rows.
    pub fn batch(&self, rows: Range<u64>) -> Result<RecordBatch, StudyError> {
        let columns: Vec<ArrayRef> = self
            .axes
            .iter()
            .enumerate()
            .map(|(i, axis)| array(&axis.kind(), rows.clone().map(|row| design::value(self, i, row))))
            .collect();
        Ok(RecordBatch::try_new(self.schema(), columns).map_err(preflop_table::TableError::from)?)
    }
}
