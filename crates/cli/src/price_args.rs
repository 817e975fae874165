//! Which prices count: the options that `compare` and `report` share.

use crate::commands::prices;
use crate::error::InputError;
use crate::input;
use clap::Args;
use preflop_core::cost::{Catalogue, Date, Ownership, Pricing, Quote, quantity};

/// The kind of price, whose, and the user's own.
#[derive(Debug, Clone, Args)]
pub struct PriceArgs {
    /// Which price counts: on-demand, cheapest, spot, purchase
    #[arg(long, default_value = "on-demand", value_parser = pricing)]
    pub pricing: Pricing,

    /// Only this cloud's prices
    #[arg(long, value_name = "NAME")]
    cloud: Option<String>,

    /// Your price per GPU-hour in US dollars, as `h100=2.10` or `h100=2.10@2026-08-22`
    #[arg(long, value_name = "GPU=USD")]
    price: Vec<String>,

    /// A price file to use instead of the built-in one (see `preflop prices import`)
    #[arg(long, value_name = "FILE")]
    prices: Option<String>,

    /// With purchase prices: price of the host for each GPU, in US dollars
    #[arg(long, value_name = "USD", value_parser = quantity::usd, allow_hyphen_values = true)]
    host_usd: Option<f64>,

    /// With purchase prices: years until GPU and host are written off
    #[arg(long, value_name = "YEARS", value_parser = input::above_zero, allow_hyphen_values = true)]
    years: Option<f64>,

    /// With purchase prices: share of those years in which the GPU works, from 0 to 1
    #[arg(long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true)]
    utilisation: Option<f64>,
}

/// For `--pricing`.
fn pricing(text: &str) -> Result<Pricing, String> {
    use Pricing::{Cheapest, OnDemand, Purchase, Spot};
    input::one_of(text, &[OnDemand, Cheapest, Spot, Purchase].map(|p| (p.name(), p)))
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (1e-6..=1.0).contains(&x) => Ok(x),
        _ => Err("it must be a number above 0 (from 0.000001) and at most 1".to_string()),
    }
}

/// A price that the user gave, dated today unless they say otherwise.
pub fn own_quote(usd_per_hour: f64, date: Option<Date>) -> Quote {
    Quote {
        usd_per_hour,
        date: date.unwrap_or_else(input::today),
        source: "given on the command line".to_string(),
        host_included: true,
    }
}

impl PriceArgs {
    /// The prices that count.
    pub fn catalogue(&self) -> anyhow::Result<Catalogue> {
        let mut prices = match &self.prices {
            Some(path) => prices::read(path)?,
            None => Catalogue::embedded()?,
        };
        if let Some(cloud) = &self.cloud {
            let cloud = cloud.to_lowercase();
            if prices.offers.iter().all(|o| o.cloud != cloud) {
                let mut known: Vec<&str> = prices.offers.iter().map(|o| o.cloud.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                return Err(InputError::new(format!("no prices of a cloud `{cloud}`"))
                    .hint(format!("known: {}", known.join(", ")))
                    .into());
            }
            prices.cloud = Some(cloud);
        }
        for text in &self.price {
            let (name, price) = input::pair(text, "--price", "h100=2.10")?;
            let (usd, date) = match price.split_once('@') {
                Some((usd, date)) => (usd, Some(Date::parse(date)?)),
                None => (price, None),
            };
            prices.overrides.push((input::gpu(name)?.name, own_quote(quantity::usd(usd)?, date)));
        }
        let own = Ownership::default();
        prices.ownership = Ownership {
            host_usd: self.host_usd.unwrap_or(own.host_usd),
            years: self.years.unwrap_or(own.years),
            utilisation: self.utilisation.unwrap_or(own.utilisation),
        };
        Ok(prices)
    }

    /// The options as they were given, to reproduce a report.
    pub fn words(&self) -> Vec<[String; 2]> {
        let number = |x: Option<f64>| x.map(|x| x.to_string());
        let one = [
            ("--pricing", Some(self.pricing.name().to_string())),
            ("--cloud", self.cloud.clone()),
            ("--prices", self.prices.clone()),
            ("--host-usd", number(self.host_usd)),
            ("--years", number(self.years)),
            ("--utilisation", number(self.utilisation)),
        ];
        let own = self.price.iter().map(|p| ["--price".to_string(), p.clone()]);
        one.into_iter().filter_map(|(flag, value)| Some([flag.to_string(), value?])).chain(own).collect()
    }
}
