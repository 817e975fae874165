//! Logs of nccl-tests: what they measured, where that falls below what the fabric should give, and the likely reason.

use super::{Collectives, Group, Kind};
use crate::Cluster;
use crate::ClusterError;
use preflop_core::units::math::Elementary as _;
use serde::Serialize;

/// One size of a log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Bytes.
    pub bytes: f64,
    /// Microseconds, the better of out of place and in place.
    pub time_us: f64,
}

/// Largest message that is believed.
const MAX_BYTES: f64 = 1e15;
/// Times of a collective that are believed: from a thousandth of a microsecond to a month.
const MIN_US: f64 = 1e-3;
const MAX_US: f64 = 3e12;

/// Reads a log: rows start with a size; the last four or eight columns are time, two bandwidths and a count of errors.
pub fn read(text: &str) -> Result<Vec<Measured>, ClusterError> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(bytes) = words.first().and_then(|w| w.parse::<f64>().ok()) else { continue };
        if words.len() < 7 || bytes < 1.0 {
            continue;
        }
        // Not a number, or no size of a message.
        if !(1.0..=MAX_BYTES).contains(&bytes) {
            return Err(ClusterError::Log(format!(
                "`{bytes}` is no size of a message: is it a log of nccl-tests?"
            )));
        }
        let time = |from_end: usize| {
            words.len().checked_sub(from_end).and_then(|i| words.get(i)).and_then(|w| w.parse::<f64>().ok())
        };
        let times = if words.len() >= 11 { [time(8), time(4)] } else { [time(4), None] };
        let best = times.into_iter().flatten().filter(|t| (MIN_US..MAX_US).contains(t)).reduce(f64::min);
        let Some(time_us) = best else {
            let start: String = line.trim().chars().take(60).collect();
            return Err(ClusterError::Log(format!(
                "no time in the row `{start}`: is it a log of nccl-tests?"
            )));
        };
        rows.push(Measured { bytes, time_us });
    }
    if rows.is_empty() {
        return Err(ClusterError::Log(
            "no rows found: a log of nccl-tests has lines of size, count, type, redop, root, time, algbw, busbw, #wrong".into(),
        ));
    }
    Ok(rows)
}

/// A row beside its prediction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Compared {
    /// Bytes.
    pub bytes: f64,
    /// Measured microseconds.
    pub measured_us: f64,
    /// Predicted microseconds.
    pub time_us: f64,
    /// Measured over predicted.
    pub ratio: f64,
    /// Is it slower than the interval allows?
    pub below: bool,
}

/// What a log says about a fabric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Row by row.
    pub rows: Vec<Compared>,
    /// Bus bandwidth of the largest messages, measured, in GB/s.
    pub bus_gbs: f64,
    /// What it should be.
    pub expected_gbs: f64,
    /// The likely reason, where something is slow.
    pub reason: Option<String>,
}

/// Rows slower than this over the prediction count as slow even where the interval is narrow.
const SLOW: f64 = 1.25;

/// Compares a log with what this fabric should give.
pub fn compare(
    rows: &[Measured],
    kind: Kind,
    group: Group,
    cluster: &Cluster,
    collectives: &Collectives,
) -> Verdict {
    let compared: Vec<Compared> = rows
        .iter()
        .map(|m| {
            let p = collectives.predict(kind, group, m.bytes, cluster);
            let ratio = m.time_us * 1e-6 / p.time;
            let limit = p.interval.high.exponential().max(SLOW);
            Compared {
                bytes: m.bytes,
                measured_us: m.time_us,
                time_us: p.time * 1e6,
                ratio,
                below: ratio > limit,
            }
        })
        .collect();
    let factor = kind.factor(group.gpus as f64);
    let bus = |bytes: f64, us: f64| bytes * factor / us / 1e3;
    let largest = compared.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes));
    let (bus_gbs, expected_gbs) =
        largest.map_or((0.0, 0.0), |c| (bus(c.bytes, c.measured_us), bus(c.bytes, c.time_us)));
    let reason = reason(&compared, bus_gbs, expected_gbs, group, cluster);
    Verdict { rows: compared, bus_gbs, expected_gbs, reason }
}

/// From where a message counts as large.
const LARGE: f64 = 32e6;
/// Up to where it counts as small.
const SMALL: f64 = 65_536.0;

