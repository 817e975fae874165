//! Between nodes: a ring over all GPUs, or for all-reduce a tree over nodes, in small messages one of low latency, whichever is faster.
//!
//! ```text
//! ring        r0 + s * ((n - N) * hi + (N - 1) * hn) + S * f / (phi_r * min(W, 0.8 B)),  s = 2 for all-reduce, 1 else
//! tree        t0 + 2 log2(N) * ht + 2 (g - 1) * hi + S / alg
//!             alg = min(phi_2 W if N = 2 and the switch sums (NVLS), phi_t W / 2 else, cap B),  cap = 0.58 with NVLS, 0.33 without
//! low         l0 + 2 log2(N) * ht * 5/14 + 2 (g - 1) * 0.6 us + S / (phi_l * W)
//! all-to-all  a0 + ah * n + S * (n - g) / n / (phi_a * W / g)
//! send-recv   hn + S / (phi_r * min(W / nics shared, ..))
//! ```
//!
//! Where n GPUs on N nodes, g of them in each; S bytes; W the node's adapters together, one direction, less what the spine
//! takes away; B the link inside. Two nodes whose switches sum are special: each byte crosses once each way, so bus bandwidth may
//! exceed W. Without such sums it does not: 190 GB/s over 200 on two DGX A100, and a tensor-parallel group over two of the nodes
//! with 100 GB/s wants all of it.
//! A small all-reduce sends flags with its data (NCCL's protocol LL): its hops are shorter, as NCCL's own table of latencies has them (`hwLat` in `src/graph/tuning.cc`, as recalled:
//! 5 us a hop between nodes against 14 without flags, 0.6 us inside), and its rate is a hundredth.
//! Groups share adapters: while tensor-parallel ranks of a node all run their own data-parallel group, a group with g of the
//! node's G GPUs owns `W * g / G`. That factor is the largest network effect in a plan.

use super::{Bound, Draft, Fitted, Group, Kind, lines};
use crate::Cluster;
use crate::node::NetworkKind;
use preflop_core::units::math::Elementary as _;

/// Constants of one kind of network.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Start of a ring, seconds.
    pub r0: f64,
    /// A step inside a node.
    pub hi: f64,
    /// A step between nodes.
    pub hn: f64,
    /// Share of the adapters that a ring holds.
    pub phi_r: f64,
    /// Start of a tree.
    pub t0: f64,
    /// A level of a tree.
    pub ht: f64,
    /// Share of half the adapters that a tree holds.
    pub phi_t: f64,
    /// Share of the adapters between two nodes.
    pub phi_2: f64,
    /// Start of an all-to-all.
    pub a0: f64,
    /// All-to-all: per GPU.
    pub ah: f64,
    /// All-to-all: share of a GPU's part of the adapters.
    pub phi_a: f64,
    /// Start of a tree of low latency.
    pub l0: f64,
    /// Share of the adapters that it holds.
    pub phi_l: f64,
}

impl Constants {
    /// As a list, for fits.
    pub fn to_array(self) -> [f64; 13] {
        [
            self.r0, self.hi, self.hn, self.phi_r, self.t0, self.ht, self.phi_t, self.phi_2, self.a0,
            self.ah, self.phi_a, self.l0, self.phi_l,
        ]
    }

    /// From a list.
    pub fn from_array(c: [f64; 13]) -> Self {
        let [r0, hi, hn, phi_r, t0, ht, phi_t, phi_2, a0, ah, phi_a, l0, phi_l] = c;
        Self { r0, hi, hn, phi_r, t0, ht, phi_t, phi_2, a0, ah, phi_a, l0, phi_l }
    }
}

/// Share of the link inside a node that a ring through it holds.
const INSIDE_SHARE: f64 = 0.8;
/// Share of the link inside that reductions of a tree hold, with and without sums in the switch.
const CAP_NVLS: f64 = 0.58;
const CAP_PLAIN: f64 = 0.33;

/// A hop between nodes with flags in the data over one without, and seconds of a hop inside with them (NCCL's table).
const LOW_HOP: f64 = 5.0 / 14.0;
const LOW_INSIDE: f64 = 0.6e-6;

/// Adapters that a group owns while its siblings run the same collective.
fn owned(group: Group, cluster: &Cluster) -> f64 {
    let share = group.per_node as f64 / cluster.node.gpus.max(1) as f64;
    let rails = if cluster.rail_optimized { 1.0 } else { 0.85 };
    (cluster.network().0 * share.min(1.0) * rails).max(1e3)
}

/// What is sure of a collective between nodes, by kind of network.
pub(super) fn time(kind: Kind, group: Group, bytes: f64, cluster: &Cluster, fitted: &Fitted) -> Draft {
    let mut c = fitted.network(cluster.node.network_kind);
    if let Some(hop) = cluster.hop_us {
        c.hn = hop * 1e-6;
    }
    let (time, latency) = seconds(&c, kind, group, bytes, owned(group, cluster), cluster);
    let slow = matches!(cluster.node.network_kind, NetworkKind::Tcp | NetworkKind::Ethernet);
    let interval = if slow { crate::interval::LogInterval::factor(2.0) } else { fitted.across() };
    Draft { time, latency, bound: Bound::Network, interval }
}

