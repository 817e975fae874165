//! Tables in, tables out: the answers are those of the library, to the last bit, however the rows come.

#![allow(clippy::unwrap_used)]

use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, RecordBatchIterator, StringArray,
    StringViewArray, StructArray,
};
use arrow_schema::{Field, Schema};
use preflop_core::gpu::catalog;
use preflop_core::model::{CacheKind, LowerOptions, Mode, Precision, Stage, lower, zoo};
use preflop_core::ops::row;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::TimeModel;
use preflop_table::{Built, Engine, Keep, Predicted, Question, TableError};
use std::sync::{Arc, LazyLock};

static ENGINE: LazyLock<Arc<Engine>> =
    LazyLock::new(|| Arc::new(Engine::new(TimeModel::embedded(), Box::new(Built)).unwrap()));

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let fields: Vec<Field> =
        columns.iter().map(|(name, a)| Field::new(*name, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, a)| a).collect())
        .unwrap()
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn on(gpu: &str) -> Question {
    Question { fixed: vec![("gpu".to_string(), gpu.to_string())], keep: Keep::All }
}

fn number(batch: &RecordBatch, column: &str, row: usize) -> Option<f64> {
    let array = batch.column_by_name(column).unwrap().as_primitive::<Float64Type>();
    array.is_valid(row).then(|| array.value(row))
}

fn error(batch: &RecordBatch, row: usize) -> Option<String> {
    let array = batch.column_by_name("error").unwrap().as_string::<i32>();
    array.is_valid(row).then(|| array.value(row).to_string())
}

