//! Runs the real binary and checks what it prints: JSON names, order, colours, widths.
// A helper that fails should fail the test that called it.
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::process::Command;

fn preflop(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_preflop"));
    command.args(args).env_remove("NO_COLOR").env_remove("COLUMNS");
    command
}

fn text(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(&mut preflop(args))).unwrap()
}

#[test]
fn every_gpu_is_listed_once() {
    let list = json(&["gpus", "--json"]);
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(names.len(), unique.len());
    for wanted in "titan-xp titan-v gtx-1080-ti p4000 p4 p100-pcie p100-sxm2 v100-pcie-16gb v100-pcie-32gb v100-sxm2-16gb \
        v100-sxm2-32gb vega-frontier rtx-2070 rtx-2080-ti t4 rtx-3090 rtx-4090 rtx-5090 a100-pcie-40gb a100-pcie-80gb \
        a100-sxm-40gb a100-sxm-80gb a10 a40 rtx-a6000 l4 l40s rtx-pro-6000 h100-pcie h100-sxm h100-nvl h200 b200 b300 \
        gb200 gb300 mi100 mi210 mi250 mi250x mi300x mi325x"
        .split_whitespace()
    {
        assert!(names.contains(&wanted), "{wanted}");
    }
}

#[test]
fn show_gives_every_figure_with_its_source() {
    let gpu = json(&["gpus", "show", "h200", "--json"]);
    let facts = gpu["facts"].as_array().unwrap();
    assert!(facts.iter().all(|f| !f["source"].as_str().unwrap().is_empty()));
    let table = text(&mut preflop(&["gpus", "show", "h200"]));
    for fact in facts {
        assert!(table.contains(fact["key"].as_str().unwrap()));
    }
    for assumption in gpu["assumptions"].as_array().unwrap() {
        assert!(table.contains(assumption["key"].as_str().unwrap()));
    }
}

#[test]
fn a_gpu_equals_itself() {
    let same = json(&["gpus", "diff", "h200", "h200-sxm", "--json"]);
    assert_eq!(same["differences"].as_array().unwrap().len(), 0);
    let other = json(&["gpus", "diff", "h200", "h100", "--json"]);
    assert!(other["differences"].as_array().unwrap().iter().any(|d| d["key"] == "memory.dram_gbs"));
}

#[test]
fn colour_only_where_asked_for() {
    assert!(!text(&mut preflop(&["gpus"])).contains('\u{1b}'));
    let always = text(&mut preflop(&["gpus", "--color", "always"]));
    assert!(always.contains('\u{1b}'));
    assert!(!text(preflop(&["gpus"]).env("NO_COLOR", "1")).contains('\u{1b}'));
}

/// Every command that prints a table. Recordings and files lie in the repository's root.
const TABLES: &str = "gpus
gpus show h200
gpus show mi100
gpus fields
gpus history
gpus diff h200 h100
models
models show llama-3-8b
predict resnet50 --gpu h200
predict bert-base --gpu a100
predict gpt2 --gpu a100 --launches
predict llama-2-7b --gpu t4
predict llama-2-7b --cluster dgx-h100x4 --tp 2 --pp 2
advise resnet50 --gpu a100
advise examples/step.json.gz
generate llama-3-8b --gpu h200 --prompt 2048 --output 512 --rate 5/s
compare resnet50 --all
compare resnet50 --precision amp --top 8 --baseline v100
compare gpt2 --batch auto --gpus t4,l4,a100
compare resnet50 --epochs 90 --dataset-size 1281167 --budget 50
compare resnet50 --gpus 8xh100,4xa100
compare examples/step.json.gz --gpus a100,l4
roofline resnet50 --gpu h200
roofline resnet50 --gpu h200 --autotuning
roofline examples/step.json.gz
delta resnet152 --gpu titan-xp --unique --compare-prior 1
explore resnet152 --base titan-xp
explore gpt2 --base a100 --objective time --vary sm_count=1,2 --vary dram_bw=1,2
validate --parallel
transfer examples/step.json.gz --to a100,l4
explain examples/step.json.gz
diff examples/step.json.gz examples/step.json.gz
cluster
cluster show dgx-h100x4
cluster diff dgx-h100 dgx-a100
collective all-reduce --cluster dgx-h100x4
plan gpt2 --cluster dgx-h100 --global-batch 64
scale gpt2 --node dgx-h100 --gpus 1..16 --global-batch 64
prices a10";

