//! Study files: which rows they mean, and what is said about wrong ones.
#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array as _, RecordBatch};
use preflop_sweep::Study;
use preflop_table::{Built, Kind};

fn rows(text: &str) -> RecordBatch {
    let study = Study::parse(text, "s.toml").unwrap();
    study.check(&Built).unwrap();
    study.batch(0..study.rows()).unwrap()
}

fn text(batch: &RecordBatch, column: &str) -> Vec<String> {
    let array = batch.column_by_name(column).unwrap().as_string::<i32>();
    array.iter().map(|t| t.unwrap_or("-").to_string()).collect()
}

fn whole(batch: &RecordBatch, column: &str) -> Vec<i64> {
    batch.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn real(batch: &RecordBatch, column: &str) -> Vec<f64> {
    batch.column_by_name(column).unwrap().as_primitive::<Float64Type>().values().to_vec()
}

#[test]
fn a_grid_is_all_combinations_and_the_last_key_varies_fastest() {
    let batch = rows(
        "model = [\"resnet18\", \"bert-base\"]\n\
         gpu.name = \"h200\"\n\
         gpu.dram_gbs = [3000, 4000.5]\n\
         batch = { from = 8, to = 24, step = 8 }\n",
    );
    assert_eq!(batch.num_rows(), 12);
    let columns: Vec<String> = batch.schema().fields().iter().map(|f| f.name().clone()).collect();
    assert_eq!(columns, ["model", "gpu", "gpu.dram_gbs", "batch"]);
    assert_eq!(whole(&batch, "batch")[..4], [8, 16, 24, 8]);
    assert_eq!(real(&batch, "gpu.dram_gbs")[..4], [3000.0, 3000.0, 3000.0, 4000.5]);
    assert_eq!(text(&batch, "model")[5..7], ["resnet18", "bert-base"]);
}

#[test]
fn any_range_of_rows_is_what_it_is_in_the_whole() {
    for design in [
        "",
        "design = \"random\"\nsamples = 60\nseed = 3\n",
        "design = \"latin-hypercube\"\nsamples = 60\nseed = 3\n",
    ] {
        let study = Study::parse(
            &format!("{design}model = \"resnet18\"\ngpu = [\"h200\", \"a100\", \"t4\"]\nbatch = {{ from = 1, to = 20, step = 1 }}\n"),
            "s.toml",
        )
        .unwrap();
        assert_eq!(study.rows(), 60);
        let all = study.batch(0..60).unwrap();
        for from in [0, 7, 59] {
            let part = study.batch(from..60.min(from + 11)).unwrap();
            assert_eq!(part, all.slice(from as usize, part.num_rows()), "{design}");
        }
    }
}

#[test]
fn a_latin_hypercube_meets_every_value_equally_often() {
    let batch = rows(
        "design = \"latin-hypercube\"\nsamples = 1000\n\
         model = \"resnet18\"\ngpu.name = [\"h200\", \"a100\", \"t4\", \"v100\"]\n\
         batch = { from = 1, to = 1000 }\ngpu.l2_mib = { from = 1, to = 100, scale = \"log\" }\n",
    );
    let mut counts = std::collections::BTreeMap::new();
    for gpu in text(&batch, "gpu") {
        *counts.entry(gpu).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [250; 4]);
    let mut batches = whole(&batch, "batch");
    assert!(batches.windows(2).any(|w| w[1] < w[0]), "the order is not random");
    batches.sort_unstable();
    assert_eq!(batches, (1..=1000).collect::<Vec<i64>>());
    // Half of a logarithmic range lies below its geometric mean, 10.
    assert_eq!(real(&batch, "gpu.l2_mib").iter().filter(|x| **x < 10.0).count(), 500);
}

#[test]
fn random_designs_differ_by_seed_and_stay_in_their_range() {
    let of = |seed: u64| {
        rows(&format!(
            "design = \"random\"\nsamples = 2000\nseed = {seed}\nop = \"mm\"\ndtype = \"bf16\"\ngpu = \"h200\"\n\
             shape.m = {{ from = 16, to = 8192, scale = \"log\" }}\nshape.n = [64, 128]\nshape.k = 64\n"
        ))
    };
    let (a, b, c) = (whole(&of(1), "shape.m"), whole(&of(1), "shape.m"), whole(&of(2), "shape.m"));
    assert_eq!(a, b);
    assert_ne!(a, c);
    assert!(a.iter().all(|m| (16..=8192).contains(m)));
    // The median of a logarithmic range is its geometric mean: sqrt(16 * 8192) = 362; 2000 draws are within 10 %.
    let below = a.iter().filter(|m| **m < 362).count();
    assert!((900..1100).contains(&below), "{below}");
}

#[test]
fn a_list_is_its_rows_with_what_holds_for_all() {
    let text_of_list = "gpu = \"h200\"\nmode = \"infer\"\n\
         [[row]]\nmodel = \"resnet18\"\nbatch = 4\n\
         [[row]]\nmodel = \"gpt2\"\nseq = 128\ngpu.dram_gbs = 4000\n";
    let batch = rows(text_of_list);
    assert_eq!(batch.num_rows(), 2);
    assert_eq!(text(&batch, "gpu"), ["h200", "h200"]);
    assert_eq!(text(&batch, "model"), ["resnet18", "gpt2"]);
    assert!(batch.column_by_name("batch").unwrap().is_null(1));
    assert!(batch.column_by_name("gpu.dram_gbs").unwrap().is_null(0));
    let ops = "dtype = \"fp32\"\ngpu = \"t4\"\n[[row]]\nop = \"mm\"\nshape.m = 1\nshape.n = 2\nshape.k = 3\n[[row]]\nop = \"relu\"\nshape.n = 7\n";
    assert_eq!(Study::parse(ops, "s.toml").unwrap().kind(), Kind::Operators);
    assert_eq!(rows(ops).num_rows(), 2);
}

#[test]
fn wrong_studies_name_the_key_the_line_and_what_it_may_be() {
    let job = "model = \"resnet18\"\ngpu = \"h200\"\n";
    for (text, parts) in [
        ("bacth = [1]\n", ["line 3", "unknown key `bacth`", "did you mean `batch`?"]),
        ("gpu.dram_gb = 1\n", ["line 3", "dotted key", "GPUs are `gpu.name`"]),
        ("precision = [\"amp\", \"fp31\"]\n", ["line 3", "`precision` is `fp31`", "did you mean `fp32`"]),
        (
            "precision = [\n  \"amp\",\n  \"fp23\",\n]\n",
            ["line 5", "`fp23`", "it may be pytorch, fp32, tf32, amp, bf16, fp16, fp8"],
        ),
        ("design = \"latin\"\n", ["line 3", "unknown design `latin`", "did you mean `latin-hypercube`"]),
        ("batch = { from = 1, to = 8, stpe = 1 }\n", ["line 3", "has no `stpe`", "did you mean `step`"]),
        ("batch = { from = 1, to = 8 }\n", ["line 3", "`batch`", "needs `step` or `count`"]),
        ("batch = 0\n", ["line 3", "`batch` is 0", "whole number from 1"]),
        ("batch = \"many\"\n", ["line 3", "`batch` is `many`", "must be a number"]),
        ("batch = []\n", ["line 3", "`batch`", "empty list"]),
        ("samples = 5\n", ["line 3", "`samples`", "random"]),
        ("seq = [1, \"a\"]\n", ["line 3", "`seq` is `a`", "number"]),
        ("shape.m = 1\n", ["line 3", "unknown key `shape`", "keys: model, gpu"]),
        ("batch = = 1\n", ["line 3", "s.toml", "not valid TOML"]),
        ("tp = { from = 8, to = 1, step = 1 }\n", ["line 3", "`tp`", "goes nowhere"]),
    ] {
        let error = Study::parse(&format!("{job}{text}"), "s.toml").unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
    let say = |text: &str| Study::parse(text, "s.toml").unwrap_err().to_string();
    assert!(say("").contains("`model` is missing"));
    assert!(say("model = \"resnet18\"\n").contains("`gpu` is missing"));
    let figure = say("model = \"resnet18\"\ngpu.name = \"h200\"\ngpu.dram_gb = [1]\n");
    assert!(figure.contains("line 3: unknown key `gpu.dram_gb`; did you mean `dram_gbs`?"), "{figure}");
    assert!(
        say("design = \"random\"\nmodel = \"resnet18\"\ngpu = \"h200\"\n").contains("`samples` is missing")
    );
    assert!(say("op = \"mm\"\ndtype = \"fp32\"\ngpu = \"h200\"\n").contains("`shape` is missing"));
    let names = Study::parse("model = \"resnet18\"\n\ngpu = [\"h200\", \"h2000\"]\n", "s.toml").unwrap();
    let error = names.check(&Built).unwrap_err().to_string();
    assert!(error.contains("line 3: `gpu`: unknown GPU `h2000`; did you mean `h200`"), "{error}");
}
