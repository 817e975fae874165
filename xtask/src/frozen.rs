//! `cargo xtask frozen`: a corpus of answers that a change of structure must leave as they are.
//!
//! Every question goes through the program itself. Of its answer the file keeps one line: a hash of the names and words,
//! the number of figures, the headline (the first figure), and two sums of the logarithms of all figures with weights by place.
//! A figure that moves by a relative d moves a sum by about d, so that sums which agree to [`TOLERANCE`] say that every
//! figure does; and 1,700 answers take 150 KB instead of 60 MB.

use crate::run::cargo;
use anyhow::Context as _;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// Where the corpus lies.
const FILE: &str = "data/frozen/answers.csv";
/// How far a sum of logarithms may move.
const TOLERANCE: f64 = 1e-9;

const OPERATOR_GPUS: [&str; 8] =
    ["h200", "h100-sxm", "b200", "a100-sxm-80gb", "v100-sxm2-16gb", "l40s", "t4", "mi300x"];
const MODEL_GPUS: [&str; 6] = ["h200", "b200", "a100-sxm-80gb", "v100-sxm2-16gb", "rtx-4090", "mi300x"];
const RUNS: [[&str; 2]; 4] = [["fp32", "train"], ["amp", "train"], ["tf32", "infer"], ["fp16", "infer"]];

/// One answer, as the file keeps it.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    question: String,
    words: u64,
    figures: usize,
    headline: f64,
    sums: [f64; 2],
}

impl Line {
    fn of(question: &str, answer: &Value) -> Self {
        let mut line =
            Self { question: question.to_string(), words: HASH, figures: 0, headline: 0.0, sums: [0.0; 2] };
        line.add("", answer);
        line
    }

    fn add(&mut self, name: &str, value: &Value) {
        self.hash(name);
        match value {
            Value::Number(n) => self.figure(n.as_f64().unwrap_or(f64::NAN)),
            Value::String(s) => self.hash(s),
            Value::Bool(b) => self.hash(if *b { "yes" } else { "no" }),
            Value::Null => self.hash("null"),
            Value::Array(all) => all.iter().for_each(|v| self.add("", v)),
            Value::Object(all) => all.iter().for_each(|(k, v)| self.add(k, v)),
        }
    }

    fn figure(&mut self, v: f64) {
        if self.figures == 0 {
            self.headline = v;
        }
        self.figures += 1;
        // Zero has no logarithm; its own constant stands far from any figure's. A sign moves it as far.
        let log = if v == 0.0 { -1000.0 } else { v.abs().ln() } + if v < 0.0 { 500.0 } else { 0.0 };
        for (k, sum) in self.sums.iter_mut().enumerate() {
            // Weights between 1 and 2 by the golden ratio, so that two moves do not cancel by chance.
            let weight = 1.0 + (self.figures as f64 * [0.618_033_988_75, 0.754_877_666_25][k]).fract();
            *sum += weight * log;
        }
    }

