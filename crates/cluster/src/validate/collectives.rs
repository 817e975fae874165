//! Collectives against nccl-tests: left-out systems, left-out link generations, left-out fabrics.

use super::{Pair, descent};
use crate::collective::lines;
use crate::collective::network::{self, Constants};
use crate::collective::{Collectives, Fitted, Group, Kind};
use crate::link::LinkKind;
use crate::node::NetworkKind;
use crate::{Cluster, ClusterError};
use serde::Deserialize;

/// A row of `collectives.csv.gz`.
#[derive(Debug, Clone, Deserialize)]
#[allow(missing_docs)]
pub struct Row {
    pub system: String,
    pub collective: String,
    pub implementation: String,
    pub library_version: String,
    pub dtype: String,
    pub gpus: u64,
    pub gpus_per_node: u64,
    pub nodes: u64,
    pub message_bytes: f64,
    pub time_us: f64,
}

/// Messages from this size on count where latency is not the question.
const LARGE: f64 = 1_048_576.0;

/// The catalogue's node for a measured system.
fn node_of(system: &str) -> Option<&'static str> {
    Some(match system {
        "a100_sxm" | "vtrain_a100" | "dgx_a100_hdr" => "dgx-a100",
        "azure_a100_40" => "azure-nd96-a100-v4",
        "h100_sxm" => "dgx-h100",
        "aws_p5_sweep" => "aws-p5-48xlarge",
        "b200_sxm" => "dgx-b200",
        _ => return None,
    })
}

impl Row {
    fn kind(&self) -> Option<Kind> {
        Kind::from_name(&self.collective)
    }

    fn cluster(&self) -> Option<Result<Cluster, ClusterError>> {
        let node = crate::node::catalog::need(node_of(&self.system)?);
        Some(node.map(|node| Cluster::of(node, self.nodes.max(1))))
    }

    fn group(&self) -> Group {
        Group { gpus: self.gpus, per_node: (self.gpus / self.nodes.max(1)).max(1) }
    }

    fn pair(&self, collectives: &Collectives) -> Option<Result<Pair, ClusterError>> {
        let kind = self.kind()?;
        Some(self.cluster()?.map(|cluster| {
            let p = collectives.predict(kind, self.group(), self.message_bytes, &cluster);
            Pair {
                system: self.system.clone(),
                measured: self.time_us,
                predicted: p.time * 1e6,
                interval: p.interval,
                unmeasured: 0.0,
            }
        }))
    }
}

fn pairs<'a>(
    rows: impl Iterator<Item = &'a Row>,
    collectives: &Collectives,
) -> Result<Vec<Pair>, ClusterError> {
    rows.filter_map(|r| r.pair(collectives)).collect()
}

fn is_nccl(row: &Row) -> bool {
    row.implementation == "nccl"
}

/// Rows of one node that the constants were fitted on.
pub fn fitted_inside(rows: &[Row], collectives: &Collectives) -> Result<Vec<Pair>, ClusterError> {
    let own = |r: &&Row| {
        is_nccl(r) && r.nodes == 1 && matches!(r.system.as_str(), "a100_sxm" | "h100_sxm" | "b200_sxm")
    };
    pairs(rows.iter().filter(own), collectives)
}

/// Another laboratory's node, none of whose rows were fitted.
pub fn left_out_inside(
    rows: &[Row],
    system: &str,
    collectives: &Collectives,
) -> Result<Vec<Pair>, ClusterError> {
    pairs(rows.iter().filter(|r| is_nccl(r) && r.nodes == 1 && r.system == system), collectives)
}

/// Each link generation predicted from the others, from 1 MB on.
pub fn left_out_generations(rows: &[Row], fitted: &Fitted) -> Result<Vec<Pair>, ClusterError> {
    let mut out = Vec::new();
    for (system, link) in
        [("a100_sxm", LinkKind::Nvlink3), ("h100_sxm", LinkKind::Nvlink4), ("b200_sxm", LinkKind::Nvlink5)]
    {
        let collectives = Collectives::new(fitted.clone().without(link));
        let own = |r: &&Row| is_nccl(r) && r.nodes == 1 && r.system == system && r.message_bytes >= LARGE;
        out.extend(pairs(rows.iter().filter(own), &collectives)?);
    }
    Ok(out)
}

fn across(row: &Row) -> bool {
    is_nccl(row) && row.nodes > 1 && row.message_bytes >= LARGE && node_of(&row.system).is_some()
}

/// Rows between nodes with the shipped constants.
pub fn fitted_across(rows: &[Row], collectives: &Collectives) -> Result<Vec<Pair>, ClusterError> {
    pairs(rows.iter().filter(|r| across(r)), collectives)
}

/// Small messages between nodes, which the shipped constants were fitted on.
pub fn small_across(rows: &[Row], collectives: &Collectives) -> Result<Vec<Pair>, ClusterError> {
    let small =
        |r: &&Row| is_nccl(r) && r.nodes > 1 && r.message_bytes < LARGE && node_of(&r.system).is_some();
    pairs(rows.iter().filter(small), collectives)
}