const OPS: [[&str; 4]; 4] = [
    ["mm", "fwd", "bf16", r#"{"m": 4096, "n": 1024, "k": 512}"#],
    ["softmax", "bwd", "fp32", r#"{"rows": 4096, "cols": 1000}"#],
    ["conv2d", "wgrad", "tf32", r#"{"b": 16, "ci": 64, "hw": 28, "co": 64, "k": 3, "pad": 1}"#],
    ["mm", "fwd", "bf16", r#"{"m": 1, "n": 2}"#],
];

fn operators() -> RecordBatch {
    let column = |i: usize| texts(&OPS.map(|row| row[i]));
    table(vec![("op", column(0)), ("phase", column(1)), ("dtype", column(2)), ("shape", column(3))])
}

#[test]
fn operators_get_the_answers_of_the_library_and_bad_rows_their_reason() {
    let gpu = catalog::find("h200").unwrap();
    let answers = ENGINE.predict(&operators(), &on("h200")).unwrap();
    assert_eq!(answers.num_rows(), 4);
    for (i, [op, phase, dtype, shape]) in OPS[..3].iter().enumerate() {
        let p = TimeModel::embedded().predict(&row::parse(op, phase, dtype, shape).unwrap(), &gpu);
        assert_eq!(number(&answers, "time_us", i), Some(p.time.us()));
        assert_eq!(number(&answers, "low_us", i), Some(p.low.us()));
        assert_eq!(number(&answers, "dram_bytes", i), Some(p.dram.0));
        assert_eq!(answers.column_by_name("bound").unwrap().as_string::<i32>().value(i), p.bound.name());
        assert_eq!(error(&answers, i), None);
    }
    assert_eq!(number(&answers, "time_us", 3), None);
    assert!(error(&answers, 3).unwrap().contains("needs `k`"));
}

#[test]
fn shapes_may_be_text_structs_or_columns() {
    let json = table(vec![
        ("op", texts(&["mm", "linear"])),
        ("dtype", texts(&["bf16", "fp16"])),
        ("shape", texts(&[r#"{"m":64,"n":128,"k":256}"#, r#"{"m":8,"n":16,"k":32,"bias":true}"#])),
    ]);
    let (m, n): (ArrayRef, ArrayRef) =
        (Arc::new(Int32Array::from(vec![64, 8])), Arc::new(Int64Array::from(vec![128, 16])));
    // A column with gaps is a float in data frames.
    let k: ArrayRef = Arc::new(Float64Array::from(vec![256.0, 32.0]));
    let bias: ArrayRef = Arc::new(arrow_array::BooleanArray::from(vec![None, Some(true)]));
    let nan: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::NAN]));
    let keys = [("m", m), ("n", n), ("k", k), ("bias", bias), ("hw", nan)];
    let view: ArrayRef = Arc::new(StringViewArray::from(vec!["bf16", "fp16"]));
    let mut flat = vec![("op", texts(&["mm", "linear"])), ("dtype", Arc::clone(&view))];
    let named: Vec<(String, ArrayRef)> =
        keys.iter().map(|(k, a)| (format!("shape.{k}"), Arc::clone(a))).collect();
    flat.extend(named.iter().map(|(name, a)| (name.as_str(), Arc::clone(a))));
    let fields: Vec<(Arc<Field>, ArrayRef)> = keys
        .iter()
        .map(|(k, a)| (Arc::new(Field::new(*k, a.data_type().clone(), true)), Arc::clone(a)))
        .collect();
    let structs: ArrayRef = Arc::new(StructArray::from(fields));
    let nested = table(vec![("op", texts(&["mm", "linear"])), ("dtype", view), ("shape", structs)]);
    let wanted = ENGINE.predict(&json, &on("a100")).unwrap();
    for other in [table(flat), nested] {
        let got = ENGINE.predict(&other, &on("a100")).unwrap();
        for i in 0..2 {
            assert_eq!(error(&got, i), None);
            assert_eq!(number(&got, "time_us", i), number(&wanted, "time_us", i));
        }
    }
}

#[test]
fn jobs_get_the_answers_of_the_library_with_cost_and_memory() {
    let jobs = table(vec![
        ("model", texts(&["resnet18", "bert-base", "resnet18", "rensnet18", "resnet18"])),
        ("gpu", texts(&["h200", "a100", "v100", "h200", "h200"])),
        ("batch", Arc::new(Int64Array::from(vec![8, 2, 8, 8, 0]))),
        ("precision", texts(&["amp", "bf16", "bf16", "fp32", "fp32"])),
        ("mode", texts(&["train", "infer", "train", "train", "train"])),
    ]);
    let answers = ENGINE.predict(&jobs, &Question::default()).unwrap();
    let graph = zoo::build("resnet18", Some(8), None).unwrap();
    let options = LowerOptions { mode: Mode::Train, precision: Precision::Amp, optimizer: None };
    let p = TimeModel::embedded()
        .predict_iteration(&lower(&graph, &options).unwrap(), &catalog::find("h200").unwrap());
    assert_eq!(number(&answers, "iteration_ms", 0), Some(p.time.ms()));
    assert_eq!(number(&answers, "high_ms", 0), Some(p.high.ms()));
    assert!(number(&answers, "usd_per_million_samples", 0).unwrap() > 0.0);
    assert!(number(&answers, "joules_per_sample", 1).unwrap() > 0.0);
    assert!(answers.column_by_name("fits").unwrap().as_boolean().value(1));
    // A V100 has no bf16, a name is misspelt, a batch is empty.
    assert!(error(&answers, 2).unwrap().contains("no bf16"));
    assert!(error(&answers, 3).unwrap().contains("`resnet18`"));
    assert!(error(&answers, 4).unwrap().contains("`batch` is 0"));
}

#[test]
fn steps_of_generation_and_adapters_are_jobs_too() {
    let jobs = table(vec![
        ("model", texts(&["gpt2", "gpt2", "llama-1b", "gpt2", "gpt2", "llama-1b", "resnet18"])),
        ("mode", texts(&["prefill", "decode", "train", "decode", "infer", "infer", "decode"])),
        ("batch", Arc::new(Int64Array::from(vec![2; 7]))),
        ("seq", Arc::new(Int64Array::from(vec![Some(256), None, Some(256), Some(8), None, None, None]))),
        ("context", Arc::new(Int64Array::from(vec![None, Some(512), None, None, Some(9), None, None]))),
        ("lora", Arc::new(Int64Array::from(vec![None, None, Some(8), None, None, Some(8), None]))),
    ]);
    let answers = ENGINE.predict(&jobs, &on("h200")).unwrap();
    let time = |stage: Stage, seq: Option<u64>, mode: Mode, precision: Precision, lora: Option<u64>| {
        let name = if lora.is_some() { "llama-1b" } else { "gpt2" };
        let mut graph = zoo::build_stage(name, Some(2), seq, stage).unwrap();
        if let Some(rank) = lora {
            graph = graph.with_adapters(rank).unwrap();
        }
        let options = graph.settled(LowerOptions { mode, precision, optimizer: None });
        let iteration = lower(&graph, &options).unwrap();
        let p = TimeModel::embedded().predict_iteration(&iteration, &catalog::find("h200").unwrap());
        Some(p.time.ms())
    };
    let decode = Stage::Decode { context: 512, cache: CacheKind::default() };
    let wanted = [
        time(Stage::Prefill, Some(256), Mode::Infer, Precision::Bf16, None),
        time(decode, None, Mode::Infer, Precision::Bf16, None),
        time(Stage::Full, Some(256), Mode::Train, Precision::default(), Some(8)),
    ];
    for (i, wanted) in wanted.into_iter().enumerate() {
        assert_eq!(error(&answers, i), None);
        assert_eq!(number(&answers, "iteration_ms", i), wanted, "row {i}");
    }
    for (row, part) in [(3, "takes no `seq`"), (4, "`context`"), (5, "`lora`"), (6, "decode")] {
        assert!(error(&answers, row).unwrap().contains(part), "{:?}", error(&answers, row));
    }
}

#[test]
fn a_changed_figure_moves_the_time_and_takes_the_price_away() {
    let jobs = table(vec![
        ("model", texts(&["resnet18", "resnet18"])),
        ("gpu.dram_gbs", Arc::new(Float64Array::from(vec![None, Some(1000.0)]))),
    ]);
    let answers = ENGINE.predict(&jobs, &on("h200")).unwrap();
    assert!(number(&answers, "iteration_ms", 1) > number(&answers, "iteration_ms", 0));
    assert!(number(&answers, "usd_per_hour", 0).is_some() && number(&answers, "usd_per_hour", 1).is_none());
}

#[test]
fn plans_of_clusters_are_jobs_too() {
    let jobs = table(vec![
        ("model", texts(&["gpt2", "gpt2", "resnet18", "gpt2", "gpt2"])),
        (
            "cluster",
            Arc::new(StringArray::from(vec![
                Some("8xh100"),
                Some("8xh100"),
                Some("8xh100"),
                None,
                Some("8xh10"),
            ])),
        ),
        ("tp", Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(2), None]))),
    ]);
    let answers = ENGINE.predict(&jobs, &Question::default()).unwrap();
    for i in 0..3 {
        assert_eq!(error(&answers, i), None, "row {i}");
        assert!(number(&answers, "iteration_ms", i).unwrap() > 0.0);
    }
    assert_ne!(number(&answers, "iteration_ms", 0), number(&answers, "iteration_ms", 1));
    assert!(error(&answers, 3).unwrap().contains("`cluster`"));
    assert!(error(&answers, 4).unwrap().contains("h10"));
}

#[test]
fn streams_answer_block_by_block_with_the_same_bits() {
    let one = operators();
    let whole = ENGINE.predict(&one, &on("h200")).unwrap();
    let batches: Vec<_> = (0..50).map(|_| Ok(one.clone())).collect();
    let reader = RecordBatchIterator::new(batches, one.schema());
    let stream = Predicted::new(reader, Arc::clone(&ENGINE), on("h200")).unwrap().with_threads(2).unwrap();
    let mut seen = 0;
    for batch in stream {
        assert_eq!(batch.unwrap(), whole);
        seen += 1;
    }
    assert_eq!(seen, 50);
}

#[test]
fn tables_that_mean_nothing_are_refused_with_a_reason() {
    let say = |columns: Vec<(&str, ArrayRef)>, question: Question| -> String {
        match ENGINE.predict(&table(columns), &question) {
            Err(TableError::Arrow(e)) => panic!("not ours: {e}"),
            Err(e) => e.to_string(),
            Ok(_) => panic!("accepted"),
        }
    };
    let model = || ("model", texts(&["resnet18"]));
    let op = || vec![("op", texts(&["mm"])), ("dtype", texts(&["fp32"]))];
    assert!(say(vec![("mmodel", texts(&["x"]))], on("h200")).contains("did you mean `mmodel`?"));
    assert!(say(vec![model(), ("bacth", texts(&["1"]))], on("h200")).contains("did you mean `batch`"));
    // A name of several lines, as a damaged CSV has it, is told on one.
    let broken = say(vec![("l1_bytes291456.0}\n{op\":\"conv2d", texts(&["x"]))], on("h200"));
    assert!(broken.contains("neither a column") && !broken.contains('\n'), "{broken}");
    assert!(say(op(), on("h200")).contains("no column `shape`"));
    let shaped = || [op(), vec![("shape", texts(&["{}"]))]].concat();
    assert!(say(shaped(), Question::default()).contains("no column `gpu`"));
    assert!(say([shaped(), vec![("error", texts(&[""]))]].concat(), on("h200")).contains("`error`"));
    assert!(say([shaped(), vec![("gpu.dram_gb", texts(&["1"]))]].concat(), on("h200")).contains("dram_gbs"));
    let keep = Keep::These(vec!["sshape".to_string()]);
    assert!(say(shaped(), Question { keep, ..on("h200") }).contains("did you mean `shape`"));
    let mut fixed = on("h200");
    fixed.fixed.push(("precizion".to_string(), "amp".to_string()));
    assert!(say(vec![model()], fixed).contains("did you mean `precision`"));
    let mut fixed = on("h200");
    fixed.fixed.push(("precision".to_string(), "fp31".to_string()));
    assert!(say(vec![model()], fixed).contains("did you mean `fp32`"));
}
