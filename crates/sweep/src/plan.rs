//! What is to be computed: rows from a study or a table, cut into parts, of which a shard is some.

use crate::error::StudyError;
use crate::parts::{About, Parts};
use crate::study::Study;
use arrow_array::RecordBatch;
use preflop_table::format::{Table, parquet_bytes};
use preflop_table::{BLOCK_ROWS, Engine, Kind, Question};
use std::ops::Range;

/// Rows of a part: of operators, which take microseconds, some seconds of work;
pub const PART_OPERATORS: u64 = 1 << 17;
/// of jobs, which take milliseconds.
pub const PART_JOBS: u64 = 1 << 11;
/// Jobs that are predicted before progress is told.
const BLOCK_JOBS: u64 = 1 << 8;

/// Some of the parts: every n-th, beginning with the i-th.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub index: u64,
    /// Of so many.
    pub count: u64,
}

impl Shard {
    /// `i/n`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write it as i/n, such as 2/8: the second of eight".to_string();
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let (index, count) =
            (index.parse::<u64>().map_err(|_| wrong())?, count.parse::<u64>().map_err(|_| wrong())?);
        if index == 0 || index > count || count > 1_000_000 {
            return Err(format!(
                "`{text}` is no shard; the first is 1/{}, the last {0}/{0}",
                count.clamp(1, 1_000_000)
            ));
        }
        Ok(Self { index, count })
    }

    /// Does it compute this part?
    pub fn has(&self, part: u64) -> bool {
        part % self.count == self.index - 1
    }
}

/// Where rows come from.
pub enum Rows {
    /// A study, any of whose rows can be made at once.
    Study(Box<Study>),
    /// A table, read from its beginning.
    Table {
        /// The batches that are left.
        table: Table,
        /// What is left of the batch that was read last.
        held: Option<RecordBatch>,
        /// The first row that is held or left.
        at: u64,
    },
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Study(study) => f.debug_tuple("Study").field(study).finish(),
            Self::Table { at, .. } => f.debug_struct("Table").field("at", at).finish_non_exhaustive(),
        }
    }
}

impl Rows {
    /// The rows of a table.
    pub fn table(table: Table) -> Self {
        Self::Table { table, held: None, at: 0 }
    }

    /// Rows from the start of a range, no more than a block of them; nothing where a table has ended. A table only goes forward.
    fn block(&mut self, rows: Range<u64>) -> Result<Option<RecordBatch>, StudyError> {
        match self {
            Self::Study(study) => {
                Ok(Some(study.batch(rows.start..rows.end.min(rows.start + BLOCK_ROWS as u64))?))
            }
            Self::Table { table, held, at } => loop {
                let batch = match held.take() {
                    Some(batch) => batch,
                    None => match table.next() {
                        Some(batch) => batch.map_err(preflop_table::TableError::from)?,
                        None => return Ok(None),
                    },
                };
                let count = batch.num_rows() as u64;
                let skip = rows.start.saturating_sub(*at).min(count);
                let take = (count - skip).min(rows.end - rows.start).min(BLOCK_ROWS as u64);
                if skip + take < count {
                    *held = Some(batch.slice((skip + take) as usize, (count - skip - take) as usize));
                }
                *at += skip + take;
                if take > 0 {
                    return Ok(Some(batch.slice(skip as usize, take as usize)));
                }
            },
        }
    }
}

/// A sweep made ready: its rows in parts.
#[derive(Debug)]
pub struct Plan {
    rows: Rows,
    about: About,
    question: Question,
    block_rows: u64,
}

/// FNV-1a, 64 bits (Fowler, Noll and Vo): enough to tell versions of one file apart.
#[derive(Debug, Clone, Copy)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    /// With more bytes.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
    }

    /// As text.
    pub fn text(self) -> String {
        format!("{:016x}", self.0)
    }
}

