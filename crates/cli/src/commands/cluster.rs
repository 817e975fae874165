//! `preflop cluster`: the nodes, one cluster in full, two side by side.

use crate::cluster_args;
use crate::grid::Grid;
use crate::output::{self, Align, Output, three_digits};
use clap::{Args, Subcommand};
use preflop_cluster::collective::{Collectives, Group, Kind};
use preflop_cluster::node::catalog;
use preflop_cluster::{Cluster, Node};
use serde_json::json;
use std::io::Write as _;

/// List the nodes, show a cluster with all its sources and defaults, or compare two
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop cluster list
  preflop cluster show dgx-h100x4")]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: Option<ClusterCommand>,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// List all nodes (the default)
    List,
    /// Show every figure of a cluster with its source, and the defaults taken
    Show {
        /// Node name, NODExCOUNT, 8xGPU, or the path of a cluster or node file
        cluster: String,
    },
    /// Show in what two clusters differ
    Diff {
        /// One
        a: String,
        /// The other
        b: String,
    },
}

/// Lists, shows or compares.
pub fn run(args: ClusterArgs, output: &Output) -> anyhow::Result<()> {
    match args.command {
        None | Some(ClusterCommand::List) => list(output),
        Some(ClusterCommand::Show { cluster }) => show(&cluster_args::cluster(&cluster, None)?, output),
        Some(ClusterCommand::Diff { a, b }) => {
            diff(&cluster_args::cluster(&a, None)?, &cluster_args::cluster(&b, None)?, output)
        }
    }
}

fn figures(cluster: &Cluster) -> Vec<(&'static str, String)> {
    let node = &cluster.node;
    let collectives = Collectives::embedded();
    let bus = |group: Group| {
        let p = collectives.predict(Kind::AllReduce, group, 1_073_741_824.0, cluster);
        three_digits(p.bus / 1e9)
    };
    let mut out = vec![
        ("gpu", node.gpu.name.clone()),
        ("nodes", cluster.count.to_string()),
        ("gpus per node", node.gpus.to_string()),
        ("gpus", cluster.gpus().to_string()),
        ("memory of a GPU, GiB", three_digits(node.gpu.memory.mib() / 1024.0)),
        ("topology", node.topology.name().to_string()),
        ("link", node.link.kind.name().to_string()),
        ("link of a GPU, one way, GB/s", three_digits(node.link.rate.gbs())),
        ("peer access", node.p2p.to_string()),
        ("virtual machine", node.virtual_machine.to_string()),
        ("adapters", node.nics.to_string()),
        ("network of a node, one way, GB/s", three_digits(node.network.gbs())),
        ("network", node.network_kind.name().to_string()),
        ("oversubscription", three_digits(cluster.oversubscription)),
        ("host cores", three_digits(node.host_cores)),
        ("host memory, GB/s", three_digits(node.host_dram.gbs())),
    ];
    if node.gpus > 1 {
        out.push((
            "all-reduce of 1 GiB in a node, bus GB/s",
            bus(Group { gpus: node.gpus, per_node: node.gpus }),
        ));
    }
    if cluster.count > 1 {
        let none = node.network.0 <= 0.0;
        let all = Group { gpus: cluster.gpus(), per_node: node.gpus };
        out.push((
            "all-reduce of 1 GiB over all, bus GB/s",
            if none { "no network between these nodes".to_string() } else { bus(all) },
        ));
    }
    out
}

fn list(output: &Output) -> anyhow::Result<()> {
    let nodes = catalog::all()?;
    if output.json {
        let rows: Vec<_> = nodes.iter().map(listed).collect();
        return output::print_json(&rows);
    }
    let mut grid = Grid::default();
    grid.add("name", Align::Keep, 0, nodes.iter().map(|n| n.name.clone()));
    grid.add("GPUs", Align::Right, 0, nodes.iter().map(|n| n.gpus.to_string()));
    grid.add("GPU", Align::Keep, 0, nodes.iter().map(|n| n.gpu.name.clone()));
    let inside = nodes.iter().map(|n| format!("{} {}", n.link.kind.name(), n.topology.name()));
    grid.add("inside", Align::Keep, 3, inside);
    let link = nodes.iter().map(|n| format!("{} GB/s", three_digits(n.link.rate.gbs())));
    grid.add("link", Align::Right, 1, link);
    grid.add("outside", Align::Keep, 4, nodes.iter().map(|n| n.network_kind.name().to_string()));
    let network = nodes.iter().map(|n| format!("{} GB/s", three_digits(n.network.gbs())));
    grid.add("network", Align::Right, 2, network);
    let mut out = output::stdout();
    grid.write(&mut out, output)?;
    let line = "Bandwidths are one way: of a GPU inside, of a node outside. NODExCOUNT is a cluster; `8xh100` is a usual box.";
    writeln!(out, "\n{}", output.dim(&output::wrapped(line, output.width, "")))?;
    Ok(out.flush()?)
}

