//! Requests generated from the OpenAPI document: what it allows is answered, what it does not is refused.
#![allow(clippy::unwrap_used)]

mod common;

use common::Running;
use proptest::prelude::*;
use proptest::strategy::BoxedStrategy;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;

/// A schema without references; parts of `allOf` are put together.
fn resolved(document: &Value, schema: &Value) -> Value {
    if let Some(path) = schema["$ref"].as_str() {
        let target =
            document.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("{path} is missing"));
        return resolved(document, target);
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for part in parts {
            let part = resolved(document, part);
            properties.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        return json!({ "type": "object", "properties": properties, "required": required });
    }
    schema.clone()
}

fn kind_of(schema: &Value) -> String {
    let named = |v: &Value| v.as_str().map(str::to_string);
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(named).find(|k| k != "null").unwrap_or_default(),
        kind => named(kind).unwrap_or_default(),
    }
}

/// Values that a schema allows.
fn values(document: &Value, schema: &Value) -> BoxedStrategy<Value> {
    let schema = resolved(document, schema);
    if let Some(one) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let choices: Vec<_> =
            one.iter().filter(|s| s["type"] != "null").map(|s| values(document, s)).collect();
        return proptest::strategy::Union::new(choices).boxed();
    }
    if let Some(list) = schema["enum"].as_array() {
        return proptest::sample::select(list.clone()).boxed();
    }
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    match kind_of(&schema).as_str() {
        "integer" => {
            let (least, most) = (least.unwrap_or(0.0) as u64, most.unwrap_or(1e6) as u64);
            prop_oneof![4 => least..=most.min(least + 256), 1 => least..=most].prop_map(Value::from).boxed()
        }
        "number" => (least.unwrap_or(-1e6)..=most.unwrap_or(1e6))
            .prop_map(|x| Number::from_f64(x).map_or(Value::Null, Value::Number))
            .boxed(),
        "boolean" => any::<bool>().prop_map(Value::Bool).boxed(),
        "string" => {
            let pattern = schema["pattern"].as_str().unwrap_or("[a-z0-9._ -]{0,16}").trim_matches(['^', '$']);
            proptest::string::string_regex(pattern).unwrap().prop_map(Value::String).boxed()
        }
        "array" => {
            let fewest = schema["minItems"].as_u64().unwrap_or(1) as usize;
            proptest::collection::vec(values(document, &schema["items"]), fewest..fewest + 4)
                .prop_map(Value::Array)
                .boxed()
        }
        "object" => object(document, &schema),
        other => panic!("the document has a schema of type `{other}`: {schema}"),
    }
}

fn object(document: &Value, schema: &Value) -> BoxedStrategy<Value> {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out: BoxedStrategy<Map<String, Value>> = Just(Map::new()).boxed();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let name = name.clone();
        let value = values(document, field);
        let field = if required.contains(&name.as_str()) {
            value.prop_map(Some).boxed()
        } else {
            proptest::option::weighted(0.4, value).boxed()
        };
        out = (out, field)
            .prop_map(move |(mut map, value)| {
                map.extend(value.map(|v| (name.clone(), v)));
                map
            })
            .boxed();
    }
    out.prop_map(Value::Object).boxed()
}

/// Questions with a body: address, schema.
fn questions(document: &Value) -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let schema = &operations["post"]["requestBody"]["content"]["application/json"]["schema"];
        if !schema.is_null() && path != "/api/v1/ask" {
            out.insert(path.clone(), schema.clone());
        }
    }
    assert_eq!(out.len(), 13, "{:?}", out.keys());
    out
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

#[test]
fn what_the_document_allows_is_answered() {
    let server = Running::start();
    let document = server.get("/api/v1/openapi.json").json();
    for (path, schema) in questions(&document) {
        let answered = std::cell::Cell::new(0);
        let cases = 40;
        runner(cases)
            .run(&values(&document, &schema), |body| {
                let reply = server.post(&path, "application/json", body.to_string().as_bytes());
                match reply.status {
                    200 => {
                        answered.set(answered.get() + 1);
                        prop_assert!(reply.json().get("error").is_none());
                    }
                    // A name that is not there, a sequence for a model without one, a budget without a run.
                    422 => prop_assert!(!reply.json()["error"]["message"].as_str().unwrap().is_empty()),
                    other => {
                        prop_assert!(
                            false,
                            "{path} {body}: {other} {}",
                            String::from_utf8_lossy(&reply.body)
                        );
                    }
                }
                Ok(())
            })
            .unwrap();
        // Names of layers are made up, and few models have layers that a cluster or a prompt knows: those are mostly refused.
        let mostly_refused = ["layer", "generate", "parallel", "plan", "scale"];
        let least = if mostly_refused.iter().any(|end| path.ends_with(end)) { 0 } else { cases / 8 };
        println!("{path}: {} of {cases} answered, the others refused with a reason", answered.get());
        assert!(answered.get() >= least, "{path}: {} of {cases}", answered.get());
    }
    server.stop();
}

