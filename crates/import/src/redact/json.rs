//! Kineto and Chakra: every event is written anew from the fields that are known, each with a value of its shape.

use super::Dropped;
use super::fields::{ARGS, ATTRIBUTES, CATEGORIES, DEVICE, EVENT, Fields, NODE, PHASES, Shape, TENSORS, TOP};
use super::words::Namer;
use crate::ImportError;
use crate::json_stream::{self, Handler};
use crate::mend::mend;
use crate::number::nanoseconds;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Read, Write};

use Shape::{Kind, Moment, Name, NameOrNumber, Names, Number, Numbers, Values};

/// An object in the order of its fields.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut out = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    out.push(pair);
                }
                Ok(Object(out))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> Object<'a> {
    fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| *v)
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(|v| serde_json::from_str(v.get()).ok())
    }
}

/// Writes the copy as events come.
struct Copier<'a> {
    out: &'a mut dyn Write,
    namer: Namer,
    dropped: Dropped,
    /// The event array being written.
    array: Option<String>,
    bare_array: bool,
    fields: u64,
    elements: u64,
    error: Option<io::Error>,
    /// The first moment.
    base: Option<i64>,
}

/// Copies what may leave.
pub fn copy(reader: impl Read, name: &str, out: &mut dyn Write) -> Result<Dropped, ImportError> {
    let mut copier = Copier {
        out,
        namer: Namer::new(),
        dropped: Dropped::default(),
        array: None,
        bare_array: false,
        fields: 0,
        elements: 0,
        error: None,
        base: None,
    };
    json_stream::read(reader, name, &mut copier)?;
    if let Some(source) = copier.error {
        return Err(ImportError::Write { file: "the copy".to_string(), source });
    }
    copier.dropped.changed = copier.namer.changed;
    Ok(copier.dropped)
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A JSON number of a length that sizes, counts and identifiers have.
fn is_number(raw: &str) -> bool {
    const MAX_DIGITS: usize = 20;
    let digits = raw.bytes().filter(u8::is_ascii_digit).count();
    digits > 0
        && raw.len() <= 2 * MAX_DIGITS
        && raw.split(['.', 'e', 'E']).all(|part| part.len() <= MAX_DIGITS + 1)
        && raw.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
        && raw.parse::<f64>().is_ok_and(f64::is_finite)
}

/// The value of an operator's argument as text: `1`, `[2, 2]`, `True`, `1e-05`, nothing.
fn is_argument(text: &str) -> bool {
    const MAX_DIGITS: usize = 9;
    let one = |word: &str| {
        matches!(word, "" | "True" | "False" | "None" | "true" | "false" | "null" | "inf" | "-inf" | "nan")
            || (is_number(word)
                && word.split(['.', 'e', 'E']).next().is_some_and(|w| w.len() <= MAX_DIGITS + 1))
    };
    let inner = text.trim_matches(['[', ']', '(', ')']);
    inner.split([',']).all(|word| one(word.trim()))
}

impl Copier<'_> {
    fn put(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = self.out.write_all(text.as_bytes()).err();
        }
    }

    fn close_array(&mut self) {
        if self.array.take().is_some() {
            self.put("\n]");
        }
    }

    fn key(&mut self, key: &str) {
        let comma = if self.fields == 0 { "{\n" } else { ",\n" };
        self.put(&format!("{comma}{}: ", quoted(key)));
        self.fields += 1;
    }

    fn number(&mut self, raw: &str) -> Option<String> {
        const FREED: usize = 9;
        let inner = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"'));
        let Some(inner) = inner.map(str::trim) else {
            return is_number(raw).then(|| raw.to_owned());
        };
        let digits = inner.strip_prefix('-').unwrap_or(inner);
        let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if whole && digits.len() > FREED {
            // Identifiers beyond that are only compared with each other.
            return Some(self.namer.identifier(inner).to_string());
        }
        (whole || (inner.len() <= FREED && is_number(inner))).then(|| inner.to_owned())
    }

    /// Lists of numbers as they are; whatever else is in them becomes an empty list.
    fn numbers(&mut self, value: &Value) -> Value {
        match value {
            Value::Number(n) if is_number(&n.to_string()) => value.clone(),
            Value::Array(items) => items.iter().map(|v| self.numbers(v)).collect(),
            _ => {
                self.dropped.changed += 1;
                Value::Array(Vec::new())
            }
        }
    }

    fn arguments(&mut self, value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(|v| self.arguments(v)).collect(),
            Value::Bool(_) | Value::Null => value.clone(),
            Value::Number(n) if is_number(&n.to_string()) => value.clone(),
            Value::String(text) if is_argument(text) => value.clone(),
            // Chakra writes the device of a tensor beside its numbers.
            Value::String(text) if matches!(text.as_str(), "cpu" | "cuda:0" | "cuda") => value.clone(),
            _ => {
                self.dropped.changed += 1;
                Value::from("")
            }
        }
    }

    /// The value, if it has the shape; as JSON.
    fn shaped(&mut self, raw: &RawValue, shape: Shape, kernel: bool) -> Option<String> {
        let text = raw.get();
        let word = || serde_json::from_str::<String>(text).ok();
        match shape {
            Moment => {
                let moment = nanoseconds(text)?;
                let base = *self.base.get_or_insert(moment);
                let from = i128::from(moment) - i128::from(base);
                let sign = if from < 0 { "-" } else { "" };
                let from = from.unsigned_abs();
                Some(format!("{sign}{}.{:03}", from / 1000, from % 1000))
            }
            Numbers | Values => {
                // Kineto of 2021 wrote lists in quotes.
                let value: Value = serde_json::from_str(text).ok()?;
                let value = match &value {
                    Value::String(inner) if shape == Numbers && inner.starts_with('[') => {
                        serde_json::from_str(inner).ok()?
                    }
                    _ => value,
                };
                let clean = if shape == Numbers { self.numbers(&value) } else { self.arguments(&value) };
                Some(clean.to_string())
            }
            Kind => word()
                .filter(|w| CATEGORIES.contains(&w.as_str()) || PHASES.contains(&w.as_str()))
                .map(|w| quoted(&w)),
            Name if kernel => Some(quoted(&self.namer.kernel(&word()?))),
            Name => Some(quoted(&self.namer.name(&word()?))),
            NameOrNumber if text.starts_with('"') => Some(quoted(&self.namer.name(&word()?))),
            Number | NameOrNumber => self.number(text),
            Names => {
                let names: Vec<Value> = serde_json::from_str(text).ok()?;
                let clean: Vec<Value> = names
                    .iter()
                    .map(|n| match n {
                        Value::String(n) => Value::from(self.namer.name(n).into_owned()),
                        Value::Array(inner) => {
                            let word = |v: &Value| v.as_str().map(str::to_owned).unwrap_or_default();
                            inner
                                .iter()
                                .map(|v| Value::from(self.namer.name(&word(v)).into_owned()))
                                .collect()
                        }
                        _ => Value::from(""),
                    })
                    .collect();
                Some(Value::from(clean).to_string())
            }
        }
    }

    /// The fields of an object that are known, without the braces.
    fn known(&mut self, place: &str, object: &Object, fields: Fields, kernel: bool, out: &mut String) {
        for (key, value) in &object.0 {
            let clean = fields
                .iter()
                .find(|(name, _)| name == key)
                .and_then(|(name, shape)| self.shaped(value, *shape, kernel && *name == "name"));
            match clean {
                Some(clean) => {
                    let comma = if out.ends_with('{') { "" } else { ", " };
                    let _ = write!(out, "{comma}{}: {clean}", quoted(key));
                }
                // Nested objects are looked at by the caller.
                None if matches!(key.as_ref(), "args" | "inputs" | "outputs" | "attrs") => {}
                None => self.drop_field(place, key),
            }
        }
    }

    fn drop_field(&mut self, place: &str, key: &str) {
        let shown = if self.namer.is_harmless(key) { key } else { "an unknown field" };
        self.dropped.count(&format!("{place}{shown}"));
    }

    /// One trace event; `None` if it goes as a whole.
    fn event(&mut self, event: &Object) -> Option<String> {
        let category = event.text("cat");
        let phase = event.text("ph").unwrap_or_default();
        let name = event.text("name").unwrap_or_default();
        let known_category = category.as_deref().is_none_or(|c| CATEGORIES.contains(&c));
        let python = matches!(category.as_deref(), Some("python_function" | "Python"));
        let step = name.starts_with("ProfilerStep#");
        if !PHASES[..4].contains(&phase.as_str()) || !(known_category || step) {
            self.dropped.count("events of no use for time");
            return None;
        }
        if python && !name.starts_with("nn.Module: ") {
            self.dropped.count("events of Python functions");
            return None;
        }
        let keys = event.0.iter().map(|(k, _)| k);
        if keys.clone().enumerate().any(|(i, k)| keys.clone().skip(i + 1).any(|other| other == k)) {
            self.dropped.count("events with a field twice");
            return None;
        }
        let kernel = matches!(category.as_deref(), Some("kernel" | "Kernel"));
        let mut out = String::from("{");
        self.known("event: ", event, EVENT, kernel, &mut out);
        if let Some(args) = event.get("args").and_then(|a| serde_json::from_str::<Object>(a.get()).ok()) {
            out.push_str(if out.ends_with('{') { "\"args\": {" } else { ", \"args\": {" });
            if category.as_deref() == Some("cuda_profiler_range") {
                self.counters(&args, &mut out);
            } else {
                self.known("event: args: ", &args, ARGS, false, &mut out);
            }
            out.push('}');
        }
        out.push('}');
        Some(out)
    }

    /// Counters have their metrics for keys.
    fn counters(&mut self, args: &Object, out: &mut String) {
        for (metric, value) in &args.0 {
            let number = self.number(value.get());
            match number.filter(|_| super::is_metric(&mut self.namer, metric)) {
                Some(number) => {
                    let comma = if out.ends_with('{') { "" } else { ", " };
                    let _ = write!(out, "{comma}{}: {number}", quoted(metric));
                }
                None => self.drop_field("counter: ", metric),
            }
        }
    }

    /// One node of a Chakra trace.
    fn node(&mut self, node: &Object) -> String {
        let mut out = String::from("{");
        self.known("node: ", node, NODE, false, &mut out);
        for key in ["inputs", "outputs"] {
            let Some(raw) = node.get(key) else { continue };
            let comma = if out.ends_with('{') { "" } else { ", " };
            let _ = write!(out, "{comma}\"{key}\": ");
            match serde_json::from_str::<Object>(raw.get()) {
                Ok(tensors) => {
                    out.push('{');
                    self.known(&format!("node: {key}: "), &tensors, TENSORS, false, &mut out);
                    out.push('}');
                }
                // The flat layout has the values here.
                Err(_) => out.push_str(&self.shaped(raw, Values, false).unwrap_or_else(|| "[]".to_owned())),
            }
        }
        if let Some(attributes) =
            node.get("attrs").and_then(|a| serde_json::from_str::<Vec<Object>>(a.get()).ok())
        {
            out.push_str(", \"attrs\": [");
            for attribute in &attributes {
                let name = attribute.text("name").unwrap_or_default();
                let value = attribute.get("value").and_then(|v| self.number(v.get()));
                match value.filter(|_| ATTRIBUTES.contains(&name.as_str())) {
                    Some(value) => {
                        let comma = if out.ends_with('[') { "" } else { ", " };
                        let _ = write!(out, "{comma}{{\"name\": \"{name}\", \"value\": {value}}}");
                    }
                    None => self.drop_field("node: attrs: ", &name),
                }
            }
            out.push(']');
        }
        out.push('}');
        out
    }

    /// `deviceProperties`: numbers and the GPU's name.
    fn devices(&mut self, value: &str) -> String {
        let devices: Vec<Object> = serde_json::from_str(value).unwrap_or_default();
        let mut clean = Vec::new();
        for device in &devices {
            let mut out = String::from("{");
            let name = device.text("name").and_then(|n| Namer::gpu(&n).map(str::to_owned));
            if let Some(name) = name {
                let _ = write!(out, "\"name\": {}", quoted(&name));
            }
            let rest = Object(device.0.iter().filter(|(k, _)| k != "name").cloned().collect());
            self.known("device: ", &rest, DEVICE, false, &mut out);
            out.push('}');
            clean.push(out);
        }
        format!("[{}]", clean.join(", "))
    }
}