#[test]
fn tables_fit_the_terminal_and_break_no_words() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let mut wrong = Vec::new();
    for line in TABLES.lines() {
        let args: Vec<&str> = line.split(' ').collect();
        let at = |width: usize| text(preflop(&args).current_dir(root).env("COLUMNS", width.to_string()));
        // What a wide terminal shows has all the words. Bars are drawn to the width, and notes of GPU files stand below narrow tables alone.
        let wide = at(200);
        let words: HashSet<&str> = wide.split_whitespace().collect();
        for width in [60, 80] {
            let shown = at(width);
            let (text, _) = shown.split_once("\nNotes\n").unwrap_or((&shown, ""));
            // The sentence about columns that are missing may begin on one line and end on the next.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let (text, _) = text.split_once("Left out for want of").unwrap_or((&text, ""));
            let longest = shown.lines().map(|l| l.chars().count()).max().unwrap();
            if longest > width {
                wrong.push(format!("{line}: {longest} columns of {width}"));
            }
            let whole =
                |word: &&str| words.contains(word) || word.contains("..") || word.contains(['█', '░']);
            let broken: Vec<&str> = text.split_whitespace().filter(|w| !whole(w)).take(5).collect();
            if !broken.is_empty() {
                wrong.push(format!("{line} at {width}: {broken:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn operator_lines_have_the_promised_names_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ops.jsonl");
    let row =
        |m: u64| format!(r#"{{"op":"mm","phase":"fwd","dtype":"bf16","shape":{{"m":{m},"n":64,"k":64}}}}"#);
    let rows: Vec<String> = (1..=100).map(row).collect();
    std::fs::write(&path, rows.join("\n")).unwrap();
    let out = text(&mut preflop(&["ops", &path.to_string_lossy(), "--gpu", "h200"]));
    for (i, line) in out.lines().enumerate() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let mut keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        let wanted = ["bound", "dram_bytes", "flops", "high_us", "l1_bytes", "l2_bytes", "low_us", "time_us"];
        assert_eq!(keys, wanted);
        // 2 m n k
        assert_eq!(row["flops"].as_f64().unwrap(), 2.0 * (i + 1) as f64 * 64.0 * 64.0);
        let (low, time, high) = (
            row["low_us"].as_f64().unwrap(),
            row["time_us"].as_f64().unwrap(),
            row["high_us"].as_f64().unwrap(),
        );
        assert!(low <= time && time <= high);
    }
    assert_eq!(out.lines().count(), 100);
}

#[test]
fn a_prediction_has_the_promised_names() {
    let answer =
        json(&["predict", "resnet50", "--gpu", "h200", "--batch", "32", "--precision", "amp", "--json"]);
    for (key, value) in [("model", "resnet50"), ("gpu", "h200"), ("precision", "amp"), ("mode", "train")] {
        assert_eq!(answer[key], value);
    }
    assert_eq!(answer["batch"], 32);
    assert!(answer["seq"].is_null() && answer["fits"].is_boolean() && answer["unmodelled"].is_array());
    assert!(["compute", "dram", "l2", "latency", "host"].contains(&answer["bound"].as_str().unwrap()));
    let number = |key: &str| answer[key].as_f64().unwrap_or_else(|| panic!("{key}"));
    for key in ["gpu_busy_ms", "host_ms", "memory_mib", "flops", "dram_bytes"] {
        assert!(number(key).is_finite() && number(key) > 0.0, "{key}");
    }
    assert!(number("low_ms") <= number("iteration_ms") && number("iteration_ms") <= number("high_ms"));
    // 32 samples in iteration_ms
    assert!((number("samples_per_s") * number("iteration_ms") / 1e3 - 32.0).abs() < 1e-6);
    let ops = answer["ops"].as_array().unwrap();
    for op in ops {
        for key in ["name", "op", "phase", "bound"] {
            assert!(op[key].is_string(), "{key}");
        }
        assert!(op["count"].as_u64().unwrap() > 0 && op["time_us"].as_f64().unwrap() > 0.0);
    }
    let shares: f64 = ops.iter().map(|op| op["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let language = json(&["predict", "gpt2", "--gpu", "a100", "--mode", "infer", "--json"]);
    assert_eq!((&language["seq"], &language["gpu"]), (&1024.into(), &"a100-sxm-80gb".into()));
}

#[test]
fn every_model_is_predicted_on_old_and_new_gpus() {
    let models = json(&["models", "--json"]);
    for model in models.as_array().unwrap() {
        let name = model["name"].as_str().unwrap();
        for (gpu, mode, precision) in
            [("p4", "infer", "fp32"), ("b200", "train", "amp"), ("mi300x", "infer", "fp16")]
        {
            let answer =
                json(&["predict", name, "--gpu", gpu, "--mode", mode, "--precision", precision, "--json"]);
            assert!(answer["iteration_ms"].as_f64().unwrap() > 0.0, "{name} on {gpu}");
        }
    }
}

#[test]
fn people_see_time_memory_and_ten_operators() {
    let shown = text(preflop(&["predict", "resnet50", "--gpu", "h200"]).env("COLUMNS", "120"));
    for word in
        ["resnet50 training, batch 64", "90 % interval", "samples/s", "memory", "fits", "bound", "share"]
    {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let table = shown.lines().skip_while(|l| !l.starts_with("operator")).skip(1);
    assert_eq!(table.take_while(|l| !l.contains("more kinds of operators")).count(), 10);
    let large = text(&mut preflop(&["predict", "gpt2", "--gpu", "p4", "--batch", "64"]));
    assert!(large.contains("DOES NOT FIT") && large.contains("A batch of"), "{large}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["powershell", "elvish"] {
        assert!(text(&mut preflop(&["completions", shell])).contains("gpus"), "{shell}");
    }
    // The others ask the program when a key is pressed.
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&mut preflop(&["completions", shell])).contains("__complete"), "{shell}");
    }
    assert!(text(&mut preflop(&["__complete", ""])).contains("gpus"));
}
