//! Lays the fitted data out as the program uses them, so that a question unpacks nothing: constants become tables, trees
//! and the index of the choosers bytes that are read where they stand.
// The crate does no I/O; its build reads three files, writes three and talks to cargo.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use preflop_learned::choice::ChooserBytes;
use preflop_learned::trees::Forest;
use serde_json::{Map, Value};
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("data/fitted");
    let out = env::var("OUT_DIR")?;
    let [constants, trees, operators] =
        ["constants.json", "trees.bin", "operators.toml"].map(|name| data.join(name));
    for file in [&constants, &trees, &operators] {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    fs::write(Path::new(&out).join("constants.rs"), tables(&fs::read_to_string(constants)?)?)?;
    fs::write(Path::new(&out).join("operators.rs"), classes(&fs::read_to_string(operators)?)?)?;
    let flat = flat(&fs::read(trees)?).ok_or("data/fitted/trees.bin is damaged")?;
    Ok(fs::write(Path::new(&out).join("trees.flat"), flat)?)
}

/// The constants as tables in the order of their names.
fn tables(text: &str) -> Result<String, Box<dyn Error>> {
    let file: Map<String, Value> = serde_json::from_str(text)?;
    let part = |name: &str| file.get(name).and_then(Value::as_object).ok_or(format!("no {name}"));
    let mut out = String::new();
    let mut table = |name: &str, kind: &str, value: &dyn Fn(&Value) -> Option<String>| {
        let (part, name) = (part(name)?, name.to_uppercase());
        writeln!(out, "pub static {name}: &[(Cow<'static, str>, {kind})] = &[")?;
        let mut rows: Vec<_> = part.iter().collect();
        rows.sort_by_key(|(key, _)| *key);
        for (key, v) in rows {
            let v = value(v).ok_or(format!("{name}: {key}"))?;
            writeln!(out, "(Cow::Borrowed({key:?}), {v}),")?;
        }
        writeln!(out, "];")?;
        Ok::<(), Box<dyn Error>>(())
    };
    let list = |v: &Value| {
        let numbers: Option<Vec<f64>> = v.as_array()?.iter().map(Value::as_f64).collect();
        Some(format!("{:?}", numbers?))
    };
    let interval = |v: &Value| {
        let end = |name: &str| v.get(name)?.as_f64();
        Some(format!("LogInterval {{ low: {:?}, high: {:?} }}", end("low")?, end("high")?))
    };
    table("references", "Cow<'static, str>", &|v| Some(format!("Cow::Borrowed({:?})", v.as_str()?)))?;
    table("tiles", "[f64; tile::Constants::COUNT]", &list)?;
    table("forms", "Cow<'static, [f64]>", &|v| Some(format!("Cow::Borrowed(&{})", list(v)?)))?;
    table("intervals", "LogInterval", &interval)?;
    table("unseen", "LogInterval", &interval)?;
    Ok(out)
}

/// The classes of listed operators as a table in the order of their names.
fn classes(text: &str) -> Result<String, Box<dyn Error>> {
    let file: toml::Table = toml::from_str(text)?;
    let part = file.get("class").and_then(toml::Value::as_table).ok_or("no class")?;
    let mut rows: Vec<_> = part.iter().collect();
    rows.sort_by_key(|(key, _)| *key);
    let mut out = String::from("static CLASSES: &[(&str, Class)] = &[\n");
    for (key, class) in rows {
        let list = |name: &str| {
            let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
            let numbers: Option<Vec<f64>> = class.get(name)?.as_array()?.iter().map(number).collect();
            Some(format!("{:?}", numbers?))
        };
        let (constants, spread) = list("constants").zip(list("spread")).ok_or(format!("class {key}"))?;
        writeln!(out, "({key:?}, Class {{ constants: {constants}, spread: {spread} }}),")?;
    }
    out.push_str("];\n");
    Ok(out)
}

/// Forests and choosers as they are used, in the container that `fitted.rs` opens.
fn flat(trees: &[u8]) -> Option<Vec<u8>> {
    fn part(out: &mut Vec<u8>, bytes: &[u8]) {
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
    let (count, mut rest) = trees.strip_prefix(b"PFTREES2")?.split_first_chunk::<4>()?;
    let mut out = count.to_vec();
    for _ in 0..u32::from_le_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (name, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let (forest, after) = Forest::from_bytes(after)?;
        part(&mut out, name);
        part(&mut out, &forest.to_flat());
        rest = after;
    }
    let choosers = ChooserBytes::new(rest.to_vec()).all()?;
    for chooser in choosers.passes.iter().chain([&choosers.depthwise]) {
        part(&mut out, &chooser.to_flat());
    }
    Some(out)
}
