//! `preflop prices`: the dated catalogue, and how it is refreshed.

use crate::destination;
use crate::error::InputError;
use crate::grid::Grid;
use crate::input;
use crate::output::{self, Align, Output, three_digits};
use clap::{Args, Subcommand};
use preflop_core::cost::listing::{OFFER_HEADER, Offer};
use preflop_core::cost::{Catalogue, Date};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;

/// Show prices with their dates and sources, or import new ones
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop prices
  preflop prices h100")]
pub struct PricesArgs {
    /// GPU name; all without it
    gpu: Option<String>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a price file from a table of cloud listings (docs/choosing-a-gpu.md names the columns)
    Import {
        /// CSV file of listings
        file: String,
        /// Where to write the price file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<String>,
    },
}

/// A price file is a few hundred bytes per GPU.
const MAX_PRICE_FILE: u64 = 1 << 20;
/// A table of listings has a line per machine type.
const MAX_LISTINGS: u64 = 16 << 20;

/// How listings name our GPUs.
const NAMES: &str = include_str!("../../data/prices/names.csv");

fn read_text(path: &str, limit: u64, what: &str) -> anyhow::Result<String> {
    String::from_utf8(input::read_limited(path, limit, what)?)
        .map_err(|_| InputError::new(format!("{path}: not a text file")).into())
}

/// Reads a price file.
pub fn read(path: &str) -> anyhow::Result<Catalogue> {
    Ok(Catalogue::new(&read_text(path, MAX_PRICE_FILE, "price file")?, path)?)
}

/// Runs the command.
pub fn run(args: &PricesArgs, output: &Output) -> anyhow::Result<()> {
    match &args.command {
        Some(Command::Import { file, output: path }) => {
            let text = import(&read_text(file, MAX_LISTINGS, "table of listings")?, file)?;
            if let Some(path) = path {
                return destination::write_bytes(path, text);
            }
            let mut out = output::stdout();
            out.write_all(text.as_bytes())?;
            Ok(out.flush()?)
        }
        None => list(args.gpu.as_deref(), output),
    }
}

fn list(gpu: Option<&str>, output: &Output) -> anyhow::Result<()> {
    let mut prices = Catalogue::embedded()?;
    if let Some(name) = gpu {
        let name = input::gpu(name)?.name;
        prices.offers.retain(|o| o.gpu == name);
        prices.purchases.retain(|p| p.gpu == name);
        if prices.offers.is_empty() && prices.purchases.is_empty() {
            return Err(InputError::new(format!("no price for `{name}` in the catalogue"))
                .hint(format!("give one to `preflop compare` as `--price {name}=USD`"))
                .into());
        }
    }
    if output.json {
        #[derive(Serialize)]
        struct Listing<'a> {
            offers: &'a [preflop_core::cost::listing::Offer],
            purchases: &'a [preflop_core::cost::listing::Purchase],
        }
        return output::print_json(&Listing { offers: &prices.offers, purchases: &prices.purchases });
    }
    let mut out = output::stdout();
    if !prices.offers.is_empty() {
        let mut table = Grid::new(&[
            ("gpu", Align::Keep, 0),
            ("on demand", Align::Right, 0),
            ("spot", Align::Right, 1),
            ("date", Align::Keep, 1),
            ("source", Align::Left, 0),
        ]);
        let or_dash = |x: Option<f64>| x.map_or_else(|| "-".to_string(), three_digits);
        for o in &prices.offers {
            let host = if o.host_included { "" } else { " (without host)" };
            table.row([
                o.gpu.clone(),
                or_dash(o.on_demand),
                or_dash(o.spot),
                o.date.to_string(),
                format!("{} {}{host}", o.cloud, o.instance),
            ]);
        }
        table.write(&mut out, output)?;
        writeln!(out, "\n{}", output.dim("on demand, spot: usd for an hour of one GPU"))?;
    }
    if !prices.purchases.is_empty() {
        if !prices.offers.is_empty() {
            writeln!(out)?;
        }
        let mut table = Grid::new(&[
            ("gpu", Align::Keep, 0),
            ("to buy, usd", Align::Right, 0),
            ("date", Align::Keep, 1),
            ("source", Align::Left, 0),
        ]);
        for p in &prices.purchases {
            table.row([p.gpu.clone(), p.usd.to_string(), p.date.to_string(), p.source.clone()]);
        }
        table.write(&mut out, output)?;
    }
    Ok(out.flush()?)
}

/// A line of a table of listings; other columns are ignored.
#[derive(Debug, Deserialize)]
struct Listed {
    cloud: String,
    instance_type: String,
    gpu: String,
    gpu_count: f64,
    ondemand_usd_h_per_gpu_median: Option<f64>,
    spot_usd_h_per_gpu_median: Option<f64>,
    host_included: String,
    data_first_seen: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    note: String,
}

/// A rule of `data/prices/names.csv`.
#[derive(Debug, Deserialize)]
struct Name {
    gpu: String,
    listed_as: String,
    with: String,
    without: String,
}

impl Name {
    fn matches(&self, listed: &Listed) -> bool {
        let instance = listed.instance_type.to_lowercase();
        let named_so = listed.gpu.to_lowercase();
        self.listed_as.split('|').any(|name| name == listed.gpu)
            && (self.with.is_empty() || instance.contains(&self.with) || named_so.contains(&self.with))
            && !self.without.split('|').any(|part| !part.is_empty() && instance.contains(part))
    }
}

