//! Any text as a file of a node or of a cluster: one whose collectives take a finite time, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_cluster::cluster::ClusterFile;
use preflop_cluster::collective::{Collectives, Group, Kind};
use preflop_cluster::node::catalog;
use preflop_cluster::{Cluster, Node, node};
use std::sync::LazyLock;

static COLLECTIVES: LazyLock<Collectives> = LazyLock::new(Collectives::embedded);
/// What the types of nodes stand for, in turn.
static NODES: LazyLock<[Node; 2]> =
    LazyLock::new(|| ["dgx-h100", "dgx-a100"].map(|name| catalog::need(name).expect("a catalogue node")));

fn check(cluster: &Cluster) {
    assert!(cluster.node_hour_usd.as_ref().is_none_or(|(usd, _)| usd.is_finite()));
    if cluster.gpus() < 2 || (cluster.count > 1 && cluster.node.network.0 <= 0.0) {
        return;
    }
    let group = Group { gpus: cluster.gpus(), per_node: cluster.node.gpus };
    for kind in Kind::ALL {
        for bytes in [1.0, 1e6, 1e15] {
            let p = COLLECTIVES.predict(kind, group, bytes, cluster);
            assert!(p.time.is_finite() && p.time > 0.0 && p.bus.is_finite(), "{kind:?} {p:?}");
        }
    }
}

fuzz_target!(|text: &str| {
    let one_line = |error: String| assert!(!error.contains('\n'), "{error}");
    match ClusterFile::parse(text, "fuzz.toml") {
        Ok(file) => {
            let nodes = (0..file.node_types().count()).map(|i| NODES[i % NODES.len()].clone()).collect();
            match file.complete(nodes, "fuzz.toml") {
                Ok(cluster) => check(&cluster),
                Err(error) => one_line(error.to_string()),
            }
        }
        Err(error) => one_line(error.to_string()),
    }
    match node::parse(text, "fuzz.toml").and_then(node::NodeFile::complete) {
        Ok(node) => {
            for count in [1, 3] {
                check(&Cluster::of(node.clone(), count));
            }
        }
        Err(error) => one_line(error.to_string()),
    }
});