fn listed(n: &Node) -> serde_json::Value {
    json!({
        "name": n.name, "title": n.title, "gpu": n.gpu.name, "gpus": n.gpus, "topology": n.topology,
        "link": n.link.kind, "link_gbs": n.link.rate.gbs(), "p2p": n.p2p, "virtual_machine": n.virtual_machine, "nics": n.nics,
        "network_gbs": n.network.gbs(), "network": n.network_kind,
    })
}

fn show(cluster: &Cluster, output: &Output) -> anyhow::Result<()> {
    let node = &cluster.node;
    let assumptions: Vec<_> = node.assumptions.iter().chain(&cluster.assumptions).collect();
    if output.json {
        let mut answer = listed(node);
        answer["name"] = json!(cluster.name);
        answer["nodes"] = json!(cluster.count);
        answer["all_gpus"] = json!(cluster.gpus());
        answer["oversubscription"] = json!(cluster.oversubscription);
        answer["facts"] = json!(
            node.facts.iter().map(|(k, v, s)| json!({"key": k, "value": v, "source": s})).collect::<Vec<_>>()
        );
        answer["assumptions"] = json!(assumptions);
        return output::print_json(&answer);
    }
    let mut out = output::stdout();
    writeln!(out, "{} ({})\n", output.bold(&node.title), cluster.name)?;
    let price = cluster_args::price(cluster)
        .map(|(usd, source)| ("price of an hour", format!("{} USD ({source})", three_digits(usd))));
    let line = |what: &str, value: &str| {
        // Where the values would not have half of a narrow terminal, they follow their names at once.
        let lead = if output.width < 80 { format!("  {what}  ") } else { format!("  {what:<42} ") };
        output::hanging(&lead, value, output.width)
    };
    for (what, value) in figures(cluster).into_iter().chain(price) {
        writeln!(out, "{}", line(what, &value))?;
    }
    if !node.facts.is_empty() {
        writeln!(out, "\n{}", output.bold("From the file"))?;
        for (key, value, source) in &node.facts {
            let line = format!("{key} = {value}: {source}");
            writeln!(out, "{}", output::hanging("  ", &line, output.width))?;
        }
    }
    if !assumptions.is_empty() {
        writeln!(out, "\n{}", output.bold("Not in the file, so taken as"))?;
        for a in assumptions {
            let line = format!("{} = {}: {}", a.key, a.value, a.why);
            writeln!(out, "{}", output::hanging("  ", &line, output.width))?;
        }
    }
    Ok(out.flush()?)
}

fn diff(a: &Cluster, b: &Cluster, output: &Output) -> anyhow::Result<()> {
    let (left, right) = (figures(a), figures(b));
    let value =
        |list: &[(&str, String)], key: &str| list.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone());
    let mut keys: Vec<&str> = left.iter().map(|(k, _)| *k).collect();
    keys.extend(right.iter().map(|(k, _)| *k).filter(|k| !left.iter().any(|(l, _)| l == k)));
    let rows: Vec<(&str, Option<String>, Option<String>)> =
        keys.into_iter().map(|k| (k, value(&left, k), value(&right, k))).filter(|(_, x, y)| x != y).collect();
    if output.json {
        let rows: Vec<_> = rows.iter().map(|(k, x, y)| json!({"key": k, "a": x, "b": y})).collect();
        return output::print_json(&json!({"a": a.name, "b": b.name, "differences": rows}));
    }
    let mut out = output::stdout();
    if rows.is_empty() {
        writeln!(out, "{} and {} have the same figures.", a.name, b.name)?;
        return Ok(out.flush()?);
    }
    let mut table =
        Grid::new(&[("figure", Align::Left, 0), (&a.name, Align::Right, 0), (&b.name, Align::Right, 0)]);
    for (key, x, y) in rows {
        table.row([key.to_string(), x.unwrap_or_else(|| "-".into()), y.unwrap_or_else(|| "-".into())]);
    }
    table.write(&mut out, output)?;
    Ok(out.flush()?)
}
