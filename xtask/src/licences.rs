//! Checks that every dependency may be used: its SPDX expression against the allow-list of `deny.toml`, and where it comes
//! from. Without a network and without a tool to install; what needs the database of advisories is cargo-deny's.

use crate::run::{cargo, output_of};
use anyhow::Context as _;
use serde_json::Value;
use std::path::Path;

/// The only place that packages come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages of both lock files, of every platform. A lock file that does not fit its manifests is an error too.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let allowed =
        allow_list(&std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?)?;
    check_workspace(root, &allowed)?;
    check_workspace(&root.join("fuzz"), &allowed).context("in fuzz/")
}

fn check_workspace(root: &Path, allowed: &[String]) -> anyhow::Result<()> {
    let metadata = output_of(&mut cargo(root, &["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut refused = Vec::new();
    for package in packages {
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        match package["license"].as_str() {
            None => refused.push(format!("{name}: no licence given")),
            Some(licence) if !permits(licence, allowed)? => refused.push(format!("{name}: {licence}")),
            Some(_) => {}
        }
        // The workspace's own packages have no source.
        if let Some(source) = package["source"].as_str().filter(|s| *s != CRATES_IO) {
            refused.push(format!("{name}: comes from {source}"));
        }
    }
    anyhow::ensure!(
        refused.is_empty(),
        "licences or sources that deny.toml does not allow: {}",
        refused.join("; ")
    );
    println!("    {} packages, all permissive", packages.len());
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn allow_list(deny: &str) -> anyhow::Result<Vec<String>> {
    let table: toml::Table = deny.parse().context("deny.toml is not TOML")?;
    let list = table.get("licenses").and_then(|l| l.get("allow")).and_then(toml::Value::as_array);
    let list = list.context("deny.toml has no `licenses.allow`")?;
    Ok(list.iter().filter_map(|v| v.as_str().map(str::to_string)).collect())
}

/// Does an SPDX expression leave us a choice that is allowed?
///
/// `expression = term { OR term }`, `term = factor { AND factor }`, `factor = ( expression ) | id [ WITH id ]`;
/// old packages write `/` for OR.
fn permits(expression: &str, allowed: &[String]) -> anyhow::Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (verdict, rest) = any(&words, allowed)?;
    anyhow::ensure!(rest.is_empty(), "cannot read the licence `{expression}`");
    Ok(verdict)
}

fn any<'a>(words: &'a [&'a str], allowed: &[String]) -> anyhow::Result<(bool, &'a [&'a str])> {
    let (mut verdict, mut rest) = all(words, allowed)?;
    while let ["OR", tail @ ..] = rest {
        let (next, tail) = all(tail, allowed)?;
        (verdict, rest) = (verdict || next, tail);
    }
    Ok((verdict, rest))
}

fn all<'a>(words: &'a [&'a str], allowed: &[String]) -> anyhow::Result<(bool, &'a [&'a str])> {
    let (mut verdict, mut rest) = one(words, allowed)?;
    while let ["AND", tail @ ..] = rest {
        let (next, tail) = one(tail, allowed)?;
        (verdict, rest) = (verdict && next, tail);
    }
    Ok((verdict, rest))
}

fn one<'a>(words: &'a [&'a str], allowed: &[String]) -> anyhow::Result<(bool, &'a [&'a str])> {
    let has = |id: &str| allowed.iter().any(|a| a == id);
    match words {
        ["(", tail @ ..] => match any(tail, allowed)? {
            (verdict, [")", rest @ ..]) => Ok((verdict, rest)),
            _ => anyhow::bail!("a bracket of a licence does not close"),
        },
        [id, "WITH", exception, rest @ ..] => Ok((has(&format!("{id} WITH {exception}")) || has(id), rest)),
        [id, rest @ ..] if !matches!(*id, "OR" | "AND" | ")" | "WITH") => Ok((has(id), rest)),
        _ => anyhow::bail!("a licence expression ends early"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_understood() {
        let allowed = vec!["MIT".to_string(), "Apache-2.0".to_string(), "Unicode-3.0".to_string()];
        for (expression, verdict) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(GPL-3.0 OR LGPL-2.1) AND MIT", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("MIT/Apache-2.0", true),
        ] {
            assert_eq!(permits(expression, &allowed).unwrap(), verdict, "{expression}");
        }
        assert!(permits("(MIT", &allowed).is_err());
        assert!(permits("MIT AND", &allowed).is_err());
        assert!(permits("", &allowed).is_err());
    }
}
