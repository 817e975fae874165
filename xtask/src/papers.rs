//! `cargo xtask papers`: what the four works behind this project claim, and what the program answers today.
//!
//! `docs/papers.toml` has a row for every numbered claim: where it stands, the command that asks for it, the work's figure,
//! ours, and why they differ. Each command is run and its figure compared; `docs/papers.md` is made from the rows.

use crate::run::{cargo, output_of, program, succeed};
use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

const ROWS: &str = "docs/papers.toml";
const PAGE: &str = "docs/papers.md";
/// How far a figure may move, relative to itself, where its row does not say.
const WITHIN: f64 = 0.01;

/// One claim.
struct Row {
    work: String,
    place: String,
    claim: String,
    paper: String,
    why: String,
    unit: String,
    /// What is run and where its figure stands; none where nothing here can be asked.
    asked: Option<Asked>,
}

struct Asked {
    command: String,
    value: String,
    over: Option<String>,
    reduce: String,
    ours: f64,
    within: f64,
    /// Needs measurements that are not part of this repository.
    shared: bool,
}

/// Checks every figure; with `rewrite` the page is made anew instead of compared.
pub fn run(root: &Path, rewrite: bool) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(root.join(ROWS)).with_context(|| format!("cannot read {ROWS}"))?;
    let (works, rows) = parse(&text)?;
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    let shared = std::env::var("PREFLOP_SHARED").ok();
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    let (mut moved, mut checked, mut left_out) = (Vec::new(), 0, 0);
    for row in &rows {
        let Some(asked) = &row.asked else { continue };
        let command = match (&shared, asked.shared) {
            (None, true) => {
                left_out += 1;
                continue;
            }
            (Some(folder), true) => asked.command.replace("$PREFLOP_SHARED", folder),
            (_, false) => asked.command.clone(),
        };
        if !answers.contains_key(&command) {
            answers.insert(command.clone(), answer(root, &command)?);
        }
        let got = figure(&answers[&command], asked)
            .with_context(|| format!("{}, {}: `preflop {}`", row.work, row.place, asked.command))?;
        checked += 1;
        if (got - asked.ours).abs() > asked.within * asked.ours.abs() + 1e-12 {
            moved.push(format!(
                "{}, {}: ours is {} in {ROWS}, now {got:.6}\n    preflop {}",
                row.work, row.place, asked.ours, asked.command
            ));
        }
    }
    ensure!(moved.is_empty(), "{} of {checked} figures moved:\n  {}", moved.len(), moved.join("\n  "));
    println!(
        "    {checked} figures of the papers stand as written, {left_out} need shared measurements (PREFLOP_SHARED)"
    );
    let page = page(&works, &rows);
    let path = root.join(PAGE);
    if rewrite {
        return std::fs::write(path, page).with_context(|| format!("cannot write {PAGE}"));
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    ensure!(kept == page, "{PAGE} is not made from {ROWS}; `cargo xtask papers write` makes it");
    Ok(())
}

/// What the program of this tree answers.
fn answer(root: &Path, command: &str) -> anyhow::Result<Value> {
    let built = root.join("target/debug/preflop");
    let words: Vec<&str> = command.split_whitespace().chain(["--json"]).collect();
    let text = output_of(&mut program(root, &built, &words))?;
    serde_json::from_str(&text).with_context(|| format!("`preflop {command} --json` printed no JSON"))
}

/// The figure of a row in an answer.
fn figure(answer: &Value, asked: &Asked) -> anyhow::Result<f64> {
    let found = at(answer, &asked.value)?;
    let Some(over) = &asked.over else { return reduced(&found, &asked.value, &asked.reduce) };
    let under = at(answer, over)?;
    ensure!(found.len() == under.len(), "`{}` and `{over}` hold different numbers of figures", asked.value);
    let ratios: Option<Vec<Value>> =
        found.iter().zip(&under).map(|(a, b)| Some(Value::from(number(a)? / number(b)?))).collect();
    let ratios = ratios.with_context(|| format!("`{}` or `{over}` holds no number", asked.value))?;
    reduced(&ratios.iter().collect::<Vec<_>>(), &asked.value, &asked.reduce)
}

