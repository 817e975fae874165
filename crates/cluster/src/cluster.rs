//! A cluster: so many nodes of one kind and the fabric between them. By name, by file, or as `NODExCOUNT`.

use crate::ClusterError;
use crate::node::{Assumption, Figure, Node, Topology, catalog};
use preflop_core::Gpu;
use preflop_core::gpu::catalog as gpus;
use preflop_core::units::BytesPerSecond;
use serde::Deserialize;

/// Nodes and what joins them.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// For people.
    pub name: String,
    /// One node; all are alike.
    pub node: Node,
    /// How many.
    pub count: u64,
    /// Node bandwidth over what the spine gives each node when all talk at once; 1 is a full fabric.
    pub oversubscription: f64,
    /// Microseconds that the file gives one hop between nodes; the fabric's own figure where it does not.
    pub hop_us: Option<f64>,
    /// Does the n-th adapter of every node share a leaf switch?
    pub rail_optimized: bool,
    /// Price of a node for one hour: dollars, source.
    pub node_hour_usd: Option<(f64, String)>,
    /// Defaults taken beyond the node's.
    pub assumptions: Vec<Assumption>,
    /// Names and counts of its nodes where they are of several kinds; empty where all are alike.
    pub kinds: Vec<(String, u64)>,
}

/// Most nodes that are believed.
pub const MAX_NODES: u64 = 1 << 20;
/// Dearest hour of a node that is believed.
const MAX_NODE_HOUR_USD: f64 = 1e9;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default = "one")]
    count: u64,
}

fn one() -> u64 {
    1
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FabricTable {
    oversubscription: Option<f64>,
    hop_us: Option<f64>,
    rail_optimized: Option<bool>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceTable {
    node_hour_usd: Option<Figure>,
}

/// A cluster file after reading; its node type may be the path of a node file, which the shell reads.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    name: String,
    nodes: Vec<Entry>,
    #[serde(default)]
    fabric: FabricTable,
    #[serde(default)]
    price: PriceTable,
}

impl ClusterFile {
    /// Parses a cluster file. `file` names it in messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, ClusterError> {
        let wrong = |problem: String| ClusterError::File { file: file.to_string(), problem };
        let cluster: Self = toml::from_str(text).map_err(|e| {
            let message = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
            wrong(message)
        })?;
        match cluster.nodes.as_slice() {
            [] => {
                return Err(wrong(
                    "`nodes` is empty; write `nodes = [{ type = \"dgx-h100\", count = 4 }]`".into(),
                ));
            }
            entries => {
                if let Some(entry) = entries.iter().find(|e| e.count == 0 || e.count > MAX_NODES) {
                    return Err(wrong(format!(
                        "`count` is {}; it must be from 1 to {MAX_NODES}",
                        entry.count
                    )));
                }
            }
        }
        let over = cluster.fabric.oversubscription.unwrap_or(1.0);
        if !(1.0..=1000.0).contains(&over) {
            return Err(wrong(format!("`fabric.oversubscription` is {over}; it must be from 1 to 1000")));
        }
        if let Some(hop) = cluster.fabric.hop_us.filter(|h| !(0.0..=1e5).contains(h)) {
            return Err(wrong(format!("`fabric.hop_us` is {hop}; it must be from 0 to 100000")));
        }
        let price = cluster.price.node_hour_usd.as_ref().map(Figure::value);
        if let Some(usd) = price.filter(|usd| !(0.0..=MAX_NODE_HOUR_USD).contains(usd)) {
            return Err(wrong(format!(
                "`price.node_hour_usd` is {usd}; it must be from 0 to {MAX_NODE_HOUR_USD}"
            )));
        }
        Ok(cluster)
    }

    /// The types of its nodes: names of the catalogue or paths of node files.
    pub fn node_types(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|e| e.kind.as_str())
    }

    /// The cluster of these nodes, one for each type. Nodes of several kinds count as the slowest of them in every respect: an iteration waits
    /// for it.
    pub fn complete(self, nodes: Vec<Node>, file: &str) -> Result<Cluster, ClusterError> {
        let wrong = |problem: String| ClusterError::File { file: file.to_string(), problem };
        let kinds: Vec<(String, u64)> =
            nodes.iter().zip(&self.nodes).map(|(n, e)| (n.name.clone(), e.count)).collect();
        let count = kinds.iter().fold(0_u64, |all, (_, n)| all.saturating_add(*n));
        if count > MAX_NODES {
            return Err(wrong(format!("{count} nodes in all; at most {MAX_NODES} are believed")));
        }
        let mut nodes = nodes.into_iter();
        let first = nodes.next().ok_or_else(|| wrong("`nodes` is empty".into()))?;
        let node = nodes.try_fold(first, |slowest, next| {
            if next.gpus == slowest.gpus {
                return Ok(slowest.slowest_with(next));
            }
            Err(wrong(format!(
                "nodes of {} and of {} GPUs in one cluster: groups of ranks would not be alike; ask for `{}` alone",
                slowest.gpus, next.gpus, kinds[0].0
            )))
        })?;
        let none = std::collections::BTreeMap::new();
        let mut cluster = Cluster::of(node, count);
        if kinds.len() > 1 {
            let all: Vec<String> = kinds.iter().map(|(name, n)| format!("{n} {name}")).collect();
            cluster.assumptions.push(Assumption {
                key: "nodes".to_string(),
                value: all.join(" + "),
                why: "an iteration waits for the slowest: every node counts with the slowest GPU, link and network and the least memory of all"
                    .to_string(),
            });
            cluster.kinds = kinds;
        }
        cluster.name = self.name;
        if let Some(over) = self.fabric.oversubscription {
            cluster.oversubscription = over;
            cluster.assumptions.retain(|a| a.key != "fabric.oversubscription");
        }
        if let Some(rails) = self.fabric.rail_optimized {
            cluster.rail_optimized = rails;
            cluster.assumptions.retain(|a| a.key != "fabric.rail_optimized");
        }
        if self.fabric.hop_us.is_some() {
            cluster.hop_us = self.fabric.hop_us;
            cluster.assumptions.retain(|a| a.key != "fabric.hop_us");
        }
        cluster.node_hour_usd = self.price.node_hour_usd.map(|f| (f.value(), f.source(&none)));
        Ok(cluster)
    }
}