/// A row made ready for a fit of network constants.
struct Ready {
    kind: Kind,
    group: Group,
    bytes: f64,
    cluster: Cluster,
    measured: f64,
}

fn ready<'a>(rows: impl Iterator<Item = &'a Row>) -> Result<Vec<Ready>, ClusterError> {
    rows.filter_map(|r| {
        let kind = r.kind()?;
        Some(r.cluster()?.map(|cluster| Ready {
            kind,
            group: r.group(),
            bytes: r.message_bytes,
            cluster,
            measured: r.time_us * 1e-6,
        }))
    })
    .collect()
}

/// Network constants that fit these rows best, from a start.
pub fn fit_network(rows: &[Row], start: Constants) -> Result<Constants, ClusterError> {
    fit_rows(&rows.iter().collect::<Vec<_>>(), start)
}

fn fit_rows(rows: &[&Row], start: Constants) -> Result<Constants, ClusterError> {
    let ready = ready(rows.iter().copied())?;
    let error = |c: &[f64]| {
        let Ok(array) = <[f64; 13]>::try_from(c) else { return f64::INFINITY };
        let constants = Constants::from_array(array);
        let one = |r: &Ready| {
            let share = r.group.per_node as f64 / r.cluster.node.gpus as f64;
            let w = r.cluster.network().0 * share.min(1.0);
            let t = network::seconds(&constants, r.kind, r.group, r.bytes, w, &r.cluster).0;
            (t / r.measured).ln().abs()
        };
        ready.iter().map(one).sum::<f64>() / ready.len().max(1) as f64
    };
    let limits = [
        (1e-6, 1e-3),
        (2e-7, 1e-5),
        (1e-6, 2e-4),
        (0.3, 1.0),
        (5e-6, 1e-3),
        (5e-6, 3e-4),
        (0.3, 1.2),
        (0.3, 1.2),
        (1e-5, 2e-3),
        (5e-7, 5e-5),
        (0.3, 1.2),
        (1e-6, 1e-4),
        (1e-3, 1e-1),
    ];
    let found = descent::minimise(&error, &start.to_array(), &limits, 60);
    Ok(<[f64; 13]>::try_from(found.as_slice()).map_or(start, Constants::from_array))
}

/// Each number of nodes left out of its fabric's constants by turns.
pub fn left_out_across(rows: &[Row], fitted: &Fitted) -> Result<Vec<Pair>, ClusterError> {
    let mut out = Vec::new();
    let all: Vec<&Row> = rows.iter().filter(|r| across(r)).collect();
    let mut sets: Vec<(String, u64)> = all.iter().map(|r| (r.system.clone(), r.nodes)).collect();
    sets.sort();
    sets.dedup();
    for (system, nodes) in sets {
        let (own, rest): (Vec<&Row>, Vec<&Row>) =
            all.iter().partition(|r| r.system == system && r.nodes == nodes);
        let kind = if system.starts_with("aws") { NetworkKind::Efa } else { NetworkKind::Infiniband };
        let same_fabric: Vec<&Row> = rest.iter().copied().filter(|r| r.system == system).collect();
        let train = if same_fabric.is_empty() { rest } else { same_fabric };
        let constants = fit_rows(&train, fitted.network(kind))?;
        let collectives = Collectives::new(fitted.clone().with_network(kind, constants));
        let mut pairs = pairs(own.into_iter(), &collectives)?;
        for p in &mut pairs {
            p.system = format!("{system}, {nodes} nodes");
        }
        out.extend(pairs);
    }
    Ok(out)
}

/// The three lines that fit one collective of one system best, from a start.
pub fn fit_lines(rows: &[Row], system: &str, kind: Kind, link: f64, start: &lines::Lines) -> lines::Lines {
    let own: Vec<&Row> = rows
        .iter()
        .filter(|r| is_nccl(r) && r.nodes == 1 && r.system == system && r.kind() == Some(kind))
        .collect();
    // Exponents may be negative, and the minimiser moves logs: they are shifted.
    let pack = |l: &lines::Line| [l.a, l.h, l.phi, l.e + SHIFT];
    let unpack = |c: &[f64]| -> lines::Lines {
        std::array::from_fn(|i| {
            let c = &c[4 * i..4 * i + 4];
            lines::Line { a: c[0], h: c[1], phi: c[2], e: c[3] - SHIFT }
        })
    };
    let error = |c: &[f64]| {
        let lines = unpack(c);
        let one = |r: &&Row| {
            let t = lines::envelope(&lines, kind, r.gpus as f64, r.message_bytes, link).0;
            (t * 1e6 / r.time_us).ln().abs()
        };
        own.iter().map(one).sum::<f64>() / own.len().max(1) as f64
    };
    let limits: Vec<(f64, f64)> =
        (0..3).flat_map(|_| [(1e-6, 1e-4), (1e-9, 3e-5), (1e-3, 1.0), (SHIFT - 1.0, SHIFT + 2.0)]).collect();
    let packed: Vec<f64> = start.iter().flat_map(pack).collect();
    unpack(&descent::minimise(&error, &packed, &limits, 80))
}

const SHIFT: f64 = 3.0;
