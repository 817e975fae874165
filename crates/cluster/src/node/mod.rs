//! A node: the GPUs that share a fast link, how they are joined, and what leads out of the box.

pub mod catalog;
mod file;

pub use file::{Figure, NodeFile, parse};

use crate::link::Link;
use preflop_core::units::BytesPerSecond;
use preflop_core::{Dtype, Gpu};
use serde::{Deserialize, Serialize};

/// How the GPUs of a node are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Every GPU reaches every other at full rate through switches.
    Switched,
    /// Links between some pairs, one or several each.
    Mesh,
    /// The host's bus.
    Pcie,
    /// Pairs on bridges, the host's bus between pairs.
    Pairs,
}

impl Topology {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Switched => "switched",
            Self::Mesh => "mesh",
            Self::Pcie => "pcie",
            Self::Pairs => "pairs",
        }
    }
}

/// What leads out of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// InfiniBand with remote direct memory access.
    Infiniband,
    /// The same over Ethernet.
    Roce,
    /// AWS's adapter.
    Efa,
    /// Sockets with direct access to GPU memory.
    Tcp,
    /// Plain Ethernet through the host.
    Ethernet,
}

impl NetworkKind {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Infiniband => "infiniband",
            Self::Roce => "roce",
            Self::Efa => "efa",
            Self::Tcp => "tcp",
            Self::Ethernet => "ethernet",
        }
    }
}

/// A figure that the file lacked, what was taken, and why.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumption {
    /// Section and key.
    pub key: String,
    /// What was taken.
    pub value: String,
    /// Why.
    pub why: String,
}

/// A node, complete.
#[derive(Debug, Clone)]
pub struct Node {
    /// Lower-case name with dashes.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// The GPU.
    pub gpu: Gpu,
    /// GPUs of one node.
    pub gpus: u64,
    /// Is it a virtual machine? The collectives of the fit ran on whole machines: on another's virtual one they lie further off.
    pub virtual_machine: bool,
    /// How they are joined.
    pub topology: Topology,
    /// The link of one GPU inside the node.
    pub link: Link,
    /// Can a GPU read another's memory directly?
    pub p2p: bool,
    /// Measured bus bandwidth by number of GPUs; it overrides the model.
    pub bus: Vec<(u64, BytesPerSecond)>,
    /// Links between pairs of a mesh: GPU, GPU, how many.
    pub links: Vec<(u64, u64, u64)>,
    /// All network adapters of a node together, one direction; zero where the node stands alone.
    pub network: BytesPerSecond,
    /// Network adapters.
    pub nics: u64,
    /// Their kind.
    pub network_kind: NetworkKind,
    /// Cores of the host.
    pub host_cores: f64,
    /// Memory bandwidth of the host.
    pub host_dram: BytesPerSecond,
    /// Figures of the file with their sources.
    pub facts: Vec<(String, String, String)>,
    /// Defaults taken.
    pub assumptions: Vec<Assumption>,
}

impl Node {
    /// The same node with another GPU: its own link where the node joins GPUs by one.
    #[must_use]
    pub fn with_gpu(mut self, gpu: Gpu) -> Self {
        self.link = match self.topology {
            Topology::Pcie => Link::host(&gpu),
            _ => Link::of(&gpu),
        };
        self.bus.clear();
        self.gpu = gpu;
        self
    }

    /// A node as slow as the slower of two in every respect: what nodes of several kinds do together.
    #[must_use]
    pub fn slowest_with(self, other: Self) -> Self {
        let rate = |n: &Self| n.gpu.sustained_peak(Dtype::Fp16).0;
        let (mut node, other) = if rate(&other) < rate(&self) { (other, self) } else { (self, other) };
        node.gpu.memory.0 = node.gpu.memory.0.min(other.gpu.memory.0);
        let inside = |n: &Self| (n.topology == Topology::Switched, n.link.rate.0);
        if inside(&other) < inside(&node) {
            node.topology = other.topology;
            node.link = other.link;
            node.p2p = other.p2p;
            node.bus = other.bus;
            node.links = other.links;
        }
        if other.network.0 < node.network.0 {
            node.network = other.network;
            node.nics = other.nics;
            node.network_kind = other.network_kind;
        }
        node.virtual_machine |= other.virtual_machine;
        node.host_cores = node.host_cores.min(other.host_cores);
        node.host_dram.0 = node.host_dram.0.min(other.host_dram.0);
        node
    }

    /// A node of `gpus` such GPUs as they are usually built: boards behind switches, cards on the bus.
    pub fn usual(gpu: Gpu, gpus: u64) -> Self {
        let link = Link::of(&gpu);
        let topology = match (link.kind.is_pcie(), gpu.form.as_str()) {
            (true, _) => Topology::Pcie,
            (false, "pcie") => Topology::Pairs,
            _ => Topology::Switched,
        };
        let why = "a usual server with this GPU; name a node or give a file for another".to_string();
        let assume = |key: &str, value: String| Assumption { key: key.to_string(), value, why: why.clone() };
        let assumptions = vec![
            assume("inside.topology", topology.name().to_string()),
            assume("inside.p2p", "true".to_string()),
            assume("outside.nics", "0".to_string()),
        ];
        Self {
            name: format!("{gpus}x{}", gpu.name),
            title: format!("{gpus} x {}", gpu.title),
            gpus,
            virtual_machine: false,
            topology,
            link,
            p2p: true,
            bus: Vec::new(),
            links: Vec::new(),
            network: BytesPerSecond(0.0),
            nics: 0,
            network_kind: NetworkKind::Ethernet,
            host_cores: 8.0 * gpus as f64,
            host_dram: BytesPerSecond::from_gbs(300.0),
            facts: Vec::new(),
            assumptions,
            gpu,
        }
    }
}
