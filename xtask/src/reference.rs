//! The reference of the site: commands, GPUs and their fields, models, JSON, Python and accuracy, as the program itself says them.

use crate::run::{cargo, output_of, program, succeed, works};
use anyhow::Context as _;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;

/// Writes all pages of the reference into a folder.
pub fn write(root: &Path, folder: &Path) -> anyhow::Result<()> {
    succeed(&mut cargo(root, &["build", "--quiet", "--locked", "-p", "preflop"]))?;
    let preflop = root.join("target/debug/preflop");
    let say =
        |args: &[&str]| output_of(program(root, &preflop, args).env("COLUMNS", "100").env("NO_COLOR", "1"));
    let page = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
    };
    let help = say(&["--help"])?;
    let mut commands = format!("# Commands\n\n```text\n{help}```\n");
    for name in names(&help) {
        writeln!(commands, "\n## preflop {name}\n\n```text\n{}```", say(&[name, "--help"])?)?;
    }
    page("commands.md", commands)?;
    page("gpus.md", format!("# GPUs\n\n```text\n{}```\n", say(&["gpus"])?))?;
    page("models.md", format!("# Models\n\n```text\n{}```\n", say(&["models"])?))?;
    let fields = say(&["gpus", "fields"])?;
    let about = "[GPU files](../gpu-file.md) says what each means.";
    page("gpu-fields.md", format!("# Fields of GPU files\n\n{about}\n\n```text\n{fields}```\n"))?;
    let document = serde_json::from_str(&say(&["serve", "--document"])?)?;
    page("json.md", json(&document)?)?;
    page("python.md", python(root)?)?;
    let chart = folder.join("parity.svg").to_string_lossy().into_owned();
    let scores = say(&["validate", "--plot", &chart])?;
    page(
        "parity.md",
        format!(
            "# Predicted against measured\n\nEvery measured row of the repository, as `preflop validate --plot parity.svg` draws and scores it. These rows \
             are in the fit: good for finding mistakes; what to expect of rows and GPUs that the fit did not see stands in [How accurate it is](../accuracy.md).\n\n\
             ![predicted against measured time of every row](parity.svg)\n\n```text\n{scores}```\n"
        ),
    )
}

/// The names in the list of commands of the help.
fn names(help: &str) -> Vec<&str> {
    let list = help.lines().skip_while(|l| !l.starts_with("Commands:")).skip(1);
    let names = list.take_while(|l| l.starts_with("  ")).filter(|l| !l.starts_with("   "));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").collect()
}

/// Questions and answers of the API, field by field.
fn json(document: &Value) -> anyhow::Result<String> {
    let mut out = String::from(
        "# JSON of questions and answers\n\nThe names in answers are those of `--json`; fields are added, never renamed or dropped. `preflop serve --document` prints all \
         this as an OpenAPI document. Answers about clusters have schemas of their own: ",
    );
    let clusters = ["predict", "predict_any", "plan", "scale", "collective", "cluster_show"];
    let list: Vec<String> = clusters.iter().map(|n| format!("[{n}](../schemas/{n}.json)")).collect();
    writeln!(out, "{}.\n", list.join(", "))?;
    let schemas = document["components"]["schemas"].as_object().context("no schemas")?;
    for (path, operations) in document["paths"].as_object().context("no paths")? {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let summary = operation["summary"].as_str().unwrap_or_default();
            writeln!(out, "- `{} {path}`: {summary}", method.to_uppercase())?;
        }
    }
    for (name, schema) in schemas {
        let mut fields = Vec::new();
        collect(schema, &mut fields);
        if fields.is_empty() {
            continue;
        }
        writeln!(out, "\n## {name}\n")?;
        if let Some(text) = schema["description"].as_str() {
            writeln!(out, "{}\n", cell(text))?;
        }
        writeln!(out, "| field | type | what |\n|---|---|---|")?;
        for (field, schema) in fields {
            let text = schema["description"].as_str().unwrap_or_default();
            writeln!(out, "| `{field}` | {} | {} |", kind(schema), cell(text))?;
        }
    }
    Ok(out)
}

/// The fields of a schema, also where it is put together of others in place.
fn collect<'a>(schema: &'a Value, out: &mut Vec<(&'a String, &'a Value)>) {
    out.extend(schema["properties"].as_object().into_iter().flatten());
    for part in schema["allOf"].as_array().into_iter().flatten() {
        collect(part, out);
    }
}

fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        return one_of.iter().filter(|s| s["type"] != "null").map(kind).collect::<Vec<_>>().join(" or ");
    }
    if schema["items"].is_object() {
        return format!("list of {}", kind(&schema["items"]));
    }
    match &schema["type"] {
        Value::Array(types) => {
            types.iter().filter_map(Value::as_str).filter(|t| *t != "null").collect::<Vec<_>>().join(" or ")
        }
        other => other.as_str().unwrap_or("any").to_string(),
    }
}

/// Text inside a table of Markdown.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|").replace('<', "&lt;")
}

/// Reads the package's public names with their signatures and documentation, without running it.
const READER: &str = r#"
import ast, pathlib
folder = pathlib.Path("python/preflop")
public = [e.value for node in ast.parse((folder / "__init__.py").read_text()).body if isinstance(node, ast.Assign)
          and getattr(node.targets[0], "id", "") == "__all__" for e in node.value.elts]
found = {}
for file in sorted(folder.glob("*.py")):
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name, node)
def signature(node):
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"
for name in sorted(public):
    node = found.get(name)
    if node is None:
        continue
    print(f"\n## {name}\n")
    if isinstance(node, ast.FunctionDef):
        print(f"```python\n{signature(node)}\n```\n")
    print(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                print(f"\n```python\n{name}.{signature(inner)}\n```\n\n{ast.get_docstring(inner) or ''}")
"#;

fn python(root: &Path) -> anyhow::Result<String> {
    let head = "# Python\n\n[Record a step in Python](../python.md) is the introduction.\n";
    if !works(&mut program(root, "python3", &["--version"])) {
        println!("    NOT WRITTEN: the reference of the Python package, which needs python3");
        return Ok(format!("{head}\nIts reference is written where the site is built with Python.\n"));
    }
    let said = output_of(&mut program(root, "python3", &["-c", READER]))?;
    anyhow::ensure!(said.contains("## record"), "the Python package has no `record`");
    Ok(format!("{head}{said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_off_the_help() {
        let help = "Know\n\nUsage: x\n\nCommands:\n  predict  Predict one\n           more\n  gpus     List\n  help     Print\n\nOptions:\n";
        assert_eq!(names(help), ["predict", "gpus"]);
    }

    #[test]
    fn types_are_said_in_words() {
        assert_eq!(kind(&serde_json::json!({ "type": ["number", "null"] })), "number");
        let list = serde_json::json!({ "type": "array", "items": { "$ref": "#/components/schemas/Offer" } });
        assert_eq!(kind(&list), "list of [Offer](#offer)");
    }
}
