//! Any text as a log of nccl-tests: a verdict of finite figures, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use preflop_cluster::Cluster;
use preflop_cluster::collective::{Collectives, Group, Kind, log};
use std::sync::LazyLock;

static COLLECTIVES: LazyLock<Collectives> = LazyLock::new(Collectives::embedded);
static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| Cluster::named("dgx-h100").expect("a catalogue node"));

fuzz_target!(|text: &str| match log::read(text) {
    Ok(rows) => {
        let group = Group { gpus: CLUSTER.gpus(), per_node: CLUSTER.node.gpus };
        let verdict = log::compare(&rows, Kind::AllReduce, group, &CLUSTER, &COLLECTIVES);
        assert!(verdict.bus_gbs.is_finite() && verdict.expected_gbs.is_finite());
        assert!(verdict.rows.iter().all(|r| r.ratio.is_finite() && r.time_us.is_finite()));
    }
    Err(error) => assert!(!error.to_string().contains('\n')),
});
