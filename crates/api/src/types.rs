//! Types of answers for the page and for Python, written from the schemas of the document.
//!
//! The test `generated_types_are_those_of_the_schemas` keeps the files in the repository equal to these.

use crate::document::document;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const REFERENCE: &str = "#/components/schemas/";

/// A schema in the words of a language.
trait Language {
    fn list(&self, item: &str) -> String;
    fn map(&self, value: &str) -> String;
    fn or_nothing(&self, value: &str) -> String;
    fn word(&self, name: &str) -> String;
}

struct TypeScript;
struct Python;

impl Language for TypeScript {
    fn list(&self, item: &str) -> String {
        if item.contains(' ') { format!("({item})[]") } else { format!("{item}[]") }
    }

    fn map(&self, value: &str) -> String {
        format!("Record<string, {value}>")
    }

    fn or_nothing(&self, value: &str) -> String {
        format!("{value} | null")
    }

    fn word(&self, name: &str) -> String {
        match name {
            "integer" | "number" => "number",
            "boolean" => "boolean",
            "string" => "string",
            _ => "unknown",
        }
        .to_string()
    }
}

impl Language for Python {
    fn list(&self, item: &str) -> String {
        format!("list[{item}]")
    }

    fn map(&self, value: &str) -> String {
        format!("dict[str, {value}]")
    }

    fn or_nothing(&self, value: &str) -> String {
        format!("{value} | None")
    }

    fn word(&self, name: &str) -> String {
        match name {
            "integer" => "int",
            "number" => "float",
            "boolean" => "bool",
            "string" => "str",
            _ => "Any",
        }
        .to_string()
    }
}

fn spelled(schema: &Value, language: &dyn Language) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        return name.trim_start_matches(REFERENCE).to_string();
    }
    if let Some(one_of) = schema["oneOf"].as_array() {
        let other = one_of.iter().find(|s| s["type"] != "null");
        let own = other.map_or_else(|| language.word(""), |s| spelled(s, language));
        return if one_of.len() > 1 { language.or_nothing(&own) } else { own };
    }
    if let Some(types) = schema["type"].as_array() {
        let own = types.iter().find(|t| *t != "null").cloned().unwrap_or_default();
        let mut plain = schema.clone();
        plain["type"] = own;
        return language.or_nothing(&spelled(&plain, language));
    }
    match schema["type"].as_str() {
        Some("array") => language.list(&spelled(&schema["items"], language)),
        Some("object") if schema["additionalProperties"].is_object() => {
            language.map(&spelled(&schema["additionalProperties"], language))
        }
        Some(name) => language.word(name),
        None => language.word(""),
    }
}

/// Is nothing a value of the schema?
pub(crate) fn nullable(schema: &Value) -> bool {
    let null = |list: &Value, of: &dyn Fn(&Value) -> bool| list.as_array().is_some_and(|l| l.iter().any(of));
    null(&schema["type"], &|t| t == "null") || null(&schema["oneOf"], &|s| s["type"] == "null")
}

/// Names of the schemas that answers are made of, in order.
pub(crate) fn schemas_of_answers(document: &Value) -> BTreeSet<String> {
    let all = &document["components"]["schemas"];
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for path in document["paths"].as_object().into_iter().flat_map(Map::values) {
        for operation in path.as_object().into_iter().flat_map(Map::values) {
            names(&operation["responses"]["200"], &mut wanted);
        }
    }
    loop {
        let before = wanted.len();
        for name in wanted.clone() {
            names(&all[name], &mut wanted);
        }
        if wanted.len() == before {
            break;
        }
    }
    wanted
}

fn of_answers(document: &Value) -> Vec<(String, Value)> {
    let all = &document["components"]["schemas"];
    schemas_of_answers(document).into_iter().map(|name| (name.clone(), all[name].clone())).collect()
}

/// Names of the schemas that are referred to.
fn names(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(name) = fields.get("$ref").and_then(Value::as_str) {
                out.insert(name.trim_start_matches(REFERENCE).to_string());
            }
            fields.values().for_each(|v| names(v, out));
        }
        Value::Array(items) => items.iter().for_each(|v| names(v, out)),
        _ => {}
    }
}