impl Plan {
    /// The sweep of a study; `text` is its file.
    pub fn of_study(text: &str, file: &str, part_rows: Option<u64>) -> Result<Self, StudyError> {
        let study = Study::parse(text, file)?;
        let mut sum = Checksum::default().with(text.as_bytes());
        for path in study.files() {
            sum = sum.with(&std::fs::read(&path).map_err(StudyError::io("read", &path))?);
        }
        let (kind, rows) = (study.kind(), study.rows());
        Ok(Self::new(Rows::Study(Box::new(study)), kind, rows, sum, part_rows, Question::default()))
    }

    /// The sweep of a table with so many rows.
    pub fn of_table(
        table: Table,
        rows: u64,
        sum: Checksum,
        question: Question,
        part_rows: Option<u64>,
    ) -> Result<Self, StudyError> {
        let kind = Engine::kind(&table.schema(), &question)?;
        Ok(Self::new(Rows::table(table), kind, rows, sum, part_rows, question))
    }

    fn new(
        rows: Rows,
        kind: Kind,
        count: u64,
        sum: Checksum,
        part_rows: Option<u64>,
        question: Question,
    ) -> Self {
        let (usual, block_rows) = match kind {
            Kind::Operators => (PART_OPERATORS, BLOCK_ROWS as u64),
            Kind::Jobs => (PART_JOBS, BLOCK_JOBS),
        };
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_string(),
            study: sum.text(),
            rows: count,
            part_rows: part_rows.unwrap_or(usual),
        };
        Self { rows, about, question, block_rows }
    }

    /// What the parts belong to.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Are all names known?
    pub fn check(&self, engine: &Engine) -> Result<(), StudyError> {
        match &self.rows {
            Rows::Study(study) => {
                engine.schema(&study.schema(), &self.question)?;
                study.check(engine.source())
            }
            Rows::Table { table, .. } => {
                engine.schema(&table.schema(), &self.question)?;
                Ok(())
            }
        }
    }

    /// Predicts the rows of a part. `done` is told of rows as they are predicted. Parts of a table are asked for in rising order.
    pub fn part(
        &mut self,
        part: u64,
        engine: &Engine,
        mut done: impl FnMut(u64),
    ) -> Result<RecordBatch, StudyError> {
        let from = part.saturating_mul(self.about.part_rows).min(self.about.rows);
        let to = (from + self.about.part_rows).min(self.about.rows);
        let (mut answers, mut at) = (Vec::new(), from);
        while at < to {
            let block =
                self.rows.block(at..to.min(at + self.block_rows))?.filter(|block| block.num_rows() > 0);
            let Some(block) = block else {
                let problem = format!("rows from {at} on are not there any more");
                return Err(StudyError::File { file: "the table".into(), problem });
            };
            answers.push(engine.predict(&block, &self.question)?);
            at += block.num_rows() as u64;
            done(block.num_rows() as u64);
        }
        let schema = match &self.rows {
            Rows::Study(study) => study.schema(),
            Rows::Table { table, .. } => table.schema(),
        };
        let schema = engine.schema(&schema, &self.question)?;
        Ok(preflop_table::joined(&schema, &answers)?)
    }

    /// Computes these parts, in rising order, and keeps them; one part is written while the next is predicted.
    pub fn compute(
        &mut self,
        wanted: &[u64],
        engine: &Engine,
        parts: &Parts,
        mut done: impl FnMut(u64),
    ) -> Result<(), StudyError> {
        std::thread::scope(|scope| {
            let (send, receive) = std::sync::mpsc::sync_channel::<(u64, RecordBatch)>(1);
            let writer = scope.spawn(move || -> Result<(), StudyError> {
                for (part, batch) in receive {
                    parts.keep(part, &parquet_bytes(&batch)?)?;
                }
                Ok(())
            });
            let mut computed = Ok(true);
            for part in wanted {
                computed = self.part(*part, engine, &mut done).map(|batch| send.send((*part, batch)).is_ok());
                // A writer that failed says why below.
                if !matches!(computed, Ok(true)) {
                    break;
                }
            }
            drop(send);
            let written = writer.join().unwrap_or_else(|_| {
                Err(StudyError::File { file: "the parts".into(), problem: "the writer failed".into() })
            });
            written.and(computed.map(drop))
        })
    }
}