/// Seconds, and of those for starting and passing on. `w` is what the group owns of a node's adapters.
pub fn seconds(c: &Constants, kind: Kind, group: Group, bytes: f64, w: f64, cluster: &Cluster) -> (f64, f64) {
    let link = cluster.node.link;
    let (n, nodes, g) = (group.gpus as f64, group.nodes() as f64, group.per_node as f64);
    // A lone member of a node has no link inside to pass through.
    let inside = if g > 1.0 { INSIDE_SHARE * link.rate.0 } else { f64::INFINITY };
    let passes = if kind == Kind::AllReduce { 2.0 } else { 1.0 };
    let start = c.r0 + passes * ((n - nodes) * c.hi + (nodes - 1.0) * c.hn);
    let ring = start + bytes * kind.factor(n) / (c.phi_r * w.min(inside));
    match kind {
        Kind::AllReduce => {
            let cap = if link.kind.reduces_in_switch() { CAP_NVLS } else { CAP_PLAIN };
            let once = nodes <= 2.0 && link.kind.reduces_in_switch();
            let adapters = if once { c.phi_2 * w } else { c.phi_t * w / 2.0 };
            let alg = if g > 1.0 { adapters.min(cap * link.rate.0) } else { adapters };
            let tree_start = c.t0 + 2.0 * nodes.binary_log() * c.ht + 2.0 * (g - 1.0) * c.hi;
            let tree = tree_start + bytes / alg;
            let low_start = c.l0 + 2.0 * nodes.binary_log() * c.ht * LOW_HOP + 2.0 * (g - 1.0) * LOW_INSIDE;
            let low = low_start + bytes / (c.phi_l * w);
            let started = if low < tree.min(ring) {
                low_start
            } else if tree < ring {
                tree_start
            } else {
                start
            };
            (lines::softmin(&[ring, tree, low]), started)
        }
        Kind::AllToAll => {
            let start = c.a0 + c.ah * n;
            (start + bytes * (n - g) / n / (c.phi_a * w / g), start)
        }
        Kind::SendRecv => {
            let start = c.hn + c.hi;
            // One GPU's part of the adapters: its siblings send at the same time.
            (start + bytes / (c.phi_r * w / g), start)
        }
        _ => (ring, start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collectives;

    #[test]
    fn a_group_with_one_member_per_node_owns_its_share_of_the_adapters() {
        let cluster = Cluster::named("dgx-a100x16").unwrap();
        let collectives = Collectives::embedded();
        let t = |per_node| {
            let group = Group { gpus: 16 * per_node, per_node };
            collectives.predict(Kind::AllReduce, group, 4e9, &cluster).time
        };
        assert!(t(1) > 5.0 * t(8), "{} {}", t(1), t(8));
    }

    #[test]
    fn a_small_all_reduce_between_nodes_takes_the_way_of_low_latency() {
        let cluster = Cluster::named("dgx-a100x2").unwrap();
        let us = |bytes| {
            let group = Group { gpus: 16, per_node: 8 };
            Collectives::embedded().predict(Kind::AllReduce, group, bytes, &cluster).time * 1e6
        };
        // Measured on two DGX A100 with nccl-tests: 46 us for 2 KiB, 77 us for 64 KiB, 137 us for 2 MiB.
        for (bytes, measured) in [(2048.0, 46.0), (65_536.0, 77.0), (2_097_152.0, 137.0)] {
            assert!((us(bytes) / measured - 1.0).abs() < 0.15, "{bytes} bytes: {} us", us(bytes));
        }
    }

    #[test]
    fn two_nodes_exceed_their_adapters_only_where_switches_sum() {
        let bus = |name: &str| {
            let cluster = Cluster::named(name).unwrap();
            let group = Group { gpus: 16, per_node: 8 };
            let p = Collectives::embedded().predict(Kind::AllReduce, group, 8e9, &cluster);
            p.bus / cluster.network().0
        };
        // Measured: 0.94 on two DGX A100 (4 GB), 1.19 on two machines with H100 (8 GB).
        assert!((bus("dgx-a100x2") - 0.94).abs() < 0.05, "{}", bus("dgx-a100x2"));
        assert!((bus("aws-p5x2") - 1.19).abs() < 0.05, "{}", bus("aws-p5x2"));
        // Half the adapters, half the rate: nothing inside binds.
        assert!(bus("aws-p4d-24xlargex2") < 1.0);
    }

    #[test]
    fn an_oversubscribed_spine_is_slower() {
        let full = Cluster::named("dgx-h100x8").unwrap();
        let mut half = full.clone();
        half.oversubscription = 2.0;
        let group = Group { gpus: 64, per_node: 8 };
        let t = |c: &Cluster| Collectives::embedded().predict(Kind::AllGather, group, 8e9, c).time;
        // The ring inside a node holds 0.8 of 450 GB/s, so that half of 400 GB/s is 1.8 times as slow, less the start.
        assert!(t(&half) > 1.7 * t(&full));
    }
}
