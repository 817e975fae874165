//! Losses: they run in training only and end the graph.

use super::super::graph::{Content, Graph, GraphOp, When};
use super::super::stage::Stage;
use super::{Builder, Built, Tensor};

impl Builder {
    /// The positions whose logits are wanted, before the output layer: all, or in prefill the last one.
    pub fn wanted_positions(&mut self, x: Tensor) -> Built {
        if self.stage() == Stage::Prefill { self.slice(x, 1, 1) } else { Ok(x) }
    }

    /// Ends a language model: with a loss, or with the logits of a step of generation.
    pub fn finish_language(self, logits: Tensor) -> Built<Graph> {
        if self.stage() == Stage::Full {
            self.finish_with_cross_entropy(logits)
        } else {
            Ok(self.finish(logits))
        }
    }

    /// Ends the graph with `F.cross_entropy(logits.float(), targets)`; logits of rank 3 and more are flattened to
    /// rows of their last dimension first.
    pub fn finish_with_cross_entropy(mut self, logits: Tensor) -> Built<Graph> {
        self.keep(logits);
        let shape = self.shape(logits);
        let Some((&classes, rows)) = shape.split_last() else {
            return self.error("loss", "logits have no classes");
        };
        let rows: u64 = rows.iter().product();
        let targets = shape.to_vec();
        let loss = self.scope("loss", |b| {
            b.only(When::Train, |b| {
                let targets = b.tokens(&targets[..targets.len() - 1])?;
                let mut x = b.to_float(logits)?;
                let mut t = targets;
                if b.shape(x).len() > 2 {
                    x = b.view(x, &[rows, classes])?;
                    t = b.view(t, &[rows])?;
                }
                b.call("cross_entropy", GraphOp::CrossEntropy, &[x, t], &[], &[1])
            })
        })?;
        self.graph.loss = Some(loss.0);
        Ok(self.graph)
    }

    /// Ends the graph with `F.binary_cross_entropy(x.float(), ones)`.
    pub fn finish_with_bce(mut self, x: Tensor) -> Built<Graph> {
        self.keep(x);
        let shape = self.shape(x);
        let loss = self.scope("loss", |b| {
            b.only(When::Train, |b| {
                let p = b.to_float(x)?;
                let targets = b.push_new("ones", GraphOp::Create, &[], &[], &shape, Content::Float)?;
                b.call("bce", GraphOp::BinaryCrossEntropy, &[p, targets], &[], &[1])
            })
        })?;
        self.graph.loss = Some(loss.0);
        Ok(self.graph)
    }

    /// Marks a scalar as the loss and ends the graph; `output` is kept to the end of the forward.
    pub fn finish_with_loss(mut self, output: Tensor, loss: Tensor) -> Graph {
        self.keep(output);
        self.graph.loss = Some(loss.0);
        self.graph
    }
}