/// A field: name, schema, is it always there.
type Field<'a> = (&'a str, &'a Value, bool);

/// Fields of a schema, those of what it is put together from first.
fn fields<'a>(schema: &'a Value, all: &'a [(String, Value)]) -> Vec<Field<'a>> {
    let mut out = Vec::new();
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.trim_start_matches(REFERENCE);
        return all.iter().find(|(n, _)| n == name).map(|(_, s)| fields(s, all)).unwrap_or_default();
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        // A part that may be nothing leaves its fields out.
        let whole = part["oneOf"].as_array().and_then(|o| o.iter().find(|s| s["type"] != "null"));
        match whole {
            Some(part) => out.extend(fields(part, all).into_iter().map(|(name, own, _)| (name, own, false))),
            None => out.extend(fields(part, all)),
        }
    }
    let required = schema["required"].as_array();
    for (name, own) in schema["properties"].as_object().into_iter().flatten() {
        let always = required.is_some_and(|r| r.iter().any(|n| n == name));
        out.push((name.as_str(), own, always));
    }
    out
}

/// The first sentence of a description, if it has one.
fn remark(schema: &Value) -> Option<String> {
    Some(schema["description"].as_str()?.split('\n').next()?.to_string())
}

const MADE: &str = "Made from the schemas of the answers by `PREFLOP_WRITE=1 cargo test -p preflop-api generated`; do not edit.";

/// The types for the page.
pub fn typescript() -> String {
    let all = of_answers(&document());
    let mut out = format!("// {MADE}\n");
    for (name, schema) in &all {
        out.push('\n');
        if let Some(text) = remark(schema) {
            let _ = writeln!(out, "/** {text} */");
        }
        let _ = writeln!(out, "export type {name} = {{");
        for (field, own, always) in fields(schema, &all) {
            if let Some(text) = remark(own) {
                let _ = writeln!(out, "  /** {text} */");
            }
            let mark = if always { "" } else { "?" };
            let _ = writeln!(out, "  {field}{mark}: {};", spelled(own, &TypeScript));
        }
        let _ = writeln!(out, "}};");
    }
    out
}

