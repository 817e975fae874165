//! What is said of a run that does not fit: the changes that are named make it fit, at the price that is named.
#![allow(clippy::unwrap_used)]

use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&preflop_cli::call(args.iter().copied().chain(["--json"])).unwrap()).unwrap()
}

/// The same run with the options of a change: those it has already are replaced.
fn changed(args: &[&str], change: &Value) -> Value {
    let mut words: Vec<String> = args.iter().map(ToString::to_string).collect();
    for option in change["options"].as_array().unwrap() {
        let (name, value) = option.as_str().unwrap().split_once(' ').unwrap();
        match words.iter().position(|w| w == name) {
            Some(place) => words[place + 1] = value.to_string(),
            None => words.extend([name.to_string(), value.to_string()]),
        }
    }
    json(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn close(a: &Value, b: &Value) -> bool {
    (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-9
}

#[test]
fn every_change_that_is_named_makes_it_fit_in_the_time_that_is_named() {
    let args = ["predict", "gpt2-xl", "--gpu", "rtx-4090", "--batch", "4"];
    let said = json(&args);
    assert_eq!(said["fits"], false);
    let changes = said["changes"].as_array().unwrap();
    let (mut together, mut elsewhere) = (0, 0);
    for change in changes.iter().filter(|c| c["gpus"] == 1) {
        let then = changed(&args, change);
        assert_eq!((&change["fits"], &then["fits"]), (&Value::Bool(true), &Value::Bool(true)), "{change}");
        assert!(close(&change["memory_mib"], &then["memory_mib"]), "{change}");
        let options = change["options"].as_array().unwrap();
        if options.iter().any(|o| o.as_str().unwrap().contains("paged")) {
            // `predict` does not know how much of paged states moves; offloaded all of them do.
            assert!(change["iteration_ms"].as_f64() > then["iteration_ms"].as_f64(), "{change}");
        } else {
            assert!(
                close(&change["iteration_ms"], &then["iteration_ms"]),
                "{change}\n{}",
                then["iteration_ms"]
            );
        }
        together += usize::from(options.len() > 1);
        elsewhere += usize::from(change["gpu"].is_string());
    }
    assert!(together > 0 && elsewhere > 0, "{changes:?}");
    assert!(changes.iter().any(|c| c["gpus"].as_u64() > Some(1)), "{changes:?}");
    // On this GPU, the least costly first.
    let here: Vec<f64> = changes
        .iter()
        .filter(|c| c["gpus"] == 1 && c["gpu"].is_null())
        .map(|c| c["time_ratio"].as_f64().unwrap())
        .collect();
    assert!(!here.is_empty() && here.is_sorted(), "{here:?}");
}

#[test]
fn a_run_sharded_over_several_gpus_takes_what_is_named_whichever_way_it_goes() {
    for args in [
        &["predict", "gpt2-xl", "--gpu", "rtx-4090", "--batch", "4"][..],
        &["predict", "gpt2-xl", "--gpu", "rtx-4090", "--run", "compile"],
        &["predict", "gpt2-xl", "--gpu", "rtx-4090", "--batch", "4", "--attention", "eager"],
        &["predict", "llama-2-7b", "--gpu", "l40s", "--precision", "bf16", "--batch", "1", "--seq", "1024"],
        // No plan has words for these: every GPU runs the whole model.
        &["predict", "gpt2-xl", "--gpu", "rtx-4090", "--optimizer", "sgd", "--run", "graph"],
        &["predict", "resnet152", "--gpu", "t4", "--batch", "512"],
    ] {
        let said = json(args);
        let sharded = said["changes"].as_array().unwrap().iter().find(|c| c["gpus"].as_u64() > Some(1));
        let Some(sharded) = sharded else {
            assert!(args.contains(&"resnet152"), "{args:?}: {said}");
            continue;
        };
        let then = changed(args, sharded);
        assert_eq!((&sharded["fits"], &then["fits"]), (&Value::Bool(true), &Value::Bool(true)), "{sharded}");
        for name in ["iteration_ms", "memory_mib", "samples_per_s"] {
            assert!(close(&sharded[name], &then[name]), "{name}: {sharded}\n{}", then[name]);
        }
    }
}

#[test]
fn no_part_of_changes_together_is_enough() {
    let args = ["predict", "gpt2-xl", "--gpu", "rtx-4090", "--batch", "4"];
    let changes = json(&args)["changes"].as_array().unwrap().clone();
    let together: Vec<&Value> =
        changes.iter().filter(|c| c["options"].as_array().unwrap().len() > 1 && c["gpus"] == 1).collect();
    assert!(!together.is_empty());
    for change in together {
        for left_out in 0..change["options"].as_array().unwrap().len() {
            let mut part = change.clone();
            part["options"].as_array_mut().unwrap().remove(left_out);
            assert_eq!(changed(&args, &part)["fits"], false, "{part}");
        }
    }
}

#[test]
fn predict_report_and_compare_name_the_same_changes() {
    let run = ["--precision", "bf16", "--seq", "512", "--batch", "1"];
    let with = |head: &[&'static str]| json(&[head, &run[..]].concat());
    let predicted = with(&["predict", "llama-3-8b", "--gpu", "l40s"])["changes"].clone();
    let report = with(&["report", "llama-3-8b", "--gpu", "l40s"]);
    assert_eq!(report["to_fit"], predicted);
    // Other GPUs are rows of a comparison.
    let here: Vec<Value> =
        predicted.as_array().unwrap().iter().filter(|c| c["gpu"].is_null()).cloned().collect();
    assert!(!here.is_empty());
    assert_eq!(with(&["compare", "llama-3-8b", "--gpus", "l40s,h200"])[1]["changes"], Value::Array(here));
}

#[test]
fn the_verdict_stands_before_everything_else_and_the_list_behind_it() {
    let said = preflop_cli::call(["predict", "gpt2", "--gpu", "t4", "--batch", "64"]).unwrap();
    let (verdict, list) = (said.find("does not fit").unwrap(), said.find("what would make it fit").unwrap());
    assert!(verdict < list && list < said.find("throughput").unwrap(), "{said}");
}
