//! Several GPUs on the command line: names that scripts rely on, and one line for what does not divide, fit or exist.

#![allow(clippy::unwrap_used)]

use preflop_cli::call;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let text = call(args.iter().chain(&["--json"])).unwrap_or_else(|e| panic!("{args:?}: {e}"));
    serde_json::from_str(&text).unwrap()
}

fn said(args: &[&str]) -> String {
    let failure = call(args).unwrap_err();
    assert_eq!(failure.status, 2, "{args:?}");
    assert!(!failure.message.contains('\n'));
    format!("{} {}", failure.message, failure.hint.unwrap_or_default())
}

#[test]
fn a_collective_has_the_names_that_scripts_rely_on() {
    let rows = json(&["collective", "all-reduce", "--cluster", "aws-p5x16", "--bytes", "512,1M..8M"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(number("low_us") <= number("time_us") && number("time_us") <= number("high_us"));
        assert!(number("bus_gbs") > 0.0 && row["bound"].is_string() && number("bytes") >= 512.0);
    }
}

#[test]
fn a_sharded_iteration_adds_up() {
    let answer = json(&[
        "predict",
        "llama-3-8b",
        "--cluster",
        "dgx-h100x4",
        "--dp",
        "8",
        "--tp",
        "2",
        "--pp",
        "2",
        "--micro-batch",
        "1",
        "--global-batch",
        "256",
        "--recompute",
        "selective",
        "--stack",
        "compiled",
        "--zero",
        "1",
    ]);
    let total: f64 = answer["breakdown_ms"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
    assert!((total / answer["iteration_ms"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    assert_eq!(answer["parallel"]["microbatches"], 32);
    assert_eq!(answer["parallel"]["gpus"], 32);
    for key in [
        "low_ms",
        "high_ms",
        "mfu",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "scaling_efficiency",
        "memory_mib",
    ] {
        assert!(answer[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert!(answer["mfu"].as_f64().unwrap() < 1.0);
    assert!(!answer["collectives"].as_array().unwrap().is_empty());
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 2);
}

#[test]
fn a_plan_is_best_first_and_its_prediction_is_the_same() {
    let answer = json(&[
        "plan",
        "gpt2-xl",
        "--cluster",
        "dgx-a100",
        "--global-batch",
        "64",
        "--fixed",
        "micro-batch=2",
    ]);
    let plans = answer["plans"].as_array().unwrap();
    let times: Vec<f64> = plans.iter().map(|p| p["iteration_ms"].as_f64().unwrap()).collect();
    assert!(times.windows(2).all(|w| w[0] <= w[1]) && times.len() == 10);
    assert!(plans.iter().all(|p| p["micro_batch"] == 2));
}

#[test]
fn any_model_runs_on_several_gpus_and_loses_little() {
    let answer = json(&["predict", "resnet50", "--cluster", "8xh100", "--batch", "64"]);
    let efficiency = answer["scaling_efficiency"].as_f64().unwrap();
    assert!((0.8..1.0).contains(&efficiency), "{efficiency}");
    assert_eq!(answer["batch"], 512);
    let rows = json(&["compare", "resnet50", "--gpus", "8xh100,4xa100,h100"]);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["gpu"], "8xh100-sxm");
    assert!(rows.iter().all(|r| r["usd_per_hour"].as_f64().unwrap() > 0.0));
}

#[test]
fn a_curve_reaches_a_hundred_thousand_gpus() {
    let answer =
        json(&["scale", "gpt2", "--node", "dgx-h100", "--gpus", "1..16", "--fixed", "micro-batch=4"]);
    let points = answer["points"].as_array().unwrap();
    assert_eq!(points.len(), 5);
    assert_eq!(points[0]["efficiency"], 1.0);
    assert!(
        points.iter().all(|p| p["efficiency_low"].as_f64().unwrap() <= p["efficiency"].as_f64().unwrap())
    );
}

#[test]
fn what_does_not_divide_fit_or_exist_gets_one_line_with_what_works() {
    for (args, expected) in [
        (
            vec!["predict", "llama-3-8b", "--cluster", "3xh100", "--tp", "3"],
            "tp 3 does not divide 32 heads: take 2 or 4",
        ),
        (vec!["predict", "llama-3-8b", "--cluster", "dgx-h100x2", "--gpus", "9"], "8 and 16"),
        (vec!["predict", "llama-3-8b", "--cluster", "dgx-h100", "--tp", "16"], "tp x cp x pp must divide 8"),
        (vec!["predict", "llama-3-8b", "--cluster", "dgx-h10"], "did you mean"),
        (vec!["predict", "resnet50", "--cluster", "dgx-h100", "--tp", "2"], "data parallelism"),
        (vec!["predict", "llama-3-8b", "--cluster", "8xh100x4"], "no network"),
        (vec!["predict", "llama-3-8b", "--cluster", "9xh100"], "have at most 8: take `8xh100-sxm`"),
        (
            vec!["plan", "llama-3-8b", "--cluster", "dgx-h100", "--global-batch", "8", "--fixed", "tp=3"],
            "tp 3 does not divide 32 heads: take 2 or 4",
        ),
        (vec!["predict", "llama-3-8b", "--gpu", "h100", "--tp", "2"], "--cluster"),
        (vec!["predict", "llama-3-8b", "--cluster", "dgx-h100", "--mode", "infer"], "--mode"),
        (
            vec![
                "plan",
                "llama-3-8b",
                "--cluster",
                "4xrtx-4090",
                "--global-batch",
                "8",
                "--fixed",
                "tp=1",
                "--fixed",
                "pp=1",
                "--fixed",
                "zero=0",
            ],
            "fits",
        ),
        (
            vec!["plan", "llama-3-8b", "--cluster", "dgx-h100", "--global-batch", "7", "--fixed", "dp=8"],
            "divides",
        ),
        (
            vec!["plan", "llama-3-8b", "--cluster", "dgx-h100", "--global-batch", "8", "--fixed", "foo=1"],
            "`foo`",
        ),
        (vec!["collective", "all-reduce", "--cluster", "1xh100"], "two or more"),
        (vec!["collective", "all-reduce", "--cluster", "dgx-h100", "--bytes", "8G..1K"], "no size"),
        (vec!["collective", "all-sum", "--cluster", "dgx-h100"], "all-reduce"),
        (vec!["scale", "gpt2", "--node", "dgx-h100", "--gpus", "0..4"], "no range"),
        (vec!["cluster", "show", "nothing"], "unknown cluster"),
        (vec!["validate", "--parallel", "--data", "/nonexistent"], "no folder"),
    ] {
        let said = said(&args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn cluster_and_node_files_are_read_with_their_own_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let node = "name = \"box\"\ngpu = \"a100-sxm-80gb\"\ngpus = 8\n[inside]\ntopology = \"switched\"\n\
        [outside]\nnics = 4\nnic_gbs = 25\nkind = \"infiniband\"\n";
    std::fs::write(path("box.toml"), node).unwrap();
    std::fs::write(path("mine.toml"), "name = \"mine\"\nnodes = [{ type = \"./box.toml\", count = 4 }]\n")
        .unwrap();
    let shown = json(&["cluster", "show", &path("mine.toml")]);
    assert_eq!(shown["all_gpus"], 32);
    assert_eq!(shown["network_gbs"], 100.0);
    assert_eq!(json(&["cluster", "show", &path("box.toml")])["all_gpus"], 8);
    std::fs::write(path("bad.toml"), "name = \"x\"\nnodes = [{ type = \"dgx-h100\", count = 0 }]\n").unwrap();
    assert!(said(&["cluster", "show", &path("bad.toml")]).contains("`count` is 0"));
    let log = "1048576 262144 float sum -1 900.0 1.2 2.0 0 910.0 1.2 2.0 0\n1073741824 268435456 float sum -1 400000 2.7 4.7 0 400000 2.7 4.7 0\n";
    std::fs::write(path("log.txt"), log).unwrap();
    let verdict = json(&["collective", "all-reduce", "--cluster", "dgx-h100", "--compare", &path("log.txt")]);
    assert!(verdict["reason"].as_str().unwrap().contains("peer access"), "{verdict}");
    let trace = path("trace.json");
    let page = path("page.html");
    json(&[
        "predict",
        "gpt2",
        "--cluster",
        "dgx-a100",
        "--pp",
        "4",
        "--global-batch",
        "16",
        "--trace",
        &trace,
        "--page",
        &page,
    ]);
    let events: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    assert!(events["traceEvents"].as_array().unwrap().len() > 32);
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
}

/// Does a value have the shape that a schema of `docs/schemas` says? Types, names that must be there, and least values: all that they use.
fn matches(value: &Value, schema: &Value, at: &str) {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{at}: type `{other}`"),
    };
    let types = match &schema["type"] {
        Value::Array(names) => names.clone(),
        one => vec![one.clone()],
    };
    assert!(types.iter().any(|t| is(t.as_str().unwrap())), "{at}: {value} is not {types:?}");
    if let Some(least) = schema["minimum"].as_f64() {
        assert!(value.as_f64().is_none_or(|v| v >= least), "{at}: {value}");
    }
    for name in schema["required"].as_array().into_iter().flatten().filter(|_| value.is_object()) {
        let name = name.as_str().unwrap();
        assert!(value.get(name).is_some(), "{at}: no `{name}`");
    }
    for (name, inner) in value.as_object().into_iter().flatten() {
        let known = &schema["properties"][name];
        assert!(known.is_object(), "{at}: `{name}` is not in the schema");
        matches(inner, known, &format!("{at}.{name}"));
    }
    if schema["items"].is_object() {
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            matches(item, &schema["items"], &format!("{at}[{i}]"));
        }
    }
}

#[test]
fn answers_have_the_shape_of_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.txt");
    std::fs::write(&log, "1048576 262144 float sum -1 900.0 1.2 2.0 0 910.0 1.2 2.0 0\n").unwrap();
    let log = log.to_string_lossy().into_owned();
    let sharded = ["predict", "llama-3-8b", "--cluster", "dgx-h100x4", "--tp", "2", "--global-batch", "64"];
    let deep = [&sharded[..], &["--pp", "2", "--cp", "2", "--zero", "1"]].concat();
    let full = [&sharded[..], &["--fsdp"]].concat();
    for (schema, args) in [
        ("cluster_list", &["cluster", "list"][..]),
        ("cluster_show", &["cluster", "show", "dgx-h100x4"]),
        ("cluster_show", &["cluster", "show", "8xrtx-4090"]),
        ("cluster_diff", &["cluster", "diff", "dgx-a100", "dgx-h100x2"]),
        ("collective", &["collective", "all-gather", "--cluster", "l40s-8"]),
        ("collective_compare", &["collective", "all-reduce", "--cluster", "dgx-h100", "--compare", &log]),
        ("predict", &deep),
        ("predict", &full),
        ("predict_any", &["predict", "resnet50", "--cluster", "8xh100"]),
        ("plan", &["plan", "gpt2", "--cluster", "dgx-h100", "--global-batch", "64"]),
        ("scale", &["scale", "gpt2", "--node", "dgx-h100", "--gpus", "1..16"]),
        ("scale", &["scale", "llama-3-8b", "--node", "rtx-4090-8", "--gpus", "1..8", "--strong"]),
    ] {
        let file = format!("{}/../../docs/schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
        let read = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
        matches(&json(args), &serde_json::from_str(&read).unwrap(), schema);
    }
}

#[test]
fn a_gpu_file_under_another_name_predicts_the_same_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    for board in ["rtx-4090", "rtx-2080-ti", "rtx-a6000", "l40s"] {
        let file = format!("{}/../../data/gpus/{board}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
        let times = ["rtx-own", "a-card", board].map(|name| {
            let gpu = path(&format!("{name}.toml"));
            std::fs::write(&gpu, text.replace(&format!("name = \"{board}\""), &format!("name = \"{name}\"")))
                .unwrap();
            let node = path(&format!("node-{name}.toml"));
            let said = format!(
                "name = \"box\"\ngpu = {gpu:?}\ngpus = 8\n[inside]\ntopology = \"pcie\"\np2p = true\n"
            );
            std::fs::write(&node, said).unwrap();
            let answer = json(&["predict", "gpt2", "--cluster", &node, "--tp", "2", "--global-batch", "64"]);
            let curve = json(&["collective", "all-reduce", "--cluster", &node, "--bytes", "1K..1G"]);
            (answer["iteration_ms"].to_string(), curve.to_string())
        });
        assert!(times[0] == times[1] && times[1] == times[2], "{board}: {times:?}");
    }
}

#[test]
fn a_driver_that_refuses_peer_access_is_slower_and_the_file_may_say_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let file = format!("{}/../../data/gpus/rtx-4090.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let node = |peer: &str| {
        let gpu = path("gpu.toml");
        std::fs::write(&gpu, format!("{text}\n[link]\npeer = \"{peer}\"\n")).unwrap();
        let said =
            format!("name = \"box\"\ngpu = {gpu:?}\ngpus = 4\n[inside]\ntopology = \"pcie\"\np2p = true\n");
        std::fs::write(path("node.toml"), said).unwrap();
        path("node.toml")
    };
    let time = |peer: &str| {
        let rows = json(&["collective", "all-reduce", "--cluster", &node(peer), "--bytes", "1G"]);
        rows[0]["time_us"].as_f64().unwrap()
    };
    assert!(time("host") > 2.0 * time("direct"));
    assert!(said(&["cluster", "show", &node("maybe")]).contains("direct or host"));
}

#[test]
fn files_of_several_kinds_of_nodes_count_as_the_slowest_and_unknown_keys_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let write = |text: &str| std::fs::write(path("c.toml"), text).unwrap();
    write(
        "name = \"both\"\nnodes = [{ type = \"dgx-h100\", count = 2 }, { type = \"dgx-a100\", count = 2 }]\n",
    );
    let run = |cluster: &str| json(&["predict", "llama-3-8b", "--cluster", cluster, "--fsdp"]);
    let (both, slow) = (run(&path("c.toml")), run("dgx-a100x4"));
    assert_eq!(both["iteration_ms"], slow["iteration_ms"]);
    // Nobody knows what a mixture costs unless the file says it.
    assert!(both["usd_per_hour"].is_null() && slow["usd_per_hour"].is_number());
    for (text, expected) in [
        ("name = \"x\"\nnodes = [{ type = \"dgx-h100\" }]\nspeed = 3\n", "unknown field `speed`"),
        ("name = \"x\"\nnodes = [{ type = \"dgx-h100\", cout = 3 }]\n", "unknown field `cout`"),
        ("name = \"x\"\nnodes = [{ type = \"dgx-h10\" }]\n", "did you mean `dgx-h100`"),
        (
            "name = \"x\"\nnodes = [{ type = \"dgx-h100\" }, { type = \"l40s-4\" }]\n",
            "ask for `dgx-h100` alone",
        ),
        ("name = \"x\"\nnodes = []\n", "`nodes` is empty"),
    ] {
        write(text);
        let said = said(&["cluster", "show", &path("c.toml")]);
        assert!(said.contains(expected), "{text}: {said}");
    }
    let nine = said(&["predict", "llama-3-8b", "--cluster", "dgx-h100", "--gpus", "9"]);
    assert!(nine.contains("`dgx-h100x2`"), "{nine}");
    let batch = said(&["predict", "llama-3-8b", "--cluster", "dgx-h100", "--global-batch", "12"]);
    assert!(batch.contains("take 8 or 16"), "{batch}");
}

#[test]
fn what_no_measurement_checks_is_named_and_has_a_wide_interval() {
    let run = |more: &[&str]| {
        let fixed = ["predict", "llama-3-8b", "--cluster", "dgx-h100", "--global-batch", "64", "--tp", "2"];
        json(&[&fixed[..], more].concat())
    };
    let width = |a: &Value| (a["high_ms"].as_f64().unwrap() / a["low_ms"].as_f64().unwrap()).ln();
    let plain = run(&[]);
    assert_eq!(plain["unmeasured"].as_array().unwrap().len(), 0);
    for (more, name) in [(&["--cp", "2"][..], "context parallel"), (&["--offload", "optimizer"], "offload")] {
        let wide = run(more);
        assert_eq!(wide["unmeasured"][0], name);
        assert!(width(&wide) > width(&plain) + 0.2, "{name}");
    }
}

#[test]
fn a_trace_has_whole_events_in_order_on_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json").to_string_lossy().into_owned();
    json(&[
        "predict",
        "gpt2",
        "--cluster",
        "dgx-a100",
        "--pp",
        "4",
        "--global-batch",
        "16",
        "--trace",
        &trace,
    ]);
    let read: Value = serde_json::from_slice(&std::fs::read(&trace).unwrap()).unwrap();
    let mut ends: std::collections::BTreeMap<(u64, u64), f64> = std::collections::BTreeMap::new();
    let mut names = 0;
    for event in read["traceEvents"].as_array().unwrap() {
        let id = |key: &str| event[key].as_u64().unwrap_or(0);
        match event["ph"].as_str().unwrap() {
            "M" => names += 1,
            "X" => {
                let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
                assert!(ts >= 0.0 && dur >= 0.0 && event["name"].is_string());
                let end = ends.entry((id("pid"), id("tid"))).or_default();
                assert!(ts >= *end - 1e-3, "{event} starts before {end}");
                *end = ts + dur;
            }
            other => panic!("{other}"),
        }
    }
    assert!(names >= 4 && ends.len() >= 4);
}

#[test]
fn what_is_said_of_one_gpu_holds_on_several_or_is_refused() {
    let gpt2 =
        |more: &[&str]| json(&[&["predict", "gpt2", "--cluster", "4xh100", "--fsdp", "full"], more].concat());
    // The same words of one GPU and of a plan are the same run.
    for (one, plan) in [
        (&["--batch", "4"][..], &["--micro-batch", "4"][..]),
        (&["--checkpoint", "full"], &["--recompute", "full"]),
        (&["--run", "eager"], &["--stack", "eager"]),
        (&["--batch", "8", "--pp", "2"], &["--global-batch", "16", "--pp", "2"]),
    ] {
        assert_eq!(gpt2(one), gpt2(plan), "{one:?}");
        assert_ne!(gpt2(one)["iteration_ms"], gpt2(&[])["iteration_ms"], "{one:?}");
    }
    // What no plan has a word for is run whole by every GPU.
    let states = |more: &[&str]| gpt2(&[&["--batch", "4"], more].concat())["memory_mib"].as_f64().unwrap();
    assert!(states(&["--optimizer", "sgd"]) < states(&["--optimizer", "adam:single"]));
    // And refused where the model is cut.
    for (more, says) in [
        (&["--tp", "2", "--run", "graph"][..], "`--run`"),
        (&["--tp", "2", "--optimizer", "sgd"], "`--optimizer`"),
        (&["--pp", "2", "--checkpoint", "every=2"], "`--checkpoint`"),
        (&["--recompute", "full", "--optimizer", "sgd"], "with `--optimizer`"),
        (&["--batch", "4", "--global-batch", "64"], "give one of them"),
        (&["--launches"], "one GPU"),
    ] {
        let words = [&["predict", "gpt2", "--cluster", "4xh100", "--fsdp", "full"], more].concat();
        assert!(said(&words).contains(says), "{more:?}: {}", said(&words));
    }
    for command in [
        &["plan", "gpt2", "--cluster", "dgx-h100", "--global-batch", "64"][..],
        &["scale", "gpt2", "--node", "dgx-h100", "--gpus", "8..16"],
    ] {
        for option in
            ["--batch 4", "--run graph", "--optimizer sgd", "--lora 8", "--checkpoint full", "--mode infer"]
        {
            let words = [command, &option.split(' ').collect::<Vec<_>>()[..]].concat();
            assert!(said(&words).contains("how one GPU runs a model"), "{words:?}");
        }
    }
    // A format that the GPU lacks is not replaced by another.
    assert!(
        said(&["predict", "gpt2", "--cluster", "8xv100", "--precision", "bf16"])
            .contains("nearest it has is fp16")
    );
}

#[test]
fn tokens_of_a_whole_training_take_as_long_as_their_rate_says() {
    let answer = json(&["predict", "gpt2", "--cluster", "8xh100", "--tokens", "10B"]);
    let hours = 1e10 / answer["tokens_per_s"].as_f64().unwrap() / 3600.0;
    assert!((answer["tokens_hours"].as_f64().unwrap() / hours - 1.0).abs() < 1e-12);
    assert!(said(&["predict", "resnet50", "--cluster", "8xh100", "--tokens", "10B"]).contains("does not"));
}
