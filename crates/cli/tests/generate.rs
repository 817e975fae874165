//! Language models on the command line: steps of generation, whole answers, traffic, what fits.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::Write as _;

fn json(args: &[&str]) -> Value {
    let all = args.iter().copied().chain(["--json"]);
    serde_json::from_str(&preflop_cli::call(all).unwrap()).unwrap()
}

fn failure(args: &[&str]) -> preflop_cli::Failure {
    preflop_cli::call(args.iter().copied()).unwrap_err()
}

#[test]
fn a_step_says_its_tokens_and_its_cache() {
    let step = json(&[
        "predict",
        "llama-1b",
        "--gpu",
        "h200",
        "--mode",
        "decode",
        "--batch",
        "4",
        "--context",
        "1k",
    ]);
    assert_eq!(step["mode"], "decode");
    assert_eq!(step["context"], 1000);
    assert_eq!(step["precision"], "bf16");
    let per_token = step["tokens_per_s"].as_f64().unwrap() * step["iteration_ms"].as_f64().unwrap() / 1e3;
    assert!((per_token - 4.0).abs() < 1e-9);
    // 16 layers * 2 * 8 heads * 64 * 2 bytes * 4 sequences * 1008 places
    let cache = step["memory"]["kv_cache_mib"].as_f64().unwrap();
    assert!(
        (cache / (16.0 * 2.0 * 8.0 * 64.0 * 2.0 * 4.0 * 1008.0 / 1_048_576.0) - 1.0).abs() < 0.01,
        "{cache}"
    );
}

#[test]
fn a_replayed_step_is_faster_and_a_longer_context_slower() {
    let ms = |extra: &[&str]| {
        let base = ["predict", "llama-1b", "--gpu", "h200", "--mode", "decode"];
        json(&base.iter().chain(extra).copied().collect::<Vec<_>>())["iteration_ms"].as_f64().unwrap()
    };
    let graph = ms(&["--run", "graph", "--context", "512"]);
    assert!(graph < 0.5 * ms(&["--context", "512"]));
    assert!(graph < ms(&["--run", "graph", "--context", "8192"]));
}

#[test]
fn answers_have_the_names_that_scripts_rely_on() {
    let said = json(&[
        "generate", "llama-1b", "--gpu", "h200", "--prompt", "512", "--output", "64", "--batch", "1,4",
    ]);
    let runs = said["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for name in ["batch", "ttft_ms", "tpot_ms", "tokens_per_s", "kv_mib"] {
        assert!(runs.iter().all(|r| r[name].as_f64().is_some_and(|x| x > 0.0)), "{name}");
    }
    assert!(runs[1]["tokens_per_s"].as_f64() > runs[0]["tokens_per_s"].as_f64());
    assert!(said["largest_batch"].as_u64().unwrap() > 100);
}

#[test]
fn a_server_is_asked_the_same_way() {
    let tpot = |weights: &str| {
        let args = [
            "generate",
            "llama-3-8b",
            "--gpu",
            "h200",
            "--batch",
            "1",
            "--stack",
            "served",
            "--weights",
            weights,
        ];
        json(&args)["runs"][0]["tpot_ms"].as_f64().unwrap()
    };
    assert!(tpot("fp8") < tpot("bf16"));
    let refused =
        failure(&["generate", "llama-3-8b", "--gpu", "a100", "--stack", "served", "--weights", "nvfp4"]);
    assert_eq!(refused.status, 2);
    assert!(refused.message.contains("nvfp4"), "{}", refused.message);
}

#[test]
fn traffic_is_simulated_with_percentiles() {
    let args = [
        "generate", "llama-1b", "--gpu", "h200", "--batch", "1", "--stack", "served", "--rate", "60/min",
        "--for", "5min",
    ];
    let traffic = &json(&args)["traffic"];
    assert_eq!(traffic["saturated"], false);
    assert!(traffic["ttft"]["p99_ms"].as_f64() >= traffic["ttft"]["p50_ms"].as_f64());
    assert!(traffic["answered"].as_u64() > Some(200));
}

