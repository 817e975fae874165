//! What users say about several GPUs: a cluster by name or file, sizes of a strategy, sizes of messages.

use crate::error::InputError;
use crate::input;
use clap::Args;
use preflop_cluster::asked::AskedStrategy;
pub use preflop_cluster::asked::formats;
use preflop_cluster::cluster::ClusterFile;
use preflop_cluster::model::Stack;
use preflop_cluster::node;
use preflop_cluster::strategy::{Fsdp, Offload, Recompute, Schedule};
use preflop_cluster::{Cluster, Node};
use preflop_core::cost::{Catalogue, Pricing};
use std::path::Path;

/// A node or cluster file is a page of text.
const MAX_FILE: u64 = 1 << 20;
/// Largest size of a strategy that is read.
const MAX_SIZE: u64 = 1 << 24;

/// A count of a strategy.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
        _ => Err(format!("it must be a whole number from 1 to {MAX_SIZE}")),
    }
}

fn recompute(text: &str) -> Result<Recompute, String> {
    input::one_of(text, &Recompute::ALL.map(|r| (r.name(), r)))
}

fn fsdp(text: &str) -> Result<Fsdp, String> {
    input::one_of(text, &[Fsdp::Full, Fsdp::GradOp, Fsdp::Hybrid].map(|f| (f.name(), f)))
}

/// For `--stack`.
pub fn stack(text: &str) -> Result<Stack, String> {
    input::one_of(text, &Stack::ALL.map(|s| (s.name(), s)))
}

fn schedule(text: &str) -> Result<Schedule, String> {
    input::one_of(text, &[Schedule::Gpipe, Schedule::OneFOneB, Schedule::ZeroBubble].map(|s| (s.name(), s)))
}

fn offload(text: &str) -> Result<Offload, String> {
    input::one_of(text, &[Offload::None, Offload::Optimizer, Offload::Activations].map(|o| (o.name(), o)))
}

/// How a model is cut over a cluster.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Several GPUs")]
pub struct ParallelArgs {
    /// Cluster: a node (see `preflop cluster list`), NODExCOUNT, 8xGPU, or the path of a cluster or node file
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,

    /// Use so many of its GPUs [default: all]
    #[arg(long, value_name = "N", value_parser = size)]
    pub gpus: Option<u64>,

    /// Tensor parallel
    #[arg(long, value_name = "N", value_parser = size)]
    pub tp: Option<u64>,

    /// Data parallel [default: what is left]
    #[arg(long, value_name = "N", value_parser = size)]
    pub dp: Option<u64>,

    /// Pipeline parallel
    #[arg(long, value_name = "N", value_parser = size)]
    pub pp: Option<u64>,

    /// Context parallel
    #[arg(long, value_name = "N", value_parser = size)]
    pub cp: Option<u64>,

    /// Expert parallel
    #[arg(long, value_name = "N", value_parser = size)]
    pub ep: Option<u64>,

    /// Model chunks of a pipeline rank
    #[arg(long, value_name = "N", value_parser = size)]
    pub interleave: Option<u64>,

    /// Sequences of a microbatch [default: 1]
    #[arg(long, value_name = "N", value_parser = size)]
    pub micro_batch: Option<u64>,

    /// Sequences of an iteration over all GPUs [default: four microbatches for each pipeline stage and copy]
    #[arg(long, value_name = "N", value_parser = size)]
    pub global_batch: Option<u64>,

    /// What is computed again in backward: none, selective, full
    #[arg(long, value_name = "WHAT", value_parser = recompute)]
    pub recompute: Option<Recompute>,

    /// Cut the rows of norms and residuals too, beside tensor parallel
    #[arg(long)]
    pub sequence_parallel: bool,

    /// ZeRO stage, 0 to 3
    #[arg(long, value_name = "STAGE", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub zero: Option<u8>,

    /// Fully sharded data parallel: full, grad-op, hybrid
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "full", value_parser = fsdp)]
    pub fsdp: Option<Fsdp>,

    /// Order of a pipeline: 1f1b, gpipe, zero-bubble
    #[arg(long, value_name = "ORDER", value_parser = schedule)]
    pub schedule: Option<Schedule>,

    /// What the host's memory holds: none, optimizer, activations
    #[arg(long, value_name = "WHAT", value_parser = offload)]
    pub offload: Option<Offload>,

    /// Software: eager, compiled, megatron, te
    #[arg(long, visible_alias = "profile", value_name = "STACK", value_parser = stack)]
    pub stack: Option<Stack>,

    /// Write the iteration as a Chrome trace, which Perfetto opens
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<String>,

    /// Write a page with the timeline of one iteration
    #[arg(long, value_name = "FILE.html")]
    pub page: Option<String>,
}

impl ParallelArgs {
    /// Sizes of a strategy mean nothing on one GPU.
    pub fn refuse_without_cluster(&self) -> anyhow::Result<()> {
        let given = [
            ("--gpus", self.gpus.is_some()),
            ("--tp", self.tp.is_some()),
            ("--dp", self.dp.is_some()),
            ("--pp", self.pp.is_some()),
            ("--cp", self.cp.is_some()),
            ("--ep", self.ep.is_some()),
            ("--interleave", self.interleave.is_some()),
            ("--micro-batch", self.micro_batch.is_some()),
            ("--global-batch", self.global_batch.is_some()),
            ("--recompute", self.recompute.is_some()),
            ("--sequence-parallel", self.sequence_parallel),
            ("--zero", self.zero.is_some()),
            ("--fsdp", self.fsdp.is_some()),
            ("--schedule", self.schedule.is_some()),
            ("--offload", self.offload.is_some()),
            ("--stack", self.stack.is_some()),
            ("--trace", self.trace.is_some()),
            ("--page", self.page.is_some()),
        ];
        match given.iter().find(|(_, is)| *is) {
            None => Ok(()),
            Some((flag, _)) => Err(InputError::new(format!("`{flag}` needs several GPUs"))
                .hint("name them with `--cluster`, as `--cluster dgx-h100` or `--cluster 8xh100`")
                .into()),
        }
    }