/// The version of a Chakra schema: `1.0.2-chakra.0.0.4`.
fn is_schema(text: &str) -> bool {
    let version = |text: &str| {
        let numbers: Vec<&str> = text.split('.').collect();
        numbers.len() <= 3 && numbers.iter().all(|n| n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit()))
    };
    text.split("-chakra.").count() <= 2 && text.split("-chakra.").all(version)
}

impl Handler for Copier<'_> {
    fn is_events(&self, key: &str) -> bool {
        key == "traceEvents" || key == "nodes"
    }

    fn wants(&self, key: &str) -> bool {
        matches!(key, "deviceProperties" | "distributedInfo" | "schema")
            || TOP.iter().any(|(name, _)| *name == key)
    }

    fn field(&mut self, key: &str, value: &[u8]) {
        let Ok(text) = std::str::from_utf8(value) else { return self.drop_field("", key) };
        let clean = match key {
            "deviceProperties" => Some(self.devices(text)),
            "distributedInfo" => serde_json::from_str::<Object>(text).ok().map(|info| {
                let mut out = String::from("{");
                let fields: Fields = &[("world_size", Number), ("rank", Number), ("backend", Name)];
                self.known("distributedInfo: ", &info, fields, false, &mut out);
                out + "}"
            }),
            "schema" => {
                serde_json::from_str::<String>(text).ok().filter(|s| is_schema(s)).map(|s| quoted(&s))
            }
            _ => self.number(text),
        };
        match clean {
            None => self.drop_field("", key),
            Some(clean) => {
                self.close_array();
                self.key(key);
                self.put(&clean);
            }
        }
    }

    fn skipped(&mut self, key: &str) {
        self.drop_field("", key);
    }

    fn element(&mut self, key: &str, element: &[u8]) -> Result<(), String> {
        let mended;
        let parsed = std::str::from_utf8(element).ok().and_then(|t| serde_json::from_str::<Object>(t).ok());
        let object = if let Some(object) = parsed {
            object
        } else {
            mended = mend(element).unwrap_or_else(|| String::from_utf8_lossy(element).into_owned());
            match serde_json::from_str(&mended) {
                Ok(object) => object,
                // Something else than an object: the importer counts it as unreadable.
                Err(e) if e.is_data() => {
                    self.dropped.count("events that are no objects");
                    return Ok(());
                }
                Err(e) => return Err(e.to_string()),
            }
        };
        let Some(clean) = (if key == "nodes" { Some(self.node(&object)) } else { self.event(&object) })
        else {
            return Ok(());
        };
        if self.array.as_deref() == Some(key) {
            self.put(",\n");
        } else {
            self.close_array();
            if key.is_empty() {
                self.bare_array = true;
            } else {
                self.key(key);
            }
            self.array = Some(key.to_string());
            self.put("[\n");
        }
        self.elements += 1;
        self.put(&clean);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.elements == 0 {
            return Err("it is JSON without events".to_string());
        }
        self.close_array();
        self.put(if self.bare_array { "\n" } else { "\n}\n" });
        Ok(())
    }
}
