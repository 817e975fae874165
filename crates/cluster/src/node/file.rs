//! Reads a node file: TOML text to checked figures, then to a complete node with every default stated.

use super::{Assumption, NetworkKind, Node, Topology};
use crate::ClusterError;
use crate::link::{Link, LinkKind};
use preflop_core::gpu::catalog;
use preflop_core::units::BytesPerSecond;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A number, bare or with its source.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Figure {
    /// A bare number.
    Bare(f64),
    /// A number that says where it comes from.
    Sourced {
        /// The number.
        value: f64,
        /// A key of `[sources]`, or the source itself.
        source: String,
        /// Anything a reader should know.
        #[serde(default)]
        note: Option<String>,
        /// When that held.
        #[serde(default)]
        date: Option<String>,
    },
}

impl Figure {
    /// The number.
    pub fn value(&self) -> f64 {
        match self {
            Self::Bare(value) | Self::Sourced { value, .. } => *value,
        }
    }

    /// Where it comes from, spelled out, with its note.
    pub fn source(&self, sources: &BTreeMap<String, String>) -> String {
        match self {
            Self::Bare(_) => "this file: no source given".to_string(),
            Self::Sourced { source, note, date, .. } => {
                let mut text = sources.get(source).unwrap_or(source).clone();
                for part in [note, date].into_iter().flatten() {
                    text.push_str("; ");
                    text.push_str(part);
                }
                text
            }
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inside {
    topology: Topology,
    p2p: Option<bool>,
    #[serde(rename = "bus_GBps", default)]
    bus: BTreeMap<String, f64>,
    #[serde(default)]
    links: Vec<[u64; 3]>,
    link: Option<String>,
    link_gbs: Option<Figure>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outside {
    nics: Option<Figure>,
    nic_gbs: Option<Figure>,
    kind: Option<NetworkKind>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    cores: Option<Figure>,
    dram_gbs: Option<Figure>,
}

/// A node file after checking: no defaults yet.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeFile {
    #[serde(skip)]
    file: String,
    name: String,
    title: Option<String>,
    gpu: String,
    gpus: u64,
    #[serde(default)]
    virtual_machine: bool,
    #[serde(default)]
    sources: BTreeMap<String, String>,
    inside: Inside,
    outside: Option<Outside>,
    #[serde(default)]
    host: Host,
}

/// Largest node that is believed.
const MAX_GPUS: u64 = 1 << 12;

/// What a TOML reader said, on one line.
pub(crate) fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

/// Parses a node file. `file` names it in messages.
pub fn parse(text: &str, file: &str) -> Result<NodeFile, ClusterError> {
    let mut node: NodeFile = toml::from_str(text)
        .map_err(|e| ClusterError::File { file: file.to_string(), problem: one_line(&e, text) })?;
    node.file = file.to_string();
    node.check()?;
    Ok(node)
}

impl NodeFile {
    fn wrong(&self, problem: impl Into<String>) -> ClusterError {
        ClusterError::File { file: self.file.clone(), problem: problem.into() }
    }

    fn check(&self) -> Result<(), ClusterError> {
        if self.gpus == 0 || self.gpus > MAX_GPUS {
            return Err(self.wrong(format!("`gpus` is {}; it must be from 1 to {MAX_GPUS}", self.gpus)));
        }
        let outside = self.outside.as_ref();
        let figures = [
            ("outside.nics", outside.and_then(|o| o.nics.as_ref()), 0.0, 1e4),
            ("outside.nic_gbs", outside.and_then(|o| o.nic_gbs.as_ref()), 1e-3, 1e5),
            ("inside.link_gbs", self.inside.link_gbs.as_ref(), 0.1, 1e5),
            ("host.cores", self.host.cores.as_ref(), 1.0, 1e6),
            ("host.dram_gbs", self.host.dram_gbs.as_ref(), 1.0, 1e6),
        ];
        for (key, figure, low, high) in figures {
            if let Some(value) = figure.map(Figure::value).filter(|v| !(*v >= low && *v <= high)) {
                return Err(self.wrong(format!("`{key}` is {value}; it must be from {low} to {high}")));
            }
        }
        for (n, rate) in &self.inside.bus {
            let count: Option<u64> = n.parse().ok().filter(|n| (2..=self.gpus).contains(n));
            if count.is_none() || !(1e-3..1e6).contains(rate) {
                return Err(self.wrong(format!(
                    "`inside.bus_GBps` has `{n} = {rate}`; it maps 2 to {} GPUs to GB/s",
                    self.gpus
                )));
            }
        }
        let outside = |l: &&[u64; 3]| l[0] >= self.gpus || l[1] >= self.gpus || l[0] == l[1];
        if let Some([a, b, _]) = self.inside.links.iter().find(outside) {
            return Err(self.wrong(format!(
                "`inside.links` joins GPU {a} and GPU {b}; GPUs are 0 to {}",
                self.gpus - 1
            )));
        }
        if self.inside.topology == Topology::Mesh && self.inside.links.is_empty() {
            return Err(self.wrong("a mesh needs `inside.links`: [GPU, GPU, number of links] for each pair"));
        }
        if let Some(kind) = self.inside.link.as_ref().filter(|k| LinkKind::from_name(k).is_none()) {
            let known: Vec<&str> = LinkKind::ALL.iter().map(|k| k.name()).collect();
            return Err(self.wrong(format!("`inside.link` is `{kind}`; known: {}", known.join(", "))));
        }
        Ok(())
    }

    /// The node's GPU by name, for shells that read GPU files themselves.
    pub fn gpu(&self) -> &str {
        &self.gpu
    }

    /// The node with the GPU of the catalogue.
    pub fn complete(self) -> Result<Node, ClusterError> {
        let gpu = catalog::find(&self.gpu)
            .map_err(|e| ClusterError::Gpu { file: self.file.clone(), problem: e.to_string() })?;
        Ok(self.complete_with(gpu))
    }

    /// The node with this GPU.
    pub fn complete_with(self, gpu: preflop_core::Gpu) -> Node {
        let mut assumptions = Vec::new();
        let mut assume = |key: &str, value: String, why: &str| {
            assumptions.push(Assumption { key: key.to_string(), value, why: why.to_string() });
        };
        let inside = &self.inside;
        let own = if inside.topology == Topology::Pcie { Link::host(&gpu) } else { Link::of(&gpu) };
        let kind = inside.link.as_deref().and_then(LinkKind::from_name).unwrap_or_else(|| {
            assume("inside.link", own.kind.name().to_string(), "the GPU's own link");
            own.kind
        });
        let rate = inside.link_gbs.as_ref().map_or_else(
            || {
                assume("inside.link_gbs", format!("{}", own.rate.gbs()), "the GPU's own link, one direction");
                own.rate
            },
            |f| BytesPerSecond::from_gbs(f.value()),
        );
        let p2p = inside.p2p.unwrap_or_else(|| {
            let p2p = inside.topology != Topology::Pcie;
            assume(
                "inside.p2p",
                p2p.to_string(),
                "links give peer access; buses often do not, and a wrong `true` is the dearer error",
            );
            p2p
        });
        let outside = self.outside.as_ref();
        let nics = outside.and_then(|o| o.nics.as_ref()).map_or_else(
            || {
                assume("outside.nics", "0".to_string(), "the node stands alone");
                0.0
            },
            Figure::value,
        );
        let nic = outside.and_then(|o| o.nic_gbs.as_ref()).map_or_else(
            || {
                if nics > 0.0 {
                    assume("outside.nic_gbs", "12.5".to_string(), "one port of 100 Gb/s");
                }
                12.5
            },
            Figure::value,
        );
        let network_kind = outside.and_then(|o| o.kind).unwrap_or_else(|| {
            assume("outside.kind", "ethernet".to_string(), "the slowest, so that no plan rests on hope");
            NetworkKind::Ethernet
        });
        let host_cores = self.host.cores.as_ref().map_or_else(
            || {
                assume("host.cores", format!("{}", 8 * self.gpus), "eight for each GPU");
                8.0 * self.gpus as f64
            },
            Figure::value,
        );
        let host_dram = self.host.dram_gbs.as_ref().map_or_else(
            || {
                assume(
                    "host.dram_gbs",
                    "300".to_string(),
                    "two sockets of eight DDR4 channels; offload uses it",
                );
                300.0
            },
            Figure::value,
        );
        let figures = [
            ("inside.link_gbs", inside.link_gbs.as_ref()),
            ("outside.nics", outside.and_then(|o| o.nics.as_ref())),
            ("outside.nic_gbs", outside.and_then(|o| o.nic_gbs.as_ref())),
            ("host.cores", self.host.cores.as_ref()),
            ("host.dram_gbs", self.host.dram_gbs.as_ref()),
        ];
        let facts = figures
            .into_iter()
            .filter_map(|(key, f)| {
                f.map(|f| (key.to_string(), format!("{}", f.value()), f.source(&self.sources)))
            })
            .collect();
        let bus = inside
            .bus
            .iter()
            .filter_map(|(n, gbs)| Some((n.parse().ok()?, BytesPerSecond::from_gbs(*gbs))))
            .collect();
        Node {
            title: self.title.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            gpus: self.gpus,
            virtual_machine: self.virtual_machine,
            topology: inside.topology,
            link: Link { kind, rate },
            p2p,
            bus,
            links: inside.links.iter().map(|l| (l[0], l[1], l[2])).collect(),
            network: BytesPerSecond::from_gbs(nics * nic),
            nics: nics as u64,
            network_kind,
            host_cores,
            host_dram: BytesPerSecond::from_gbs(host_dram),
            facts,
            assumptions,
            gpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = \"box\"\ngpu = \"l40s\"\ngpus = 4\n[inside]\ntopology = \"pcie\"\n";

    #[test]
    fn gaps_are_filled_and_named() {
        let node = parse(SMALL, "box.toml").unwrap().complete().unwrap();
        assert!(!node.p2p && node.network.0 == 0.0);
        let keys: Vec<&str> = node.assumptions.iter().map(|a| a.key.as_str()).collect();
        for key in ["inside.link", "inside.p2p", "outside.nics", "host.cores"] {
            assert!(keys.contains(&key), "{key}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, said) in [
            ("gpus = 0\n[inside]\ntopology = \"pcie\"", "`gpus` is 0"),
            ("gpus = 4\nfoo = 1", "unknown field `foo`"),
            ("gpus = 4", "missing field `inside`"),
            ("gpus = 4\n[inside]\ntopology = \"ring\"", "unknown variant `ring`"),
            ("gpus = 4\n[inside]\ntopology = \"mesh\"", "a mesh needs"),
            ("gpus = 4\n[inside]\ntopology = \"pcie\"\nlinks = [[0, 9, 1]]", "GPU 9"),
            ("gpus = 4\n[inside]\ntopology = \"pcie\"\n[outside]\nnic_gbs = -1", "`outside.nic_gbs` is -1"),
            ("gpus = 4\n[inside]\ntopology = \"pcie\"\nbus_GBps = { 9 = 1.0 }", "`inside.bus_GBps`"),
        ] {
            let text = format!("name = \"box\"\ngpu = \"l40s\"\n{text}\n");
            let error = parse(&text, "box.toml").unwrap_err().to_string();
            assert!(
                error.contains(said) && error.starts_with("box.toml") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