fn at<'a>(answer: &'a Value, pointer: &str) -> anyhow::Result<Vec<&'a Value>> {
    let mut found = Vec::new();
    walk(answer, &pointer.split('/').skip(1).collect::<Vec<_>>(), &mut found);
    ensure!(!found.is_empty(), "there is nothing at `{pointer}`");
    Ok(found)
}

fn reduced(found: &[&Value], pointer: &str, reduce: &str) -> anyhow::Result<f64> {
    let n = found.len() as f64;
    if let Some(word) = reduce.strip_prefix("share of ") {
        return Ok(found.iter().filter(|v| is(v, word)).count() as f64 / n);
    }
    if let Some(word) = reduce.strip_prefix("count of ") {
        return Ok(found.iter().filter(|v| is(v, word)).count() as f64);
    }
    let numbers: Vec<f64> = found.iter().filter_map(|v| number(v)).collect();
    ensure!(numbers.len() == found.len(), "`{pointer}` holds something that is no number");
    Ok(match reduce {
        "one" => {
            ensure!(numbers.len() == 1, "`{pointer}` holds {} figures, not one", numbers.len());
            numbers[0]
        }
        "mean" => numbers.iter().sum::<f64>() / n,
        "sum" => numbers.iter().sum(),
        "max" => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        "min" => numbers.iter().copied().fold(f64::INFINITY, f64::min),
        other => bail!("`{other}` is no way to make one figure of several"),
    })
}

fn is(value: &Value, word: &str) -> bool {
    match value {
        Value::String(text) => text == word,
        other => format!("{other}") == word,
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_bool().map(|b| f64::from(u8::from(b))))
}

/// Follows a path; `*` stands for all members, `key=text` for the members of a list whose key is that text.
fn walk<'a>(value: &'a Value, path: &[&str], found: &mut Vec<&'a Value>) {
    let Some((first, rest)) = path.split_first() else {
        found.push(value);
        return;
    };
    match (value, *first) {
        (Value::Array(items), "*") => items.iter().for_each(|item| walk(item, rest, found)),
        (Value::Object(items), "*") => items.values().for_each(|item| walk(item, rest, found)),
        (Value::Array(items), key) if key.contains('=') => {
            let (key, text) = key.split_once('=').unwrap_or((key, ""));
            let chosen = items.iter().filter(|item| item.get(key).is_some_and(|v| is(v, text)));
            chosen.for_each(|item| walk(item, rest, found));
        }
        (Value::Array(items), index) => {
            if let Some(item) = index.parse::<usize>().ok().and_then(|i| items.get(i)) {
                walk(item, rest, found);
            }
        }
        (Value::Object(items), key) => {
            if let Some(item) = items.get(key) {
                walk(item, rest, found);
            }
        }
        _ => {}
    }
}

/// Name and title of every work.
type Works = Vec<(String, String)>;

/// The works and the rows.
fn parse(text: &str) -> anyhow::Result<(Works, Vec<Row>)> {
    let table: toml::Table = text.parse().with_context(|| format!("{ROWS} is not TOML"))?;
    let list = |key: &str| -> anyhow::Result<Vec<toml::Table>> {
        let items =
            table.get(key).and_then(toml::Value::as_array).with_context(|| format!("no [[{key}]]"))?;
        items.iter().map(|v| v.as_table().cloned().context("a row is no table")).collect()
    };
    let word = |row: &toml::Table, key: &str| row.get(key).and_then(toml::Value::as_str).map(str::to_string);
    let mut works = Vec::new();
    for work in list("work")? {
        works.push((
            word(&work, "name").context("a work has no name")?,
            word(&work, "title").unwrap_or_default(),
        ));
    }
    let mut rows = Vec::new();
    for row in list("claim")? {
        let claim = word(&row, "claim").context("a row has no `claim`")?;
        let need = |key: &str| word(&row, key).with_context(|| format!("`{claim}` has no `{key}`"));
        let number =
            |key: &str| row.get(key).and_then(|v| v.as_float().or_else(|| v.as_integer().map(|i| i as f64)));
        let asked = match word(&row, "command") {
            None => None,
            Some(command) => Some(Asked {
                shared: command.contains("$PREFLOP_SHARED"),
                command,
                value: need("value")?,
                over: word(&row, "over"),
                reduce: word(&row, "reduce").unwrap_or_else(|| "one".to_string()),
                ours: number("ours").with_context(|| format!("`{claim}` has no `ours`"))?,
                within: number("within").unwrap_or(WITHIN),
            }),
        };
        let work = need("work")?;
        ensure!(works.iter().any(|(name, _)| *name == work), "`{claim}`: there is no work `{work}`");
        ensure!(
            asked.is_some() || word(&row, "why").is_some(),
            "`{claim}`: nothing is asked and no reason given"
        );
        rows.push(Row {
            work,
            place: need("place")?,
            paper: need("paper")?,
            why: word(&row, "why").unwrap_or_default(),
            unit: word(&row, "unit").unwrap_or_default(),
            claim,
            asked,
        });
    }
    Ok((works, rows))
}

