//! Infinities never reach JSON, where they would turn into `null`: on odd GPUs and with odd options a figure stays a number, or the
//! input is refused.
#![allow(clippy::unwrap_used)]

use preflop_cli::call;
use preflop_core::gpu::FIELDS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What is asked of every GPU, `GPU` standing for it.
const QUESTIONS: [&[&str]; 7] = [
    &["predict", "alexnet", "--gpu", "GPU", "--batch", "1", "--json"],
    &["predict", "alexnet", "--gpu", "GPU", "--batch", "4", "--precision", "amp", "--launches", "--json"],
    &["predict", "alexnet", "--gpu", "GPU", "--mode", "infer", "--json"],
    &["compare", "alexnet", "--gpus", "GPU,h200", "--json"],
    &["roofline", "alexnet", "--gpu", "GPU", "--json"],
    &["delta", "alexnet-original", "--gpu", "GPU", "--json"],
    &["gpus", "show", "GPU", "--json"],
];

/// Where a value is `null`; places in a list count as one.
fn nulls(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Null => drop(out.insert(at.to_string())),
        Value::Array(items) => items.iter().for_each(|v| nulls(v, &format!("{at}[]"), out)),
        Value::Object(map) => map.iter().for_each(|(k, v)| nulls(v, &format!("{at}.{k}"), out)),
        _ => {}
    }
}

fn ask(question: &[&str], gpu: &str) -> Option<BTreeSet<String>> {
    let words: Vec<String> = question.iter().map(|w| w.replace("GPU", gpu)).collect();
    let said = match call(words) {
        Ok(said) => said,
        Err(failure) => {
            assert_eq!(failure.status, 2, "{failure}");
            return None;
        }
    };
    let mut out = BTreeSet::new();
    nulls(&serde_json::from_str(&said).unwrap(), "", &mut out);
    Some(out)
}

/// A GPU of round figures, with some of them set.
fn file(odd: &[(&str, &str, f64)]) -> String {
    let mut figures: BTreeMap<(&str, &str), f64> = [
        (("chip_limits", "sm_count"), 10.0),
        (("chip_limits", "boost_mhz"), 1000.0),
        (("memory", "dram_gbs"), 100.0),
        (("peak.plain", "fp32_tflops"), 2.56),
        (("peak.tensor", "fp16_tflops"), 10.0),
    ]
    .into();
    figures.extend(odd.iter().map(|(section, key, value)| ((*section, *key), *value)));
    let mut text = String::new();
    let mut section = "";
    for ((of, key), value) in figures {
        if of != section {
            writeln!(text, "[{of}]").unwrap();
            section = of;
        }
        writeln!(text, "{key} = {value:?}").unwrap();
    }
    text
}

#[test]
fn no_figure_of_an_odd_gpu_becomes_null() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.toml");
    let name = path.to_str().unwrap();
    let mut gpus = vec![("plain".to_string(), file(&[]))];
    // Everything at its least or most, and by turns: what is divided by what is then as far apart as it can be.
    for (what, first, second) in
        [("least", 0, 0), ("most", 1, 1), ("by turns", 0, 1), ("by other turns", 1, 0)]
    {
        let end = |i: usize| if i.is_multiple_of(2) { first } else { second };
        let all: Vec<_> =
            FIELDS.iter().enumerate().map(|(i, f)| (f.section, f.key, [f.min, f.max][end(i)])).collect();
        gpus.push((what.to_string(), file(&all)));
    }
    for question in QUESTIONS {
        // What an ordinary GPU may lack, an odd one may.
        let mut usual = BTreeSet::new();
        for gpu in ["h200", "v100", "rtx-4090", "titan-xp"] {
            usual.extend(ask(question, gpu).unwrap_or_default());
        }
        for (index, (what, text)) in gpus.iter().enumerate() {
            std::fs::write(&path, text).unwrap();
            let found = ask(question, name);
            if index == 0 {
                usual.extend(found.unwrap());
                continue;
            }
            let strange: Vec<String> = found.unwrap_or_default().difference(&usual).cloned().collect();
            assert!(strange.is_empty(), "{question:?} on {what}: null at {strange:?}");
        }
    }
}

#[test]
fn no_figure_of_an_odd_option_becomes_null() {
    let plain: &[&str] = &["compare", "alexnet", "--gpus", "rtx-4090", "--json"];
    let mut usual = BTreeSet::new();
    nulls(&serde_json::from_str(&call(plain.iter().copied()).unwrap()).unwrap(), "", &mut usual);
    for odd in [
        &["--price", "rtx-4090=0.000000001"][..],
        &["--price", "rtx-4090=1000000000000"],
        &["--price", "rtx-4090=1e308"],
        &["--price", "rtx-4090=999999999999999999999999999999999999999999999999999999999999999999999999"],
        &["--pricing", "purchase", "--years", "1e-300"],
        &["--pricing", "purchase", "--years", "1e-9", "--utilisation", "1e-300"],
        &["--pricing", "purchase", "--years", "1e8"],
        &["--pricing", "purchase", "--host-usd", "1000000000000"],
        &["--batch", "1048576"],
        &["--epochs", "1", "--dataset-size", "1"],
        &["--epochs", "1000000000", "--dataset-size", "1000000000000"],
        &["--measured", "rtx-4090=0.000000001us"],
        &["--measured", "rtx-4090=9999999w"],
        &["--grams-per-kwh", "1e-300"],
        &["--grams-per-kwh", "1e300"],
        &["--epochs", "1", "--dataset-size", "1000", "--deadline", "0.000000001us"],
        &["--epochs", "1", "--dataset-size", "1000", "--budget", "0.000000000001"],
    ] {
        let words = plain.iter().chain(odd).copied();
        match call(words) {
            Ok(said) => {
                let mut found = BTreeSet::new();
                nulls(&serde_json::from_str(&said).unwrap(), "", &mut found);
                let strange: Vec<&String> = found.difference(&usual).collect();
                assert!(strange.is_empty(), "{odd:?}: null at {strange:?}");
            }
            Err(failure) => assert_eq!(failure.status, 2, "{odd:?}: {failure}"),
        }
    }
}
