//! `cargo xtask site`: the documentation as a site, with a reference that the program itself writes.

use crate::formulas;
use crate::links;
use crate::reference;
use crate::run::{cargo, program, succeed, works};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The version that is installed where there is none.
const MDBOOK: &str = "0.5.1";
/// Documents of the root that are chapters too.
const ROOT: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// Writes the source, checks its links and builds the site into target/site.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let source = source(root)?;
    let mdbook = mdbook(root)?;
    let (from, to) = (source.to_string_lossy().into_owned(), root.join("target/site"));
    succeed(&mut program(root, mdbook, &["build", &from, "--dest-dir", &to.to_string_lossy()]))?;
    for page in ["index.html", "reference/commands.html", "pictures/report.jpg", "reference/parity.svg"] {
        anyhow::ensure!(to.join(page).is_file(), "the site has no {page}");
    }
    println!("    the site is in {}", to.display());
    Ok(())
}

/// Chapters, pictures and reference as mdBook reads them: every chapter is there, every document is a chapter, every link leads somewhere.
pub fn source(root: &Path) -> anyhow::Result<PathBuf> {
    links::check(root)?;
    let source = root.join("target/site-source");
    let _ = std::fs::remove_dir_all(&source);
    let pages = source.join("src");
    std::fs::create_dir_all(pages.join("reference")).context("cannot make target/site-source")?;
    std::fs::copy(root.join("docs/book.toml"), source.join("book.toml")).context("no docs/book.toml")?;
    for folder in ["pictures", "schemas"] {
        std::fs::create_dir_all(pages.join(folder))?;
        for entry in std::fs::read_dir(root.join("docs").join(folder))? {
            let path = entry?.path();
            std::fs::copy(&path, pages.join(folder).join(path.file_name().unwrap_or_default()))?;
        }
    }
    let mut documents: BTreeSet<String> = ROOT.map(str::to_string).into();
    for entry in std::fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "md")) {
            documents.insert(name.to_string_lossy().into_owned());
        }
    }
    for name in &documents {
        let from = if ROOT.contains(&name.as_str()) { root.join(name) } else { root.join("docs").join(name) };
        let text = std::fs::read_to_string(&from).with_context(|| format!("cannot read {name}"))?;
        // Inside the site all documents stand beside each other.
        let text = text.replace("](../", "](").replace("](docs/", "](");
        let text = formulas::drawn(&only_inside(&text, &documents)).with_context(|| format!("in {name}"))?;
        std::fs::write(pages.join(name), text)?;
    }
    reference::write(root, &pages.join("reference"))?;
    let summary = std::fs::read_to_string(root.join("docs/SUMMARY.md")).context("no docs/SUMMARY.md")?;
    let forgotten: Vec<&String> =
        documents.iter().filter(|d| *d != "SUMMARY.md" && !summary.contains(&format!("({d})"))).collect();
    anyhow::ensure!(forgotten.is_empty(), "docs/SUMMARY.md does not name {forgotten:?}");
    links::check_chapters(&pages)?;
    Ok(source)
}

/// Links to what is no part of the site (code, data) become plain text: their words stay.
fn only_inside(text: &str, documents: &BTreeSet<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("](") {
        let (before, after) = rest.split_at(start);
        let Some(end) = after.find(')') else { break };
        let target = &after[2..end];
        let file = target.split('#').next().unwrap_or_default();
        let inside = file.is_empty()
            || target.contains("://")
            || documents.contains(file)
            || ["pictures/", "schemas/", "reference/"].iter().any(|f| file.starts_with(f));
        if let Some(open) = before.rfind('[').filter(|_| !inside) {
            out.push_str(&before[..open]);
            out.push_str(&before[open + 1..]);
        } else {
            out.push_str(before);
            out.push_str(&after[..=end]);
        }
        rest = &after[end + 1..];
    }
    out + rest
}

/// An installed mdBook, or one for this working tree.
fn mdbook(root: &Path) -> anyhow::Result<PathBuf> {
    if works(&mut program(root, "mdbook", &["--version"])) {
        return Ok("mdbook".into());
    }
    let tools = root.join("target/tools");
    let own = tools.join("bin/mdbook");
    if !own.is_file() {
        println!("    installing mdBook into target/tools, some minutes");
        let place = tools.to_string_lossy();
        succeed(&mut cargo(
            root,
            &["install", "--quiet", "--locked", "--root", &place, "mdbook", "--version", MDBOOK],
        ))?;
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_site_become_words() {
        let documents: BTreeSet<String> = ["a.md".to_string()].into();
        let text = "[a](a.md#x), [code](crates/x.rs) and [![p](pictures/p.jpg)](https://x.org)";
        assert_eq!(
            only_inside(text, &documents),
            "[a](a.md#x), code and [![p](pictures/p.jpg)](https://x.org)"
        );
    }
}