/// GPUs on one switch or host: as many as the largest node of the catalogue with such a GPU has, or the usual eight behind a switch and
/// sixteen cards on the bus (two sockets with switches of four slots each).
pub(crate) fn most_in_a_box(gpu: &Gpu, nodes: &[Node]) -> u64 {
    let known = nodes.iter().filter(|n| is_alike(n, gpu)).map(|n| n.gpus).max().unwrap_or(0);
    let usual = if Node::usual(gpu.clone(), 1).topology == Topology::Switched { 8 } else { 16 };
    known.max(usual)
}

/// Has this node the same chip in the same form, with as much memory or not?
pub(crate) fn is_alike(node: &Node, gpu: &Gpu) -> bool {
    node.gpu.chip == gpu.chip && node.gpu.form == gpu.form
}

impl Cluster {
    /// So many of these nodes on a full fabric.
    pub fn of(node: Node, count: u64) -> Self {
        let name = if count == 1 { node.name.clone() } else { format!("{}x{count}", node.name) };
        let assume = |key: &str, value: &str, why: &str| Assumption {
            key: key.to_string(),
            value: value.to_string(),
            why: why.to_string(),
        };
        let assumptions = if count == 1 {
            Vec::new()
        } else {
            vec![
                assume("fabric.oversubscription", "1", "training clusters are built with full spines"),
                assume("fabric.hop_us", "by kind", "as fitted on nccl-tests for this kind of network"),
                assume("fabric.rail_optimized", "true", "the usual wiring of nodes with one adapter per GPU"),
            ]
        };
        Self {
            name,
            node,
            count,
            oversubscription: 1.0,
            hop_us: None,
            rail_optimized: true,
            node_hour_usd: None,
            assumptions,
            kinds: Vec::new(),
        }
    }