/// A change that makes a question wrong.
#[derive(Debug, Clone)]
enum Harm {
    Drop(prop::sample::Index),
    Replace(prop::sample::Index, Value),
    Add(String),
}

fn harm() -> impl Strategy<Value = Harm> {
    let odd = prop_oneof![
        Just(json!({ "a": [1, { "b": null }] })),
        Just(json!(-7)),
        Just(json!(1e300)),
        Just(json!([[], {}])),
        "\\PC{0,40}".prop_map(Value::String),
    ];
    prop_oneof![
        any::<prop::sample::Index>().prop_map(Harm::Drop),
        (any::<prop::sample::Index>(), odd).prop_map(|(i, v)| Harm::Replace(i, v)),
        "[a-z]{3,12}zz".prop_map(Harm::Add),
    ]
}

#[test]
fn what_the_document_does_not_allow_is_refused() {
    let server = Running::start();
    let document = server.get("/api/v1/openapi.json").json();
    for (path, schema) in questions(&document) {
        let required: Vec<String> = resolved(&document, &schema)["required"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|v| v.as_str().map(str::to_string))
            .collect();
        runner(40)
            .run(&(values(&document, &schema), harm()), |(mut body, harm)| {
                let fields = body.as_object_mut().unwrap();
                match &harm {
                    Harm::Drop(i) => {
                        fields.remove(&required[i.index(required.len())]);
                    }
                    Harm::Replace(i, value) => {
                        fields.insert(required[i.index(required.len())].clone(), value.clone());
                    }
                    Harm::Add(name) => {
                        fields.insert(name.clone(), json!(1));
                    }
                }
                let reply = server.post(&path, "application/json", body.to_string().as_bytes());
                prop_assert!(matches!(reply.status, 400 | 422), "{path} {harm:?} {body}: {}", reply.status);
                let message = reply.json()["error"]["message"].as_str().unwrap().to_string();
                prop_assert!(
                    !message.is_empty() && message.len() < 2500 && !message.contains('\n'),
                    "{message}"
                );
                Ok(())
            })
            .unwrap();
    }
    server.stop();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes at all, to the one function: an answer or an error, never a panic.
    #[test]
    fn the_one_function_takes_anything(text in "\\PC{0,200}", kind in 0usize..18) {
        static ENGINE: std::sync::OnceLock<preflop_api::Engine> = std::sync::OnceLock::new();
        let engine = ENGINE.get_or_init(|| preflop_api::Engine::new(None).unwrap());
        let answer: Value = serde_json::from_str(&engine.ask(&text)).unwrap();
        prop_assert!(answer["error"]["message"].is_string());
        let question = json!({ "ask": preflop_api::Kind::ALL[kind].name(), "model": text, "gpu": text }).to_string();
        let answer: Value = serde_json::from_str(&engine.ask(&question)).unwrap();
        prop_assert!(answer["error"]["message"].is_string(), "{answer}");
    }
}

#[test]
fn every_question_is_in_the_document_and_every_address_answers() {
    let server = Running::start();
    let document = server.get("/api/v1/openapi.json").json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    for kind in preflop_api::Kind::ALL {
        let operations = &document["paths"][format!("/api/v1/{}", kind.name())];
        assert!(operations.is_object(), "{kind:?}");
        if kind.is_plain() && kind != preflop_api::Kind::Accuracy {
            assert_eq!(server.get(&format!("/api/v1/{}", kind.name())).status, 200, "{kind:?}");
        }
        let example = &operations["post"]["requestBody"]["content"]["application/json"]["example"];
        if !kind.is_plain() {
            assert_eq!(server.ask(kind.name(), example).status, 200, "the example of {kind:?}");
        }
    }
    server.stop();
}