    /// What is said of the plan.
    pub fn asked(&self) -> AskedStrategy {
        AskedStrategy {
            tp: self.tp,
            dp: self.dp,
            pp: self.pp,
            cp: self.cp,
            ep: self.ep,
            interleave: self.interleave,
            batch: None,
            micro_batch: self.micro_batch,
            global_batch: self.global_batch,
            recompute: self.recompute,
            sequence_parallel: self.sequence_parallel,
            zero: self.zero,
            fsdp: self.fsdp,
            schedule: self.schedule,
            offload: self.offload,
            stack: self.stack,
        }
    }
}

fn text_of(path: &str, what: &str) -> anyhow::Result<String> {
    let bytes = input::read_limited(path, MAX_FILE, what)?;
    String::from_utf8(bytes).map_err(|_| InputError::new(format!("{path}: not a text file")).into())
}

fn is_path(name: &str) -> bool {
    name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("toml"))
}

/// The node that a file describes; its GPU may be the path of a GPU file.
fn node_file(path: &str) -> anyhow::Result<Node> {
    let file = node::parse(&text_of(path, "node file")?, path)?;
    let gpu = input::gpu(file.gpu())?;
    Ok(file.complete_with(gpu))
}

/// A cluster by name or file, with another GPU where one is named.
pub fn cluster(name: &str, gpu: Option<&str>) -> anyhow::Result<Cluster> {
    let mut cluster = if is_path(name) { cluster_file(name)? } else { Cluster::named(name)? };
    if let Some(gpu) = gpu {
        cluster.node = cluster.node.with_gpu(input::gpu(gpu)?);
    }
    Ok(cluster)
}

fn cluster_file(path: &str) -> anyhow::Result<Cluster> {
    let text = text_of(path, "cluster file")?;
    // A node file says `gpu`, a cluster file says `nodes`.
    let is_cluster = text.parse::<toml::Table>().is_ok_and(|t| t.contains_key("nodes"));
    if !is_cluster {
        return Ok(Cluster::of(node_file(path)?, 1));
    }
    let file = ClusterFile::parse(&text, path)?;
    let nodes = file.node_types().map(|kind| node_of_type(kind, path)).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(file.complete(nodes, path)?)
}

/// A node that a cluster file names: of the catalogue, or a file beside it.
fn node_of_type(kind: &str, cluster_file: &str) -> anyhow::Result<Node> {
    if !is_path(kind) {
        return Ok(node::catalog::need(kind)?);
    }
    // A path in a file is meant from where the file is, or from here.
    let beside = Path::new(cluster_file).parent().map(|p| p.join(kind)).filter(|p| p.is_file());
    node_file(&beside.map_or_else(|| kind.to_string(), |p| p.to_string_lossy().into_owned()))
}

/// Dollars of all GPUs for one hour with where that comes from, if known.
pub fn price(cluster: &Cluster) -> Option<(f64, String)> {
    if let Some((node, source)) = &cluster.node_hour_usd {
        return Some((node * cluster.count as f64, source.clone()));
    }
    if !cluster.kinds.is_empty() {
        // The price of one of its kinds is not the price of all: the file has to say it.
        return None;
    }
    let quote = Catalogue::embedded().ok()?.quote(&cluster.node.gpu.name, Pricing::OnDemand)?;
    let source = format!("{} on {}, on demand, per GPU", quote.source, quote.date);
    Some((quote.usd_per_hour * cluster.gpus() as f64, source))
}

/// A number of bytes such as `512`, `4K`, `1M`, `8G`: binary, as nccl-tests has it.
fn bytes(text: &str) -> Option<f64> {
    let text = text.trim();
    let text = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let (number, unit) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1024.0),
        'm' | 'M' => (&text[..text.len() - 1], 1_048_576.0),
        'g' | 'G' => (&text[..text.len() - 1], 1_073_741_824.0),
        _ => (text, 1.0),
    };
    let value: f64 = number.parse::<f64>().ok()? * unit;
    (1.0..=1e15).contains(&value).then_some(value)
}

/// `512,4096,1K..8G`: single sizes and ranges of powers of two.
pub fn byte_list(text: &str) -> anyhow::Result<Vec<f64>> {
    let wrong = |part: &str| {
        InputError::new(format!("`--bytes {part}` is no size"))
            .hint("write sizes as `512`, `4K`, `1M`, `8G`, ranges as `1K..8G`, several with commas")
    };
    let mut out = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => out.push(bytes(part).ok_or_else(|| wrong(part))?),
            Some((low, high)) => {
                let (low, high) =
                    bytes(low).zip(bytes(high)).filter(|(l, h)| l <= h).ok_or_else(|| wrong(part))?;
                let mut size = low;
                while size <= high * 1.000_001 {
                    out.push(size);
                    size *= 2.0;
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_messages() {
        assert_eq!(
            byte_list("512,4K,1M..4M").unwrap(),
            [512.0, 4096.0, 1_048_576.0, 2_097_152.0, 4_194_304.0]
        );
        for bad in ["", "x", "8G..1K", "-1", "1..", "1e99"] {
            assert!(byte_list(bad).is_err(), "{bad}");
        }
    }
}