#[test]
fn a_configuration_is_a_model() {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let config = r#"{"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": true}"#;
    file.write_all(config.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let step = json(&["predict", path, "--gpu", "l40s", "--mode", "prefill", "--seq", "256"]);
    // Qwen3 0.6B as transformers counts it
    assert_eq!(step["parameters"], 596_049_920_u64);
}

#[test]
fn a_checkpoint_says_in_what_its_weights_are() {
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let config = r#"{"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
        "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}}"#;
    file.write_all(config.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap();
    let served = |extra: &[&str]| {
        let base = ["generate", path, "--gpu", "h200", "--batch", "1", "--stack", "served"];
        json(&base.iter().chain(extra).copied().collect::<Vec<_>>())
    };
    let (own, wide) = (served(&[]), served(&["--weights", "bf16"]));
    assert_eq!(own["precision"], "fp8_block");
    let memory = |said: &Value| said["runs"][0]["memory_mib"].as_f64().unwrap();
    assert!(memory(&own) < memory(&wide));
    let notes = |said: &Value| said["notes"].to_string();
    assert!(notes(&own).contains("as the configuration says") && !notes(&wide).contains("configuration"));
    let step = json(&["predict", path, "--gpu", "h200", "--mode", "prefill", "--seq", "256"]);
    assert!(step["notes"].to_string().contains("fp8_block"));
    let refused = failure(&["generate", path, "--gpu", "a100", "--stack", "served"]);
    assert_eq!(refused.status, 2);
    assert!(refused.message.contains("fp8_block"), "{}", refused.message);
}

#[test]
fn keys_and_values_take_fewer_bits() {
    let cache = |kv: &str| {
        let args =
            ["generate", "llama-3-8b", "--gpu", "b200", "--batch", "8", "--stack", "served", "--kv", kv];
        let said = json(&args);
        let measured = !said["notes"].to_string().contains("measured nowhere");
        (said["runs"][0]["kv_mib"].as_f64().unwrap(), measured)
    };
    let (bf16, fp8, int8, fp4) = (cache("bf16"), cache("fp8"), cache("int8"), cache("fp4"));
    assert!(bf16.1 && fp8.1 && !int8.1 && !fp4.1);
    // Of 128 numbers 256, 128, 132 and 72 bytes
    for (kv, share) in [(fp8, 0.5), (int8, 132.0 / 256.0), (fp4, 72.0 / 256.0)] {
        assert!((kv.0 / bf16.0 - share).abs() < 0.005, "{kv:?} {bf16:?}");
    }
    let refused = failure(&["generate", "llama-3-8b", "--gpu", "h200", "--stack", "served", "--kv", "fp4"]);
    assert_eq!(refused.status, 2);
}

#[test]
fn what_does_not_go_together_is_refused_in_one_line() {
    for args in [
        &["predict", "llama-1b", "--gpu", "h200", "--mode", "decode", "--seq", "5"][..],
        &["predict", "llama-1b", "--gpu", "h200", "--context", "5"],
        &["predict", "resnet50", "--gpu", "h200", "--mode", "prefill"],
        &["predict", "resnet50", "--gpu", "h200", "--tokens", "10B"],
        &["predict", "llama-1b", "--gpu", "h200", "--mode", "infer", "--lora", "8"],
        &["predict", "resnet50", "--gpu", "h200", "--lora", "8"],
        &["predict", "llama-1b", "--gpu", "h200", "--mode", "infer", "--qlora", "8"],
        &["predict", "llama-1b", "--gpu", "h200", "--optimizer", "sgd:8bit"],
        &["generate", "resnet50", "--gpu", "h200"],
        &["generate", "llama-1b", "--gpu", "h200", "--batch", "8..2"],
        &["generate", "llama-1b", "--gpu", "h200", "--kv", "fp8"],
        &["generate", "llama-1b", "--gpu", "h200", "--cache", "growing"],
        &["generate", "gpt2", "--gpu", "h200", "--prompt", "1024", "--output", "64"],
    ] {
        let said = failure(args);
        assert_eq!(said.status, 2, "{args:?}: {}", said.message);
        assert!(!said.message.contains('\n') && !said.message.is_empty());
    }
}

#[test]
fn what_does_not_fit_says_what_would() {
    let args = ["predict", "llama-3-8b", "--gpu", "l40s", "--precision", "bf16", "--seq", "512"];
    let said = json(&args);
    assert_eq!(said["fits"], false);
    let changes = said["changes"].as_array().unwrap();
    assert!(changes.iter().any(|c| c["options"][0] == "--lora 16" && c["fits"] == true));
    let ended = failure(&args.iter().copied().chain(["--fail-if-not-fit"]).collect::<Vec<_>>());
    assert_eq!(ended.status, 1);
    for command in [
        &["compare", "llama-3-8b", "--gpus", "l40s", "--precision", "bf16", "--seq", "512"][..],
        &["report", "llama-3-8b", "--gpu", "l40s", "--precision", "bf16", "--seq", "512", "--md"],
    ] {
        preflop_cli::call(command.iter().copied()).unwrap();
        let ended = failure(&command.iter().copied().chain(["--fail-if-not-fit"]).collect::<Vec<_>>());
        assert_eq!(ended.status, 1, "{command:?}");
    }
    let page = preflop_cli::call(args).unwrap();
    let verdict = page.find("does not fit").unwrap();
    assert!(verdict < page.find("time  ").unwrap(), "{page}");
}

#[test]
fn adapters_over_4_bits_and_8_bit_states_need_less_and_say_that_nobody_measured_them() {
    let said = |extra: &[&str]| {
        let base = ["predict", "llama-1b", "--gpu", "h200", "--precision", "bf16", "--seq", "256"];
        json(&base.iter().chain(extra).copied().collect::<Vec<_>>())
    };
    let memory = |of: &Value| of["memory_mib"].as_f64().unwrap();
    let time = |of: &Value| of["iteration_ms"].as_f64().unwrap();
    let (lora, qlora) = (said(&["--lora", "16"]), said(&["--qlora", "16"]));
    assert!(memory(&qlora) < memory(&lora));
    assert!(time(&qlora) > time(&lora), "widening takes time");
    let (wide, narrow) = (said(&["--optimizer", "adamw:fused"]), said(&["--optimizer", "adamw:8bit"]));
    let paged = said(&["--optimizer", "adamw:paged-8bit"]);
    assert!(memory(&paged) < memory(&narrow) && memory(&narrow) < memory(&wide));
    for of in [&qlora, &narrow, &paged] {
        let notes = of["notes"].as_array().unwrap();
        assert!(notes.iter().any(|n| n.as_str().unwrap().contains("was measured")), "{notes:?}");
    }
}

#[test]
fn an_hour_of_traffic_is_simulated_in_the_time_of_an_answer() {
    // 50 requests a second for an hour: 180,000. Without optimisation and on a busy machine, so with room: 0.05 s in a release.
    let begun = std::time::Instant::now();
    let args =
        ["generate", "llama-3-8b", "--gpu", "h200", "--stack", "served", "--rate", "50/s", "--for", "1h"];
    let said = json(&args);
    assert!(said["traffic"]["arrived"].as_u64().unwrap() > 170_000, "{said}");
    assert!(begun.elapsed().as_secs() < 60, "{:?}", begun.elapsed());
}
