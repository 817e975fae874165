//! Questions that the measurements of this crate share.

use preflop_core::cost::search;
use preflop_core::gpu::catalog;
use preflop_core::model::Precision;
use serde_json::json;
use std::sync::OnceLock;

/// The very same question.
pub fn same() -> String {
    json!({ "model": "resnet50", "gpu": catalog::USUAL, "batch": 64 }).to_string()
}

/// Batches that are asked for before the next GPUs are.
const BATCHES: usize = 512;
/// Times that there are so many more batches, when all else was asked for.
const ROUNDS: usize = 8;

/// Formats of the questions.
const FORMATS: [Precision; 3] = [Precision::Fp32, Precision::Amp, Precision::Fp16];

/// GPUs that have all of them.
fn gpus() -> &'static [String] {
    static GPUS: OnceLock<Vec<String>> = OnceLock::new();
    GPUS.get_or_init(|| {
        let all = catalog::all().unwrap_or_default().into_iter();
        all.filter(|gpu| FORMATS.iter().all(|f| search::lacks(gpu, *f).is_none()))
            .map(|gpu| gpu.name)
            .collect()
    })
}

/// Questions that are all different: 4,096 batches x GPUs x 3 formats x 2 modes. Neighbours differ in GPU and
/// format; two of six share batch and format, and the next two with these come 3,072 questions later.
pub fn varied(i: usize) -> String {
    let gpus = gpus();
    let (format, pair) = (i % 3, i / 3);
    let (batch, round) = (pair / 2 % BATCHES, pair / 2 / BATCHES);
    let rounds = (gpus.len() / 2).max(1);
    let gpu = 2 * (round % rounds) + pair % 2 + 5 * format + 7 * batch;
    let mode = if (round / rounds).is_multiple_of(2) { "train" } else { "infer" };
    let batch = 1 + batch + BATCHES * (round / rounds / 2 % ROUNDS);
    let precision = FORMATS[format].name();
    json!({ "model": "resnet50", "gpu": gpus[gpu % gpus.len()], "batch": batch,
        "precision": precision, "mode": mode })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_question_comes_twice() {
        let asked: HashSet<String> = (0..250_000).map(varied).collect();
        assert_eq!(asked.len(), 250_000);
    }
}