/// The types for Python.
pub fn python() -> String {
    let all = of_answers(&document());
    let mut out = format!(
        "\"\"\"Answers as they come: the JSON of `Prediction.to_dict()` and of the API.\n\n{MADE}\n\"\"\"\n\n\
         from __future__ import annotations\n\nfrom typing import TYPE_CHECKING, Any, TypedDict\n\n\
         if TYPE_CHECKING:\n    from typing_extensions import NotRequired\n"
    );
    for (name, schema) in &all {
        let own = fields(schema, &all);
        let hint = |own: &Value, always: bool| {
            let spelled = spelled(own, &Python);
            if always { spelled } else { format!("NotRequired[{spelled}]") }
        };
        // A word of the language cannot name a field of a class.
        if own.iter().any(|(field, ..)| matches!(*field, "class" | "pass" | "from" | "in" | "is")) {
            let _ = writeln!(out, "\n\n{name} = TypedDict(\n    \"{name}\",\n    {{");
            for (field, own, always) in own {
                let _ = writeln!(out, "        \"{field}\": \"{}\",", hint(own, always));
            }
            let _ = writeln!(out, "    }},\n)");
            continue;
        }
        let _ = write!(out, "\n\nclass {name}(TypedDict):\n");
        if let Some(text) = remark(schema) {
            let _ = write!(out, "    \"\"\"{text}\"\"\"\n\n");
        }
        for (field, own, always) in own {
            let _ = writeln!(out, "    {field}: {}", hint(own, always));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Kind};
    use serde_json::json;
    use std::path::Path;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test compares files of the repository")]
    fn generated_types_are_those_of_the_schemas() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, text) in
            [("web/src/app/schema.ts", typescript()), ("python/preflop/_answers.py", python())]
        {
            let path = root.join(file);
            if std::env::var_os("PREFLOP_WRITE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let written = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(written == text, "{file} is not what the schemas say: {MADE}");
        }
    }

    /// Where an answer is not what its schema says.
    fn differences(at: &str, answer: &Value, schema: &Value, all: &[(String, Value)], out: &mut Vec<String>) {
        let known = fields(schema, all);
        if let (Some(object), false) = (answer.as_object(), known.is_empty()) {
            for name in object.keys().filter(|n| known.iter().all(|(k, ..)| k != n)) {
                out.push(format!("{at}.{name} is in no schema"));
            }
            for (name, own, always) in known {
                match object.get(name) {
                    Some(value) => differences(&format!("{at}.{name}"), value, own, all, out),
                    None if always => out.push(format!("{at}.{name} is missing")),
                    None => {}
                }
            }
            return;
        }
        if let (Some(items), Some(of)) = (answer.as_array(), schema.get("items")) {
            items.iter().take(50).for_each(|item| differences(&format!("{at}[]"), item, of, all, out));
            return;
        }
        let spelled = spelled(schema, &TypeScript);
        let fits = match answer {
            Value::Null => nullable(schema),
            Value::Bool(_) => spelled.starts_with("boolean"),
            Value::Number(_) => spelled.starts_with("number"),
            Value::String(_) => spelled.starts_with("string"),
            Value::Array(_) => spelled.contains("[]"),
            Value::Object(_) => {
                spelled.starts_with("Record") || schema["type"] == "object" || nullable(schema)
            }
        };
        if !fits {
            out.push(format!("{at} is {answer}, not {spelled}"));
        }
    }

    #[test]
    fn answers_are_what_their_schemas_say() {
        let engine = Engine::new(None).unwrap();
        let document = document();
        let all = of_answers(&document);
        let questions = [
            (Kind::Predict, json!({ "model": "resnet18", "gpu": "h100", "batch": 8, "layers": true })),
            (Kind::Predict, json!({ "model": "gpt2-xl", "gpu": "t4", "batch": 512, "precision": "amp" })),
            (Kind::Advise, json!({ "model": "resnet18", "gpu": "a100" })),
            (Kind::Layer, json!({ "model": "resnet18", "gpu": "a100", "name": "layer1.0.conv2" })),
            (Kind::Compare, json!({ "model": "bert-base", "samples": 1_000_000, "budget_usd": 50 })),
            (Kind::Roofline, json!({ "model": "resnet18", "gpus": ["h100", "p4"] })),
            (
                Kind::Compare,
                json!({ "model": "resnet18", "precisions": ["fp32", "amp"], "gpus": ["p4", "h100"] }),
            ),
            (Kind::Compare, json!({ "model": "resnet18", "auto_batch": true, "gpus": ["p4", "h100"] })),
            (
                Kind::Generate,
                json!({ "model": "gpt2", "gpu": "h100", "prompt": 256, "batches": [4], "rate_per_s": 2.0, "seconds": 20.0 }),
            ),
            (Kind::Parallel, json!({ "model": "gpt2", "cluster": "dgx-h100x2", "tp": 2, "pp": 2 })),
            (Kind::Plan, json!({ "model": "gpt2", "cluster": "dgx-h100", "global_batch": 64 })),
            (Kind::Scale, json!({ "model": "gpt2", "node": "dgx-h100", "most_gpus": 16 })),
            (Kind::Nodes, json!({})),
            (Kind::Explore, json!({ "network": "vgg16", "base": "titan-xp" })),
            (Kind::Delta, json!({ "network": "vgg16", "gpu": "titan-xp" })),
            (Kind::Gpus, json!({})),
            (Kind::Gpu, json!({ "gpu": "a100" })),
            (Kind::Models, json!({})),
            (Kind::Networks, json!({})),
            (Kind::Version, json!({})),
        ];
        for (kind, fields) in questions {
            let Value::Object(fields) = fields else { continue };
            let answer: Value = serde_json::from_str(&engine.answer(kind, fields).unwrap()).unwrap();
            let way = if kind.is_plain() { "get" } else { "post" };
            let operation = &document["paths"][format!("/api/v1/{}", kind.name())][way];
            let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
            assert!(schema.is_object(), "{}", kind.name());
            let mut found = Vec::new();
            differences(kind.name(), &answer, schema, &all, &mut found);
            found.dedup();
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}
