//! Price files: lines of `data/prices/*.csv`. Comments start with `#`; no field holds a comma.

use super::quantity::MEANT;
use super::{CostError, Date};
use serde::Serialize;

/// Columns of a file of cloud offers.
pub const OFFER_HEADER: &str = "gpu,cloud,instance,ondemand_usd_h,spot_usd_h,date,host";
const PURCHASE_HEADER: &str = "gpu,usd,date,source";

/// What one cloud asks for one GPU-hour.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Offer {
    /// Catalogue name of the GPU.
    pub gpu: String,
    /// The cloud.
    pub cloud: String,
    /// Its name for the machine.
    pub instance: String,
    /// US dollars per GPU-hour on demand.
    #[serde(rename = "ondemand_usd_h")]
    pub on_demand: Option<f64>,
    /// US dollars per GPU-hour on the spot market.
    #[serde(rename = "spot_usd_h")]
    pub spot: Option<f64>,
    /// When this price was first seen.
    pub date: Date,
    /// Does it pay for the host as well?
    pub host_included: bool,
}

/// What a GPU costs to buy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Purchase {
    /// Catalogue name of the GPU.
    pub gpu: String,
    /// US dollars.
    pub usd: f64,
    /// When that was the price.
    pub date: Date,
    /// Where it is from.
    pub source: String,
}

struct Lines<'a> {
    file: &'a str,
    rows: Vec<(usize, Vec<&'a str>)>,
}

impl<'a> Lines<'a> {
    fn read(text: &'a str, file: &'a str, header: &str) -> Result<Self, CostError> {
        let mut lines = text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let columns = header.split(',').count();
        match lines.next() {
            Some((_, first)) if first == header => {}
            Some((line, _)) => return Err(odd(file, line, format!("the header must be `{header}`"))),
            None => return Err(odd(file, 1, format!("empty; the header must be `{header}`"))),
        }
        let mut rows = Vec::new();
        for (line, text) in lines {
            let fields: Vec<&str> = text.split(',').map(str::trim).collect();
            if fields.len() != columns {
                return Err(odd(file, line, format!("{} fields, not {columns}", fields.len())));
            }
            rows.push((line, fields));
        }
        Ok(Self { file, rows })
    }

    fn amount(&self, line: usize, text: &str) -> Result<f64, CostError> {
        text.parse().ok().filter(|x: &f64| MEANT.contains(x)).ok_or_else(|| {
            let text: String = text.chars().take(32).collect();
            odd(self.file, line, format!("`{text}` is not a price in usd"))
        })
    }

    fn date(&self, line: usize, text: &str) -> Result<Date, CostError> {
        Date::parse(text).map_err(|e| odd(self.file, line, e.to_string()))
    }
}

fn odd(file: &str, line: usize, problem: String) -> CostError {
    CostError::Line { file: file.to_string(), line, problem }
}

/// Reads a file of cloud offers.
pub fn read_offers(text: &str, file: &str) -> Result<Vec<Offer>, CostError> {
    let lines = Lines::read(text, file, OFFER_HEADER)?;
    let price = |line: usize, text: &str| -> Result<Option<f64>, CostError> {
        if text.is_empty() { Ok(None) } else { lines.amount(line, text).map(Some) }
    };
    let mut offers = Vec::with_capacity(lines.rows.len());
    for (line, f) in &lines.rows {
        let host_included = match f[6] {
            "yes" => true,
            "no" => false,
            _ => return Err(odd(file, *line, "`host` must be yes or no".to_string())),
        };
        let offer = Offer {
            gpu: f[0].to_string(),
            cloud: f[1].to_string(),
            instance: f[2].to_string(),
            on_demand: price(*line, f[3])?,
            spot: price(*line, f[4])?,
            date: lines.date(*line, f[5])?,
            host_included,
        };
        if offer.on_demand.is_none() && offer.spot.is_none() {
            return Err(odd(file, *line, "neither an on-demand nor a spot price".to_string()));
        }
        offers.push(offer);
    }
    Ok(offers)
}

/// Reads a file of purchase prices.
pub fn read_purchases(text: &str, file: &str) -> Result<Vec<Purchase>, CostError> {
    let lines = Lines::read(text, file, PURCHASE_HEADER)?;
    lines
        .rows
        .iter()
        .map(|(line, f)| {
            Ok(Purchase {
                gpu: f[0].to_string(),
                usd: lines.amount(*line, f[1])?,
                date: lines.date(*line, f[2])?,
                source: f[3].to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_named() {
        let say = |row: &str| {
            read_offers(&format!("# c\n{OFFER_HEADER}\n{row}\n"), "p.csv").unwrap_err().to_string()
        };
        assert_eq!(say("h200,a,b,1,2,2026-01-01"), "p.csv, line 3: 6 fields, not 7");
        assert!(say("h200,a,b,x,,2026-01-01,yes").contains("`x` is not a price"));
        assert!(say("h200,a,b,1e308,,2026-01-01,yes").contains("`1e308` is not a price"));
        assert!(say("h200,a,b,inf,,2026-01-01,yes").contains("`inf` is not a price"));
        assert!(say("h200,a,b,-1,,2026-01-01,yes").contains("not a price"));
        assert!(say("h200,a,b,1,,soon,yes").contains("`soon` is not a date"));
        assert!(say("h200,a,b,1,,,yes").contains("not a date"));
        assert!(say("h200,a,b,,,2026-01-01,yes").contains("neither"));
        assert!(say("h200,a,b,1,,2026-01-01,perhaps").contains("`host`"));
        assert!(read_offers("", "p.csv").is_err());
        assert!(read_offers("gpu,price\n", "p.csv").unwrap_err().to_string().contains("header"));
    }
}
