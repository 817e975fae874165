//! Collectives: how long a group of GPUs takes to reduce, gather, scatter, exchange or send so many bytes.
//!
//! Sizes follow nccl-tests: the whole vector of an all-reduce, the gathered vector, the vector before scattering, all that
//! one GPU sends in an all-to-all. `lines` has the form inside a switched node, `bus` the one of meshes and host
//! buses, `network` the one between nodes, `fitted` their constants, `log` reads what nccl-tests prints.

mod bus;
pub mod fitted;
pub mod lines;
pub mod log;

pub mod network;

pub use fitted::Fitted;

use crate::Cluster;
use crate::interval::LogInterval;
use crate::node::Topology;
use serde::Serialize;

/// Which collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every GPU ends with the sum of all.
    AllReduce,
    /// Every GPU ends with all parts.
    AllGather,
    /// Every GPU ends with its part of the sum.
    ReduceScatter,
    /// Every GPU sends each other a part.
    AllToAll,
    /// One GPU sends to one other.
    SendRecv,
    /// One GPU sends to all.
    Broadcast,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::SendRecv,
        Self::Broadcast,
    ];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::SendRecv => "send-recv",
            Self::Broadcast => "broadcast",
        }
    }

    /// The kind of that name; underscores count as dashes.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_lowercase().replace('_', "-");
        Self::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Bytes that a link carries over bytes of the message: what nccl-tests calls the bus factor.
    ///
    /// `2(n-1)/n` for all-reduce, `(n-1)/n` for all-gather, reduce-scatter and all-to-all, 1 for the others.
    pub fn factor(self, n: f64) -> f64 {
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            Self::SendRecv | Self::Broadcast => 1.0,
        }
    }

    /// Steps of a ring.
    pub fn steps(self, n: f64) -> f64 {
        match self {
            Self::AllReduce => 2.0 * (n - 1.0),
            Self::SendRecv => 1.0,
            _ => n - 1.0,
        }
    }
}

/// The GPUs that take part: how many, and how many of them share a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// All members.
    pub gpus: u64,
    /// Members in each node.
    pub per_node: u64,
}

impl Group {
    /// Members that stand `stride` ranks apart, on nodes of `node` GPUs: the next `stride` ranks belong to other groups.
    ///
    /// A group that does not divide a node evenly counts with the fewest members a node has.
    pub fn strided(gpus: u64, stride: u64, node: u64) -> Self {
        let per_node = (node / stride.max(1)).clamp(1, gpus.max(1));
        let per_node = (1..=per_node).rev().find(|p| gpus.is_multiple_of(*p)).unwrap_or(1);
        Self { gpus, per_node }
    }

    /// Nodes it spans.
    pub fn nodes(self) -> u64 {
        self.gpus.div_ceil(self.per_node.max(1))
    }
}

/// What limits a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Starting and passing on.
    Latency,
    /// Links inside a node.
    Link,
    /// The network between nodes.
    Network,
}

impl Bound {
    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Link => "link",
            Self::Network => "network",
        }
    }
}

/// What we say about one collective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Seconds.
    pub time: f64,
    /// Lower and upper end of the 90 % interval, as logs.
    pub interval: LogInterval,
    /// Bytes per second over the slowest link, as nccl-tests counts.
    pub bus: f64,
    /// What limits it.
    pub bound: Bound,
}

/// Where a prediction of seconds comes from before its interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    /// Seconds.
    pub time: f64,
    /// Of which for starting and passing on.
    pub latency: f64,
    pub bound: Bound,
    pub interval: LogInterval,
}

/// Predicts collectives. Made once; it holds constants only.
#[derive(Debug, Clone)]
pub struct Collectives {
    fitted: Fitted,
}

impl Default for Collectives {
    fn default() -> Self {
        Self::embedded()
    }
}

impl Collectives {
    /// With the constants that ship with the tool.
    pub fn embedded() -> Self {
        Self { fitted: Fitted::embedded() }
    }

    /// With other constants.
    pub fn new(fitted: Fitted) -> Self {
        Self { fitted }
    }

    /// The constants.
    pub fn fitted(&self) -> &Fitted {
        &self.fitted
    }

    /// Time of one collective of `bytes` in a group of the cluster. A group of one moves nothing.
    pub fn predict(&self, kind: Kind, group: Group, bytes: f64, cluster: &Cluster) -> Prediction {
        if group.gpus < 2 || bytes <= 0.0 {
            let interval = LogInterval { low: 0.0, high: 0.0 };
            return Prediction { time: 0.0, interval, bus: 0.0, bound: Bound::Latency };
        }
        let draft = if group.nodes() > 1 {
            network::time(kind, group, bytes, cluster, &self.fitted)
        } else {
            self.inside(kind, group.gpus as f64, bytes, cluster)
        };
        Prediction {
            time: draft.time,
            interval: draft.interval,
            bus: bytes * kind.factor(group.gpus as f64) / draft.time,
            bound: if draft.latency > 0.5 * draft.time { Bound::Latency } else { draft.bound },
        }
    }

    fn inside(&self, kind: Kind, n: f64, bytes: f64, cluster: &Cluster) -> Draft {
        let node = &cluster.node;
        let measured = node.bus.iter().find(|(count, _)| *count == n as u64);
        if let Some((_, rate)) = measured {
            return bus::measured(kind, n, bytes, rate.0);
        }
        match node.topology {
            Topology::Switched => lines::time(kind, n, bytes, node, &self.fitted),
            Topology::Pairs if n <= 2.0 => lines::time(kind, n, bytes, node, &self.fitted),
            Topology::Mesh => bus::mesh(kind, n, bytes, node),
            Topology::Pcie | Topology::Pairs => bus::pcie(kind, n, bytes, node, &self.fitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(Kind::AllReduce.factor(8.0), 1.75);
        assert_eq!(Kind::AllGather.factor(8.0), 0.875);
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn groups_by_stride() {
        // tp 4 on nodes of 8: a data-parallel group has two members in each node.
        assert_eq!(Group::strided(16, 4, 8), Group { gpus: 16, per_node: 2 });
        assert_eq!(Group::strided(4, 8, 8).nodes(), 4);
        assert_eq!(Group::strided(8, 1, 8).nodes(), 1);
        assert_eq!(Group::strided(2, 1, 8), Group { gpus: 2, per_node: 2 });
    }

    #[test]
    fn more_bytes_never_take_less_time() {
        let collectives = Collectives::embedded();
        for name in
            ["dgx-a100x4", "dgx-h100", "gb200-nvl72", "l40s-8", "dgx-1-v100", "8xrtx-4090", "aws-p5x16"]
        {
            let cluster = Cluster::named(name).unwrap();
            for kind in Kind::ALL {
                let group = Group { gpus: cluster.gpus(), per_node: cluster.node.gpus };
                let mut before = 0.0;
                for power in 9..34 {
                    let p = collectives.predict(kind, group, f64::from(power).exp2(), &cluster);
                    assert!(p.time.is_finite() && p.time >= before * 0.999, "{name} {kind:?} 2^{power}");
                    before = p.time;
                }
            }
        }
    }
}