    /// A catalogue node, `NODExCOUNT`, or `8xGPU`.
    pub fn named(name: &str) -> Result<Self, ClusterError> {
        let name = name.trim();
        if let Some(node) = catalog::find(name) {
            return Ok(Self::of(node?, 1));
        }
        if let Some((node, count)) = split_count(name)
            && let Some(found) = catalog::find(node)
        {
            return Self::counted(found?, count, name);
        }
        // `8xh100`, and `8xh100x4` for four such boxes.
        if let Some((front, rest)) = name.split_once('x')
            && let Ok(gpus_per_node) = front.parse::<u64>()
        {
            let (gpu, count) = split_count(rest).filter(|(g, _)| gpus::find(g).is_ok()).unwrap_or((rest, 1));
            let gpu = gpus::find(gpu).map_err(|e| ClusterError::Plan(format!("`{name}`: {e}")))?;
            if gpus_per_node == 0 {
                return Err(ClusterError::Plan(format!("`{name}`: a node has at least one GPU")));
            }
            let nodes = catalog::all()?;
            let most = most_in_a_box(&gpu, &nodes);
            if gpus_per_node > most {
                let several = nodes.iter().find(|n| is_alike(n, &gpu)).map_or(String::new(), |n| {
                    format!(", or `{}x{}` for several", n.name, gpus_per_node.div_ceil(n.gpus))
                });
                return Err(ClusterError::Plan(format!(
                    "`{name}`: servers with `{0}` have at most {most}: take `{most}x{0}`{several}",
                    gpu.name
                )));
            }
            return Self::counted(Node::usual(gpu, gpus_per_node), count, name);
        }
        Err(catalog::unknown(split_count(name).map_or(name, |(node, _)| node)))
    }

    fn counted(node: Node, count: u64, name: &str) -> Result<Self, ClusterError> {
        if count == 0 || count > MAX_NODES {
            return Err(ClusterError::Plan(format!(
                "`{name}`: a cluster has 1 to {MAX_NODES} nodes, not {count}"
            )));
        }
        Ok(Self::of(node, count))
    }

    /// All GPUs.
    pub fn gpus(&self) -> u64 {
        self.node.gpus.saturating_mul(self.count)
    }

    /// Bandwidth of a node into the fabric when all nodes talk.
    pub fn network(&self) -> BytesPerSecond {
        self.node.network / self.oversubscription
    }

    /// The same cluster cut down or grown to `gpus`, or why that is no such cluster.
    pub fn with_gpus(mut self, wanted: u64) -> Result<Self, ClusterError> {
        let g = self.node.gpus;
        if wanted == 0 {
            return Err(ClusterError::Plan("`--gpus 0`: at least one GPU is needed".into()));
        }
        if wanted > self.gpus() {
            return Err(ClusterError::Plan(format!(
                "{wanted} GPUs in `{}`, which has {} ({} of {g}): ask for {} or for `{}x{}`",
                self.name,
                self.gpus(),
                if self.count == 1 { "1 node".to_string() } else { format!("{} nodes", self.count) },
                self.gpus(),
                self.node.name,
                wanted.div_ceil(g)
            )));
        }
        if wanted > g && !wanted.is_multiple_of(g) {
            let down = wanted / g * g;
            return Err(ClusterError::Plan(format!(
                "{wanted} GPUs do not fill nodes of {g}: the nearest that do are {down} and {}",
                down + g
            )));
        }
        self.count = wanted.div_ceil(g);
        if wanted < g {
            // A part of a node: its bus figures and adapters stay, the group is smaller.
            self.node.gpus = wanted;
        }
        self.name = if self.count == 1 {
            format!("{wanted} GPUs of {}", self.node.name)
        } else {
            format!("{}x{}", self.node.name, self.count)
        };
        Ok(self)
    }
}

