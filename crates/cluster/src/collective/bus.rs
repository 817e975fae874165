//! Inside a node without switches: a mesh of links, or the host's bus.

use super::{Bound, Draft, Fitted, Kind};
use crate::interval::LogInterval;
use crate::link::LinkKind;
use crate::node::Node;
use preflop_core::units::math::Elementary as _;

/// Seconds to start a ring over a bus or mesh and to pass on one step; as the Simple protocol of NCCL's tables has it.
const START: f64 = 20e-6;
const STEP: f64 = 3e-6;
/// Share of a link's rate that rings hold on a mesh.
const MESH_SHARE: f64 = 0.85;

fn ring(kind: Kind, n: f64, bytes: f64, bus: f64, interval: LogInterval) -> Draft {
    let latency = START + STEP * kind.steps(n);
    Draft { time: latency + bytes * kind.factor(n) / bus, latency, bound: Bound::Link, interval }
}

/// A node file's own measured bus bandwidth.
pub(super) fn measured(kind: Kind, n: f64, bytes: f64, bus: f64) -> Draft {
    ring(kind, n, bytes, bus, LogInterval::factor(1.15))
}

/// A mesh: every link that a GPU has to other members carries a ring, so the member with the fewest rules.
///
/// ```text
/// bus = 0.85 * links * B / L
/// ```
///
/// Where `links` is the smallest number of links of a member to other members, L the links of a GPU in all, and B its
/// bandwidth over all of them. A member without any goes through the host.
pub(super) fn mesh(kind: Kind, n: f64, bytes: f64, node: &Node) -> Draft {
    let members = n as u64;
    let degree = |gpu: u64, among: u64| -> u64 {
        let joins = |l: &&(u64, u64, u64)| (l.0 == gpu && l.1 < among) || (l.1 == gpu && l.0 < among);
        node.links.iter().filter(joins).map(|l| l.2).sum()
    };
    let all = (0..node.gpus).map(|g| degree(g, node.gpus)).max().unwrap_or(1).max(1);
    let fewest = (0..members).map(|g| degree(g, members)).min().unwrap_or(0);
    let bus = if fewest == 0 {
        0.5 * node.gpu.host.0
    } else {
        MESH_SHARE * fewest as f64 * node.link.rate.0 / all as f64
    };
    ring(kind, n, bytes, bus, LogInterval::factor(1.5))
}

/// The host's bus. No law from datasheets holds: defaults by what was measured, known to a factor of two.
pub(super) fn pcie(kind: Kind, n: f64, bytes: f64, node: &Node, fitted: &Fitted) -> Draft {
    let host = crate::link::Link::host(&node.gpu);
    let rate = fitted.pcie(host.kind, node.p2p, !node.gpu.peer_access);
    let bus = rate * (n / 2.0).power(fitted.pcie_exponent(node.p2p));
    // A pair on a bridge inside a larger group helps little: the slowest hop is the bus.
    ring(kind, n, bytes, bus.max(1e6), LogInterval::factor(2.0))
}

/// The generation of the host's bus, for tables.
pub(super) fn generation(kind: LinkKind) -> usize {
    match kind {
        LinkKind::Pcie3 => 0,
        LinkKind::Pcie4 => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cluster;
    use crate::collective::Collectives;

    #[test]
    fn a_cube_mesh_has_six_links_for_eight_and_one_for_a_pair() {
        let cluster = Cluster::named("dgx-1-v100").unwrap();
        let t = |n: f64| mesh(Kind::AllReduce, n, 1e9, &cluster.node).time;
        // 8 GPUs: 0.85 * 150 GB/s; 2 GPUs (0 and 1 share one link of six): 0.85 * 25 GB/s
        assert!((t(8.0) - (20e-6 + 42e-6 + 1.75 / 127.5)).abs() < 1e-9);
        assert!((t(2.0) - (20e-6 + 6e-6 + 1.0 / 21.25)).abs() < 1e-9);
    }

    #[test]
    fn peer_access_is_worth_much() {
        let collectives = Collectives::embedded();
        let group = super::super::Group { gpus: 8, per_node: 8 };
        let with = Cluster::named("l40s-8").unwrap();
        let mut without = with.clone();
        without.node.p2p = false;
        let t = |c: &Cluster| collectives.predict(Kind::AllReduce, group, 1e9, c).time;
        assert!(t(&without) > 2.0 * t(&with));
    }
}
