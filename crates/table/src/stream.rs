//! A stream of batches, predicted as it flows: never more than a block of rows is held.

use crate::engine::{Engine, Question};
use crate::{Kind, TableError};
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use rayon::ThreadPool;
use std::sync::Arc;

/// Rows of a block: enough work for many cores, some megabytes of memory.
pub const BLOCK_ROWS: usize = 1 << 16;

/// The answers to the batches of another stream, in order.
pub struct Predicted<R> {
    input: R,
    engine: Arc<Engine>,
    question: Question,
    schema: SchemaRef,
    kind: Kind,
    threads: Option<Arc<ThreadPool>>,
    /// The batch under way and its next row.
    current: Option<(RecordBatch, usize)>,
}

impl<R> std::fmt::Debug for Predicted<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Predicted").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl<R: RecordBatchReader> Predicted<R> {
    /// Predicts what `input` gives.
    pub fn new(input: R, engine: Arc<Engine>, question: Question) -> Result<Self, TableError> {
        let schema = engine.schema(&input.schema(), &question)?;
        let kind = Engine::kind(&input.schema(), &question)?;
        Ok(Self { input, engine, question, schema, kind, threads: None, current: None })
    }

    /// With so many threads instead of one for each core.
    pub fn with_threads(mut self, count: usize) -> Result<Self, TableError> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).build();
        self.threads =
            Some(Arc::new(pool.map_err(|e| TableError::Value(format!("cannot start threads: {e}")))?));
        Ok(self)
    }

    /// What the rows are.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn block(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        loop {
            if let Some((batch, from)) = self.current.take()
                && from < batch.num_rows()
            {
                let block = batch.slice(from, BLOCK_ROWS.min(batch.num_rows() - from));
                self.current = Some((batch, from + block.num_rows()));
                return Ok(Some(block));
            }
            match self.input.next() {
                None => return Ok(None),
                Some(batch) => self.current = Some((batch?, 0)),
            }
        }
    }
}

impl<R: RecordBatchReader> Iterator for Predicted<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = match self.block().transpose()? {
            Ok(block) => block,
            Err(error) => return Some(Err(error)),
        };
        let predict = || self.engine.predict(&block, &self.question);
        let answer = match &self.threads {
            Some(threads) => threads.install(predict),
            None => predict(),
        };
        Some(answer.map_err(ArrowError::from))
    }
}

impl<R: RecordBatchReader> RecordBatchReader for Predicted<R> {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