/// `dgx-h100x4` as its name and count.
fn split_count(name: &str) -> Option<(&str, u64)> {
    let (node, count) = name.rsplit_once('x')?;
    if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((node, count.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_counts_and_plain_gpus() {
        let c = Cluster::named("dgx-h100x4").unwrap();
        assert_eq!((c.count, c.gpus(), c.node.name.as_str()), (4, 32, "dgx-h100"));
        assert_eq!(Cluster::named("gb200-nvl72").unwrap().gpus(), 72);
        assert_eq!(Cluster::named("8xh100").unwrap().gpus(), 8);
        assert_eq!(Cluster::named("4xrtx-4090x2").unwrap().gpus(), 8);
        assert_eq!(Cluster::named("rtx-4090-8").unwrap().gpus(), 8);
        for (bad, said) in [
            ("dgx-h100x0", "1 to 1048576 nodes"),
            ("dgx-h1000x4", "did you mean `dgx-h100`"),
            ("8xh1000", "unknown GPU"),
            ("8xl560-sxm\na", "unknown GPU `l560-sxm a`"),
            ("", "unknown cluster"),
            ("dgx-h100x99999999999999999999", "nodes, not"),
        ] {
            let error = Cluster::named(bad).unwrap_err().to_string();
            assert!(error.contains(said), "{bad}: {error}");
        }
    }

    #[test]
    fn a_price_is_a_number_of_dollars() {
        for bad in ["inf", "nan", "-1", "1e300", "{ value = inf, source = \"offer\" }"] {
            let text = format!(
                "name = \"c\"\nnodes = [{{ type = \"dgx-h100\" }}]\n[price]\nnode_hour_usd = {bad}\n"
            );
            let error = ClusterFile::parse(&text, "c.toml").unwrap_err().to_string();
            assert!(error.contains("`price.node_hour_usd`"), "{bad}: {error}");
        }
    }

    #[test]
    fn nine_gpus_do_not_fill_nodes_of_eight() {
        let c = Cluster::named("dgx-h100x4").unwrap();
        let error = c.clone().with_gpus(9).unwrap_err().to_string();
        assert!(error.contains("8 and 16"), "{error}");
        assert!(c.clone().with_gpus(64).unwrap_err().to_string().contains("`dgx-h100x8`"));
        assert_eq!(c.clone().with_gpus(4).unwrap().gpus(), 4);
        assert_eq!(c.with_gpus(16).unwrap().count, 2);
    }

    fn mixed(types: &[(&str, u64)]) -> Result<Cluster, ClusterError> {
        let entries: Vec<String> =
            types.iter().map(|(name, n)| format!("{{ type = \"{name}\", count = {n} }}")).collect();
        let text = format!("name = \"mixed\"\nnodes = [{}]\n", entries.join(", "));
        let file = ClusterFile::parse(&text, "mixed.toml")?;
        let nodes = file.node_types().map(|n| catalog::need(n).unwrap()).collect();
        file.complete(nodes, "mixed.toml")
    }

    #[test]
    fn mixed_nodes_are_as_slow_as_the_slowest_in_every_respect() {
        let c = mixed(&[("dgx-h100", 3), ("aws-p4d-24xlarge", 1)]).unwrap();
        let slow = catalog::need("aws-p4d-24xlarge").unwrap();
        assert_eq!((c.count, c.gpus()), (4, 32));
        assert_eq!(c.node.gpu.name, slow.gpu.name);
        assert_eq!((c.node.network.0, c.node.link.rate.0), (slow.network.0, slow.link.rate.0));
        assert!(
            c.assumptions.iter().any(|a| a.key == "nodes" && a.value == "3 dgx-h100 + 1 aws-p4d-24xlarge")
        );
        // Neither order matters, nor that the slower network belongs to the faster GPU.
        let c = mixed(&[("gcp-a3-highgpu-8g", 1), ("dgx-a100", 1)]).unwrap();
        let (tcpx, a100) = (catalog::need("gcp-a3-highgpu-8g").unwrap(), catalog::need("dgx-a100").unwrap());
        assert_eq!(c.node.gpu.name, a100.gpu.name);
        assert_eq!(c.node.network.0, tcpx.network.0.min(a100.network.0));
        let error = mixed(&[("dgx-h100", 1), ("l40s-4", 1)]).unwrap_err().to_string();
        assert!(error.contains("nodes of 8 and of 4 GPUs"), "{error}");
    }

    #[test]
    fn a_file_says_nodes_fabric_and_price() {
        let text = "name = \"mine\"\nnodes = [{ type = \"dgx-a100\", count = 32 }]\n[fabric]\noversubscription = 2.0\n\
            [price]\nnode_hour_usd = { value = 30, source = \"offer\", date = \"2026-11-01\" }\n";
        let file = ClusterFile::parse(text, "mine.toml").unwrap();
        let nodes = file.node_types().map(|n| catalog::need(n).unwrap()).collect();
        let c = file.complete(nodes, "mine.toml").unwrap();
        assert_eq!((c.gpus(), c.network().gbs()), (256, 100.0));
        assert_eq!(c.node_hour_usd.unwrap().1, "offer; 2026-11-01");
        assert!(ClusterFile::parse("name = \"x\"\nnodes = []", "x.toml").is_err());
    }
}
