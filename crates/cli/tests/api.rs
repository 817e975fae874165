//! The API and the commands say the same about tokens and clusters, digit by digit, wherever both say something.
#![allow(clippy::unwrap_used)]

use preflop_api::Engine;
use serde_json::{Value, json};

/// Where two answers differ in what both have; gives how many figures both have.
fn compare(at: &str, ours: &Value, theirs: &Value, wrong: &mut Vec<String>) -> usize {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let shared = a.iter().filter_map(|(key, value)| Some((key, value, b.get(key)?)));
            shared.map(|(key, x, y)| compare(&format!("{at}.{key}"), x, y, wrong)).sum()
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                wrong.push(format!("{at} has {} and {}", a.len(), b.len()));
            }
            a.iter().zip(b).enumerate().map(|(i, (x, y))| compare(&format!("{at}[{i}]"), x, y, wrong)).sum()
        }
        _ => {
            if ours != theirs {
                wrong.push(format!("{at}: {ours} and {theirs}"));
            }
            1
        }
    }
}

#[test]
fn the_api_says_what_the_commands_say() {
    let engine = Engine::new(None).unwrap();
    let cases: [(Value, &str, usize); 5] = [
        (
            json!({"ask": "generate", "model": "gpt2", "gpu": "h100", "prompt": 256, "output": 64, "batches": [1, 8]}),
            "generate gpt2 --gpu h100 --prompt 256 --output 64 --batch 1,8 --json",
            20,
        ),
        (
            json!({"ask": "generate", "model": "llama-3-8b", "gpu": "l40s", "stack": "served", "weights": "fp8", "batches": [1, 4],
                "rate_per_s": 1.0, "seconds": 60.0, "ttft_ms": 500.0}),
            "generate llama-3-8b --gpu l40s --stack served --weights fp8 --batch 1,4 --rate 1/s --for 60s --ttft 500ms --json",
            30,
        ),
        (
            json!({"ask": "plan", "model": "gpt2", "cluster": "dgx-h100x2", "global_batch": 64, "top": 4}),
            "plan gpt2 --cluster dgx-h100x2 --global-batch 64 --top 4 --json",
            60,
        ),
        (
            json!({"ask": "scale", "model": "gpt2", "node": "dgx-a100", "most_gpus": 32, "growth": "strong", "global_batch": 256}),
            "scale gpt2 --node dgx-a100 --gpus 1..32 --strong --global-batch 256 --json",
            40,
        ),
        (
            json!({"ask": "parallel", "model": "gpt2", "cluster": "dgx-h100x2", "tp": 2, "pp": 2, "micro_batch": 2, "recompute": "full"}),
            "predict gpt2 --cluster dgx-h100x2 --tp 2 --pp 2 --micro-batch 2 --recompute full --json",
            40,
        ),
    ];
    for (question, command, least) in cases {
        let ours: Value = serde_json::from_str(&engine.ask(&question.to_string())).unwrap();
        assert!(ours.get("error").is_none(), "{question}: {ours}");
        let theirs = preflop_cli::call(command.split(' ')).unwrap();
        let mut wrong = Vec::new();
        let figures = compare("", &ours, &serde_json::from_str(&theirs).unwrap(), &mut wrong);
        assert!(wrong.is_empty(), "{command}: {wrong:#?}");
        assert!(figures >= least, "{command}: only {figures} figures are in both");
    }
}