fn reason(rows: &[Compared], bus: f64, expected: f64, group: Group, cluster: &Cluster) -> Option<String> {
    let slow = |from: f64, to: f64| {
        let (mut all, mut below) = (0, 0);
        for row in rows.iter().filter(|r| r.bytes >= from && r.bytes < to) {
            all += 1;
            below += usize::from(row.below);
        }
        all > 0 && 2 * below > all
    };
    // The largest message says most about the links, even where others of its size hide it.
    let largest = rows.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes));
    let top = largest.is_some_and(|r| r.below && r.bytes >= LARGE);
    let (small, large) = (slow(0.0, SMALL), top || slow(LARGE, f64::INFINITY));
    if !small && !large {
        return rows.iter().any(|r| r.below).then(|| {
            "only sizes in between are slow: the library picks a protocol or algorithm badly; try NCCL_ALGO and NCCL_PROTO".to_string()
        });
    }
    let node = &cluster.node;
    if !large {
        return Some("small messages are slow and large ones are not: latency; look for a CPU that saves power, wrong NUMA binding, or LL protocols turned off (NCCL_PROTO)".to_string());
    }
    let share = bus / expected.max(1e-9);
    if group.nodes() > 1 {
        let one = node.network.gbs() / node.nics.max(1) as f64;
        let used = (share * node.nics as f64).round().max(1.0) as u64;
        if bus < 0.25 * one || share < 0.1 {
            return Some(format!(
                "{bus:.1} GB/s is below one adapter of {one:.1} GB/s: sockets instead of RDMA (NCCL_NET, NCCL_IB_DISABLE), or the wrong interface (NCCL_SOCKET_IFNAME)"
            ));
        }
        if node.nics > 1 && used < node.nics {
            return Some(format!(
                "about {used} of {} adapters carry traffic (NCCL_IB_HCA), or GPUs reach them through the host (GPUDirect RDMA off)",
                node.nics
            ));
        }
        return Some("the network gives less than its adapters: an oversubscribed spine, congestion, or adaptive routing off".to_string());
    }
    if !node.link.kind.is_pcie() && bus < 1.2 * node.gpu.host.gbs() {
        return Some(format!(
            "{bus:.1} GB/s is what the host's bus carries: links are down or peer access is off (NCCL_P2P_DISABLE, `nvidia-smi topo -m`, a virtual machine without it)"
        ));
    }
    if node.link.kind.is_pcie() {
        return Some(
            "GPUs reach each other through the host: no peer access between sockets, ACS or IOMMU on"
                .to_string(),
        );
    }
    Some(format!(
        "all messages get {:.0} % of what these links give: fewer links or switches are up than the node has, or another job shares them",
        100.0 * share
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "# nThread 1 nGpus 8\n#       size   count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n\
        1048576  262144  float  sum  -1  30.00  34.9  61.2  0  29.00  36.2  63.3  0\n\
        1073741824  268435456  float  sum  -1  40000  26.8  47.0  0  40100  26.8  46.9  N/A\n# Avg bus bandwidth : 50\n";

    #[test]
    fn the_better_of_both_times_is_read() {
        let rows = read(LOG).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].bytes, rows[0].time_us), (1_048_576.0, 29.0));
        assert!(read("hello\nworld").unwrap_err().to_string().contains("nccl-tests"));
    }

    #[test]
    fn sizes_and_times_that_cannot_be_are_refused() {
        for (from, to) in [("1073741824", "inf"), ("1073741824", "nan"), ("1073741824", "1e300")] {
            let error = read(&LOG.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains("no size of a message"), "{error}");
        }
        let error = read(&LOG.replace("40000", "inf").replace("40100", "1e-300")).unwrap_err().to_string();
        assert!(error.contains("no time in the row"), "{error}");
    }

    #[test]
    fn a_slow_fabric_gets_a_reason() {
        let cluster = Cluster::named("dgx-h100").unwrap();
        let group = Group { gpus: 8, per_node: 8 };
        let rows = read(LOG).unwrap();
        let verdict = compare(&rows, Kind::AllReduce, group, &cluster, &Collectives::embedded());
        assert!(verdict.rows[1].below && !verdict.rows[0].below, "{verdict:?}");
        assert!(verdict.reason.unwrap().contains("peer access"));
    }
}