/// Listings to a price file: for each GPU and cloud the cheapest machine type, with its host where one is
/// listed; auctions and prices a year older than the newest are left out, unless a GPU has no other.
fn import(text: &str, file: &str) -> anyhow::Result<String> {
    let names: Vec<Name> = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .from_reader(NAMES.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()?;
    let mut offers: BTreeMap<(usize, String), Offer> = BTreeMap::new();
    let mut sources: Vec<String> = Vec::new();
    for (i, row) in csv::Reader::from_reader(text.as_bytes()).deserialize::<Listed>().enumerate() {
        let row = row.map_err(|e| InputError::new(format!("{file}: {e}")))?;
        let at = |problem: String| InputError::new(format!("{file}, line {}: {problem}", i + 2));
        let date = Date::parse(&row.data_first_seen).map_err(|e| at(e.to_string()))?;
        let price = |x: Option<f64>| x.filter(|x| x.is_finite() && *x > 0.0);
        let (on_demand, spot) =
            (price(row.ondemand_usd_h_per_gpu_median), price(row.spot_usd_h_per_gpu_median));
        let whole = row.gpu_count >= 1.0;
        if (on_demand.is_none() && spot.is_none()) || row.note.contains("auction") || !whole {
            continue;
        }
        for (place, name) in names.iter().enumerate().filter(|(_, n)| n.matches(&row)) {
            let offer = Offer {
                gpu: name.gpu.clone(),
                cloud: row.cloud.clone(),
                instance: row.instance_type.replace(',', " "),
                on_demand,
                spot,
                date,
                host_included: row.host_included.starts_with("yes"),
            };
            let source = row.source.split(':').next().unwrap_or_default();
            if !source.is_empty() && !sources.iter().any(|s| s == source) {
                sources.push(source.to_string());
            }
            offers
                .entry((place, row.cloud.clone()))
                .and_modify(|known| {
                    if better(&offer, known) {
                        *known = offer.clone();
                    }
                })
                .or_insert(offer);
        }
    }
    let Some(newest) = offers.values().map(|o| o.date).max() else {
        return Err(InputError::new(format!("{file}: no price of a GPU in the catalogue")).into());
    };
    let old = newest.a_year_before();
    let mut out = String::new();
    writeln!(
        out,
        "# Cloud prices per GPU-hour in US dollars: the median over regions of the cheapest machine type of each cloud."
    )?;
    writeln!(
        out,
        "# date: when this price was first seen. host: is the rest of the machine paid for? Made by `preflop prices import`."
    )?;
    writeln!(out, "# Source: {}", sources.join(", "))?;
    writeln!(out, "{OFFER_HEADER}")?;
    for place in 0..names.len() {
        let mut of_gpu: Vec<&Offer> =
            offers.iter().filter(|((p, _), _)| *p == place).map(|(_, offer)| offer).collect();
        if of_gpu.iter().any(|o| o.date > old) {
            of_gpu.retain(|o| o.date > old);
        }
        for o in of_gpu {
            let price = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
            let host = if o.host_included { "yes" } else { "no" };
            writeln!(
                out,
                "{},{},{},{},{},{},{host}",
                o.gpu,
                o.cloud,
                o.instance,
                price(o.on_demand),
                price(o.spot),
                o.date
            )?;
        }
    }
    Ok(out)
}

/// With its host before without, on demand before spot only, then the cheaper.
fn better(new: &Offer, old: &Offer) -> bool {
    let rank = |o: &Offer| (!o.host_included, o.on_demand.is_none());
    let price = |o: &Offer| o.on_demand.or(o.spot).unwrap_or(f64::INFINITY);
    rank(new).cmp(&rank(old)).then(price(new).total_cmp(&price(old))).is_lt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "cloud,instance_type,gpu,gpu_count,ondemand_usd_h_per_gpu_median,spot_usd_h_per_gpu_median,host_included,data_first_seen,source,note\n";

    #[test]
    fn listings_become_offers() {
        let text = format!(
            "{HEADER}alpha,h100_pcie,H100,1.0,3.29,,yes,2026-07-23,list@1:a.csv,\n\
             alpha,h100_sxm,H100,8.0,4.00,1.5,yes,2026-07-23,list@1:a.csv,\n\
             alpha,h100_big,H100,8.0,4.50,,yes,2026-07-23,list@1:a.csv,\n\
             beta,old,H100,1.0,1.00,,yes,2024-01-01,list@1:b.csv,\n\
             gamma,floor,H100,1.0,0.10,,yes,2026-07-23,list@1:b.csv,auction market\n\
             delta,bare,P4,1.0,0.65,,no (gpu only),2024-08-21,list@1:b.csv,\n"
        );
        let made = import(&text, "l.csv").unwrap();
        let rows: Vec<&str> = made.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "h100-pcie,alpha,h100_pcie,3.29,,2026-07-23,yes",
                "h100-sxm,alpha,h100_sxm,4,1.5,2026-07-23,yes",
                "p4,delta,bare,0.65,,2024-08-21,no"
            ]
        );
        assert!(made.contains("# Source: list@1\n"));
        assert!(Catalogue::new(&made, "made.csv").is_ok());
    }

    #[test]
    fn odd_listings_are_refused() {
        assert!(import("a,b\n1,2\n", "l.csv").is_err());
        assert!(import(HEADER, "l.csv").unwrap_err().to_string().contains("no price"));
        let undated = format!("{HEADER}alpha,x,H100,1.0,3.29,,yes,,s,\n");
        assert!(import(&undated, "l.csv").unwrap_err().to_string().contains("line 2"));
    }
}
