//! Fits the constants of collectives again and prints them as `data/fitted/collectives.toml` has them.
//!
//! `cargo run --release -p preflop-cluster --example fit_collectives -- ../shared/data/parallel/collectives.csv.gz`

#![allow(clippy::print_stdout, clippy::disallowed_types, clippy::disallowed_methods)]

use preflop_cluster::collective::{Fitted, Kind};
use preflop_cluster::link::LinkKind;
use preflop_cluster::node::NetworkKind;
use preflop_cluster::validate::collectives::{self, Row};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("name the file of measurements")?;
    let file = flate2::read::GzDecoder::new(std::fs::File::open(path)?);
    let rows: Vec<Row> = csv::Reader::from_reader(file).deserialize().collect::<Result<_, _>>()?;
    let start = Fitted::embedded();
    for (system, link, rate, clock) in [
        ("a100_sxm", LinkKind::Nvlink3, 300e9, 1410),
        ("h100_sxm", LinkKind::Nvlink4, 450e9, 1980),
        ("b200_sxm", LinkKind::Nvlink5, 900e9, 1965),
    ] {
        for kind in [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll] {
            let Some(from) = start.lines(link, kind) else { continue };
            let lines = collectives::fit_lines(&rows, system, kind, rate, &from);
            let texts =
                lines.map(|l| format!("[{:.4}, {:.4}, {:.5}, {:.4}]", l.a * 1e6, l.h * 1e6, l.phi, l.e));
            println!("[[lines]] # us, us per step, fraction of the link, exponent of n");
            println!("link = \"{}\"\ncollective = \"{}\"\nclock_mhz = {clock}", link.name(), kind.name());
            println!("lines = [{}]\n", texts.join(", "));
        }
    }
    for (kind, prefix) in [(NetworkKind::Infiniband, "dgx"), (NetworkKind::Efa, "aws")] {
        let own: Vec<Row> = rows
            .iter()
            .filter(|r| r.nodes > 1 && r.implementation == "nccl" && r.system.starts_with(prefix))
            .cloned()
            .collect();
        let c = collectives::fit_network(&own, start.network(kind))?;
        println!("# {}: {c:?}", kind.name());
    }
    Ok(())
}
