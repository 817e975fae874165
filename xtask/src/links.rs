//! Links between the repository's documents: every file and heading that one names must be there.

use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Checks README.md, the other documents at the root and all of docs/.
pub fn check(root: &Path) -> anyhow::Result<()> {
    let mut documents = markdown(root)?;
    documents.extend(markdown(&root.join("docs"))?);
    check_all(root, &documents)
}

/// Checks the chapters of the site, its list of them too.
pub fn check_chapters(pages: &Path) -> anyhow::Result<()> {
    let mut documents = markdown(pages)?;
    documents.extend(markdown(&pages.join("reference"))?);
    documents.push(pages.join("SUMMARY.md"));
    check_all(pages, &documents)
}

fn check_all(root: &Path, documents: &[PathBuf]) -> anyhow::Result<()> {
    let mut broken = Vec::new();
    let mut links = 0;
    for document in documents {
        let text = std::fs::read_to_string(document)
            .with_context(|| format!("cannot read {}", document.display()))?;
        for (line, target) in targets(&text) {
            links += 1;
            if let Some(why) = wrong(document, &target) {
                let name = document.strip_prefix(root).unwrap_or(document);
                broken.push(format!("{}:{line}: `{target}`: {why}", name.display()));
            }
        }
    }
    anyhow::ensure!(broken.is_empty(), "broken links:\n  {}", broken.join("\n  "));
    println!("    {links} links of {} documents lead somewhere", documents.len());
    Ok(())
}

fn markdown(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        // The list of chapters names files that only the site has; they are checked there.
        let chapters = path.file_name().is_some_and(|n| n == "SUMMARY.md");
        if path.extension().is_some_and(|e| e == "md") && !chapters {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The targets of `[text](target)` outside of code, with their lines.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut out = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code || line.starts_with("    ") {
            continue;
        }
        // Every second piece stands between back ticks.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let mut rest = plain.as_str();
        while let Some(start) = rest.find("](") {
            rest = &rest[start + 2..];
            let Some(end) = rest.find(')') else { break };
            out.push((number + 1, rest[..end].to_string()));
            rest = &rest[end..];
        }
    }
    out
}

/// What is wrong with a link, if anything. Addresses of other sites are not looked up: tests need no network.
fn wrong(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').map_or((target, None), |(f, h)| (f, Some(h)));
    let path = if file.is_empty() { document.to_path_buf() } else { document.parent()?.join(file) };
    if !path.exists() {
        return Some("no such file".to_string());
    }
    let heading = heading.filter(|_| path.extension().is_some_and(|e| e == "md"))?;
    let text = std::fs::read_to_string(&path).ok()?;
    let known: BTreeSet<String> =
        text.lines().filter(|l| l.starts_with('#')).map(|l| anchor(l.trim_start_matches('#'))).collect();
    (!known.contains(heading)).then(|| "no such heading".to_string())
}

/// A heading as renderers name it: lower case, blanks as dashes, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_outside_of_code_and_headings_by_their_anchor() {
        let text = "see [a](docs/a.md) and `[b](no.md)`\n```\n[c](no.md)\n```\n[d](#how-it-works)";
        assert_eq!(targets(text), [(1, "docs/a.md".to_string()), (5, "#how-it-works".to_string())]);
        assert_eq!(anchor(" How it works?"), "how-it-works");
    }
}
