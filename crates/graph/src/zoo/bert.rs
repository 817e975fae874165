//! BERT for masked language modelling as in Hugging Face's `BertForMaskedLM` (Devlin et al. 2018, arXiv:1810.04805).

use super::super::Rule;
use super::super::builder::{Builder, Built, Param, Tensor};
use super::super::graph::{Graph, Unary};
use super::{Entry, ModelInfo, Sizes};

const fn info(name: &'static str, title: &'static str, batch: u64, seq: u64, parameters: u64) -> ModelInfo {
    ModelInfo {
        name,
        title,
        family: "transformer",
        input: "sequence of tokens",
        default_batch: batch,
        default_seq: Some(seq),
        max_seq: Some(POSITIONS),
        parameters,
        optimizer: Rule::Adam,
    }
}

pub(super) const MODELS: &[Entry] = &[
    Entry { info: info("bert-base", "BERT base, masked language model", 16, 128, 109_514_298), build },
    Entry { info: info("bert-large", "BERT large, masked language model", 16, 512, 335_174_458), build },
];

const VOCABULARY: u64 = 30_522;
const POSITIONS: u64 = 512;

/// Whose code it is: they differ in what surrounds the layers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Bert,
    Roberta,
    DistilBert,
    Electra,
}

/// What comes after the last layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Masked words.
    Words,
    /// Start and end of an answer.
    Answers(u64),
    /// Labels of every token.
    Tokens(u64),
    /// Labels of the sequence.
    Labels(u64),
    /// Which words were replaced (ELECTRA).
    Replaced,
    /// Hidden states and what the family's plain model adds.
    States,
}

/// Sizes of a BERT.
pub(super) struct Plan {
    pub family: Family,
    pub head: Head,
    /// Width of the embedding, which ELECTRA projects.
    pub embedding: u64,
    pub width: u64,
    pub inner: u64,
    pub layers: usize,
    pub heads: u64,
    pub vocabulary: u64,
    pub positions: u64,
    pub types: u64,
}

fn build(s: Sizes) -> Built<Graph> {
    let (width, layers, heads) = match s.name {
        "bert-large" => (1024, 24, 16),
        _ => (768, 12, 12),
    };
    let plan = Plan {
        family: Family::Bert,
        head: Head::Words,
        embedding: width,
        width,
        inner: 4 * width,
        layers,
        heads,
        vocabulary: VOCABULARY,
        positions: POSITIONS,
        types: 2,
    };
    assemble(s.name, s.batch, s.seq, &plan)
}

/// The model of these sizes.
pub(super) fn assemble(name: &str, batch: u64, seq: u64, plan: &Plan) -> Built<Graph> {
    let mut b = Builder::new(name, batch);
    b.mask_under_capture();
    let tokens = b.tokens(&[batch, seq])?;
    b.count_module();
    let (x, table) = b.scope("bert.embeddings", |b| {
        b.count_module();
        // Token types are gathered from a buffer, expanded and copied; positions are a slice of a buffer.
        b.buffer(4 * plan.positions);
        let types = b.arange(seq)?;
        let types = b.view(types, &[1, seq])?;
        let positions = types;
        let types = b.expand(types, &[batch, seq])?;
        let types = b.contiguous(types)?;
        let (words, table) = b.embedding("word_embeddings", tokens, plan.vocabulary, plan.embedding)?;
        let mut x = words;
        if plan.types > 0 {
            let (kinds, _) = b.embedding("token_type_embeddings", types, plan.types, plan.embedding)?;
            x = b.add(x, kinds)?;
        }
        let (places, _) = b.embedding("position_embeddings", positions, plan.positions, plan.embedding)?;
        let x = b.add(x, places)?;
        let x = b.layer_norm("LayerNorm", x)?;
        Ok((b.dropout(x)?, table))
    })?;
    let x =
        if plan.embedding == plan.width { x } else { b.linear("embeddings_project", x, plan.width, true)? };
    let x = b.scope("bert.encoder", |b| {
        b.count_module();
        let mut x = x;
        for i in 0..plan.layers {
            x = b.module(&format!("layer.{i}"), x, |b, x| layer(b, x, plan))?;
        }
        Ok(x)
    })?;
    match plan.head {
        Head::Words => {
            let logits = words(&mut b, x, table, plan)?;
            b.finish_with_cross_entropy(logits)
        }
        Head::Answers(labels) => {
            let scores = b.linear("qa_outputs", x, labels, true)?;
            // The start and the end are each chosen among the tokens.
            let scores = b.transpose(scores, 1, 2)?;
            let scores = b.contiguous(scores)?;
            b.finish_with_cross_entropy(scores)
        }
        Head::Tokens(labels) => {
            let x = b.dropout(x)?;
            let scores = b.linear("classifier", x, labels, true)?;
            b.finish_with_cross_entropy(scores)
        }
        Head::Labels(labels) => {
            let x = pooled(&mut b, x, plan)?;
            let x = b.dropout(x)?;
            let scores = b.linear("classifier.out_proj", x, labels, true)?;
            b.finish_with_cross_entropy(scores)
        }
        Head::Replaced => {
            let x = b.linear("discriminator_predictions.dense", x, plan.width, true)?;
            let x = b.gelu(x)?;
            let scores = b.linear("discriminator_predictions.dense_prediction", x, 1, true)?;
            b.finish_with_bce(scores)
        }
        Head::States => {
            if matches!(plan.family, Family::Bert | Family::Roberta) {
                let pooled = pooled(&mut b, x, plan)?;
                b.keep(pooled);
            }
            Ok(b.finish(x))
        }
    }
}