/// The page.
fn page(works: &[(String, String)], rows: &[Row]) -> String {
    let mut page = String::from(
        "# What the papers say, and what Preflop says\n\n\
         Made from `docs/papers.toml` by `cargo xtask papers write`; `cargo xtask papers`, a step of `cargo xtask test`, runs \
         every command and fails when a figure moves. A row without a figure of ours says why there is none. Rows whose \
         command has `$PREFLOP_SHARED` need measurements that are not part of this repository and are checked where that \
         folder is given.\n",
    );
    for (work, title) in works {
        let _ = write!(
            page,
            "\n## {work}\n\n{title}\n\n| where | claim | paper | here | why they differ | command |\n|---|---|---|---|---|---|\n"
        );
        for row in rows.iter().filter(|r| r.work == *work) {
            let (ours, command) = match &row.asked {
                Some(a) => (shown(a.ours, &row.unit), format!("`preflop {}`", a.command.replace('|', "\\|"))),
                None => ("-".to_string(), "-".to_string()),
            };
            let _ = writeln!(
                page,
                "| {} | {} | {} | {ours} | {} | {command} |",
                row.place, row.claim, row.paper, row.why
            );
        }
    }
    page
}

/// Percent, factors and plain numbers; `yes` is a statement that holds.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{:.1} %", 100.0 * value),
        "yes" => if value > 0.0 { "holds" } else { "does not hold" }.to_string(),
        "" => format!("{value}"),
        "x" => format!("{value:.2}x"),
        unit => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(value: &str, over: Option<&str>, reduce: &str) -> Asked {
        Asked {
            command: String::new(),
            value: value.into(),
            over: over.map(str::to_string),
            reduce: reduce.into(),
            ours: 0.0,
            within: 0.0,
            shared: false,
        }
    }

    #[test]
    fn figures_are_found_in_answers() {
        let answer =
            json!({"rows": [{"name": "a", "t": 2.0, "b": "MAC"}, {"name": "b", "t": 4.0, "b": "L2"}]});
        let get = |value: &str, over, reduce| figure(&answer, &asked(value, over, reduce)).unwrap();
        assert_eq!(get("/rows/0/t", None, "one"), 2.0);
        assert_eq!(get("/rows/*/t", None, "mean"), 3.0);
        assert_eq!(get("/rows/*/t", None, "max"), 4.0);
        assert_eq!(get("/rows/*/b", None, "share of MAC"), 0.5);
        assert_eq!(get("/rows/name=b/t", Some("/rows/name=a/t"), "one"), 2.0);
        assert!(figure(&answer, &asked("/none", None, "one")).is_err());
        assert!(figure(&answer, &asked("/rows/*/t", None, "one")).is_err());
    }

    #[test]
    fn a_row_without_a_figure_needs_a_reason() {
        let bad =
            "[[work]]\nname = \"A\"\n[[claim]]\nwork = \"A\"\nplace = \"1\"\nclaim = \"c\"\npaper = \"1\"\n";
        assert!(parse(bad).is_err());
        let (_, rows) = parse(&format!("{bad}why = \"no counters\"\n")).unwrap();
        assert!(rows[0].asked.is_none());
        assert!(page(&[("A".into(), "T".into())], &rows).contains("| 1 | c | 1 | - | no counters | - |"));
    }
}