    /// FNV-1a.
    fn hash(&mut self, word: &str) {
        for byte in word.bytes().chain([0]) {
            self.words = (self.words ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn text(&self) -> String {
        let Self { question, words, figures, headline, sums: [a, b] } = self;
        format!("{question},{words:016x},{figures},{headline},{a},{b}")
    }

    fn read(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        Some(Self {
            question: fields.next()?.to_string(),
            words: u64::from_str_radix(fields.next()?, 16).ok()?,
            figures: fields.next()?.parse().ok()?,
            headline: fields.next()?.parse().ok()?,
            sums: [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?],
        })
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let moved = self.sums.iter().zip(other.sums).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        if self.words != other.words || self.figures != other.figures {
            return Some("other names, words or number of figures".to_string());
        }
        // Sums of thousands of logarithms carry rounding of their own.
        let noise = 1e-15 * self.sums[0].abs() + 1e-14 * self.figures as f64;
        (moved > TOLERANCE + noise).then(|| {
            format!("figures moved by {moved:.2e} in all; headline {} -> {}", self.headline, other.headline)
        })
    }
}

/// Start of FNV-1a.
const HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// All questions, as argument lists.
fn questions(models: &[String]) -> Vec<Vec<String>> {
    let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
    let mut all = Vec::new();
    for gpu in OPERATOR_GPUS {
        all.push(words(&format!("ops data/measured/operators.csv --gpu {gpu}")));
    }
    for (i, model) in models.iter().enumerate() {
        for (j, gpu) in MODEL_GPUS.iter().enumerate() {
            // Every model meets every GPU, and over the models every format and mode meets every GPU.
            for run in [i + j, i + j + 2] {
                let [precision, mode] = RUNS[run % RUNS.len()];
                all.push(words(&format!(
                    "predict {model} --gpu {gpu} --precision {precision} --mode {mode} --json"
                )));
            }
        }
    }
    for model in ["resnet50", "bert-base", "gnmt", "dcgan"] {
        all.push(words(&format!("compare {model} --json")));
        all.push(words(&format!("compare {model} --precision amp --by cost --json")));
    }
    for gpu in MODEL_GPUS {
        all.push(words(&format!("predict fuzz/seeds/capture_file/small.json --gpu {gpu} --json")));
        all.push(words(&format!("roofline resnet18 --gpu {gpu} --json")));
        all.push(words(&format!("transfer fuzz/seeds/recording/kineto.json --from h200 --to {gpu} --json")));
    }
    all.push(words("explain fuzz/seeds/recording/kineto.json --gpu h200 --json"));
    for gpu in ["titan-xp", "v100-sxm2-16gb"] {
        all.push(words(&format!("delta resnet152 --gpu {gpu} --json")));
    }
    all
}

fn ask(program: &Path, root: &Path, question: &[String]) -> anyhow::Result<Line> {
    let out = Command::new(program).args(question).current_dir(root).output()?;
    let name = question.join(" ");
    let text = String::from_utf8(out.stdout).with_context(|| format!("`{name}` printed no text"))?;
    // `ops` prints a document a line; an error is an answer too.
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(&text).into_iter().collect();
    let mut values = values.with_context(|| format!("`{name}` printed no JSON"))?;
    if !out.status.success() {
        values.push(Value::String(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    Ok(Line::of(&name, &Value::Array(values)))
}

/// Writes the corpus, or compares with it.
pub fn run(root: &Path, write: bool) -> anyhow::Result<()> {
    anyhow::ensure!(
        cargo(root, &["build", "--release", "--quiet", "--locked"]).status()?.success(),
        "no build"
    );
    let program = root.join("target/release/preflop");
    let listed = Command::new(&program).args(["models", "--json"]).output()?;
    let models: Value = serde_json::from_slice(&listed.stdout).context("`preflop models --json`")?;
    let models: Vec<String> = models
        .as_array()
        .or_else(|| models["models"].as_array())
        .context("`preflop models --json` has no list")?
        .iter()
        .filter_map(|m| m["name"].as_str().map(String::from))
        .collect();
    let lines =
        questions(&models).iter().map(|q| ask(&program, root, q)).collect::<anyhow::Result<Vec<_>>>()?;
    let path = root.join(FILE);
    if write {
        let mut text = String::from("question,words,figures,headline,sum_a,sum_b\n");
        for line in &lines {
            writeln!(text, "{}", line.text())?;
        }
        std::fs::create_dir_all(path.parent().context("a file in the root folder")?)?;
        std::fs::write(&path, text)?;
        println!("{} answers written to {FILE}", lines.len());
        return Ok(());
    }
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("{FILE}; `cargo xtask frozen write`"))?;
    let kept: Vec<Line> = text.lines().skip(1).filter_map(Line::read).collect();
    let mut moved = 0;
    for line in &lines {
        let before = kept.iter().find(|k| k.question == line.question);
        let difference = match before {
            Some(before) => before.difference(line),
            None => Some("not in the corpus".to_string()),
        };
        if let Some(difference) = difference {
            moved += 1;
            println!("{}: {difference}", line.question);
        }
    }
    println!("{} answers, {} moved", lines.len(), moved);
    anyhow::ensure!(
        moved == 0,
        "{moved} answers moved; where that is meant, say so in CHANGELOG.md and `cargo xtask frozen write`"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_figure_that_moves_by_a_billionth_is_seen_and_one_that_does_not_is_not() {
        let of = |v: f64| Line::of("q", &json!({"a": [1.0, v, 0.0], "b": "words"}));
        assert_eq!(of(3.0).difference(&of(3.0)), None);
        assert_eq!(of(3.0).difference(&of(3.0 * (1.0 + 1e-12))), None);
        assert!(of(3.0).difference(&of(3.0 * (1.0 + 3e-9))).is_some());
        assert!(of(3.0).difference(&of(-3.0)).is_some());
        let renamed = Line::of("q", &json!({"a": [1.0, 3.0, 0.0], "b": "word"}));
        assert!(of(3.0).difference(&renamed).is_some());
    }

    #[test]
    fn a_line_reads_as_it_was_written() {
        let line = Line::of("predict x", &json!([1.5, 2.25e-7, -4.0]));
        assert_eq!(Line::read(&line.text()), Some(line));
    }
}
