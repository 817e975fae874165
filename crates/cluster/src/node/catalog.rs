//! The nodes that ship with the tool: `data/nodes/*.toml`, embedded.

use super::{Node, NodeFile, parse};
use crate::ClusterError;
use preflop_core::names::did_you_mean;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../data/nodes/", $name, ".toml")))),*]
    };
}

/// Name and text of every embedded file.
pub const FILES: &[(&str, &str)] = files!(
    "dgx-1-v100"
    "dgx-2-v100"
    "dgx-a100"
    "dgx-h100"
    "dgx-h200"
    "dgx-b200"
    "dgx-b300"
    "hgx-a100"
    "hgx-h100"
    "aws-p3-16xlarge"
    "aws-p4d-24xlarge"
    "aws-p5-48xlarge"
    "gcp-a2-highgpu-8g"
    "gcp-a3-highgpu-8g"
    "azure-nd96-a100-v4"
    "azure-nd96-h100-v5"
    "gb200-nvl72"
    "gb300-nvl72"
    "l40s-4"
    "l40s-8"
    "rtx-4090-4"
    "rtx-4090-8"
    "rtx-pro-6000-4"
    "rtx-pro-6000-8"
);

/// Short names that users write.
const ALIASES: &[(&str, &str)] = &[
    ("aws-p3", "aws-p3-16xlarge"),
    ("aws-p4d", "aws-p4d-24xlarge"),
    ("aws-p5", "aws-p5-48xlarge"),
    ("gcp-a2", "gcp-a2-highgpu-8g"),
    ("gcp-a3", "gcp-a3-highgpu-8g"),
    ("nvl72", "gb200-nvl72"),
    ("dgx-1", "dgx-1-v100"),
    ("dgx-2", "dgx-2-v100"),
];

/// Names of all nodes.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The text of the node of that name or short name.
fn text(name: &str) -> Option<(&'static str, &'static str)> {
    let wanted = name.to_lowercase().replace([' ', '_', '.'], "-");
    let wanted = ALIASES.iter().find(|(short, _)| *short == wanted).map_or(wanted.as_str(), |(_, n)| n);
    FILES.iter().find(|(n, _)| *n == wanted).copied()
}

/// The node of that name, if there is one.
pub fn find(name: &str) -> Option<Result<Node, ClusterError>> {
    text(name).map(|(file, text)| parse(text, file)?.complete())
}

/// The node of that name, or which names are close.
pub fn need(name: &str) -> Result<Node, ClusterError> {
    find(name).unwrap_or_else(|| Err(unknown(name)))
}

/// The error for a name that nothing has.
pub fn unknown(name: &str) -> ClusterError {
    let known = names().chain(ALIASES.iter().map(|(short, _)| *short));
    ClusterError::Unknown {
        name: name.chars().take(64).collect(),
        hint: did_you_mean(&name.chars().take(64).collect::<String>(), known),
    }
}

/// All files without defaults.
pub fn files() -> Result<Vec<NodeFile>, ClusterError> {
    FILES.iter().map(|(file, text)| parse(text, file)).collect()
}

/// All nodes.
pub fn all() -> Result<Vec<Node>, ClusterError> {
    files()?.into_iter().map(NodeFile::complete).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_reads_and_is_named_as_its_file() {
        for ((file, _), node) in FILES.iter().zip(all().unwrap()) {
            assert_eq!(*file, node.name);
            assert!(node.link.rate.0 > 0.0 && node.network.0 > 0.0, "{file}");
            assert!(node.facts.iter().all(|(_, _, source)| source.len() > 10), "{file}");
        }
    }

    #[test]
    fn a_misspelt_node_gets_close_names() {
        let error = need("dgx-h1000").unwrap_err().to_string();
        assert!(error.contains("did you mean `dgx-h100`"), "{error}");
        assert!(find("aws-p5").is_some());
    }
}