/// Logits over the vocabulary: a dense layer as wide as the embedding, then the embedding itself.
fn words(b: &mut Builder, x: Tensor, table: Param, plan: &Plan) -> Built {
    b.scope("cls.predictions", |b| {
        b.count_module();
        b.count_module();
        let x = b.module("transform", x, |b, x| {
            let x = b.linear("dense", x, plan.embedding, true)?;
            let x = b.gelu(x)?;
            b.layer_norm("LayerNorm", x)
        })?;
        let bias = b.parameter("bias", &[plan.vocabulary]);
        b.count_module();
        b.linear_with("decoder", x, table, Some(bias))
    })
}

/// The first token through a dense layer.
fn pooled(b: &mut Builder, x: Tensor, plan: &Plan) -> Built {
    let first = b.select(x, 1)?;
    let y = b.linear("pooler.dense", first, plan.width, true)?;
    b.unary(y, Unary::Tanh)
}

fn heads(b: &mut Builder, name: &str, x: Tensor, heads: u64) -> Built {
    let [batch, seq, width] = [b.dim(x, 0), b.dim(x, 1), b.dim(x, 2)];
    let y = b.linear(name, x, width, true)?;
    let y = b.view(y, &[batch, seq, heads, width / heads])?;
    b.transpose(y, 1, 2)
}

fn layer(b: &mut Builder, x: Tensor, plan: &Plan) -> Built {
    let shape = b.shape(x);
    let attended = b.module("attention", x, |b, x| {
        let a = b.module("self", x, |b, x| {
            let q = heads(b, "query", x, plan.heads)?;
            let k = heads(b, "key", x, plan.heads)?;
            let v = heads(b, "value", x, plan.heads)?;
            let a = b.sdpa_dropout(q, k, v)?;
            let a = b.transpose(a, 1, 2)?;
            b.view(a, &shape)
        })?;
        b.module("output", a, |b, a| residual(b, a, x, plan.width))
    })?;
    let y = b.module("intermediate", attended, |b, x| {
        let y = b.linear("dense", x, plan.inner, true)?;
        b.activation("intermediate_act_fn", y, Unary::Gelu, false)
    })?;
    b.module("output", y, |b, y| residual(b, y, attended, plan.width))
}

fn residual(b: &mut Builder, y: Tensor, x: Tensor, width: u64) -> Built {
    let y = b.linear("dense", y, width, true)?;
    let y = b.dropout(y)?;
    let y = b.add(y, x)?;
    b.layer_norm("LayerNorm", y)
}
