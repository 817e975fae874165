//! Prices per GPU-hour, each with its date and source: rented, or bought and written off.

use super::listing::{Offer, Purchase, read_offers, read_purchases};
use super::{CostError, Date};
use serde::Serialize;

/// Cloud offers that ship with the tool; `preflop prices import` makes the file.
pub const CLOUD: &str = include_str!("../data/prices/cloud.csv");
/// Purchase prices that ship with the tool.
pub const PURCHASE: &str = include_str!("../data/prices/purchase.csv");

/// Which price counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pricing {
    /// On demand, the median of the clouds that offer the GPU.
    OnDemand,
    /// On demand, the cheapest cloud.
    Cheapest,
    /// Spot, the median of the clouds.
    Spot,
    /// Bought, with its share of a host, and written off over the hours of use.
    Purchase,
}

impl Pricing {
    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Cheapest => "cheapest",
            Self::Spot => "spot",
            Self::Purchase => "purchase",
        }
    }
}

/// How a bought GPU turns into a price per hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ownership {
    /// Price of the host for each GPU.
    pub host_usd: f64,
    /// Years until both are written off.
    pub years: f64,
    /// Share of those years during which the GPU works.
    pub utilisation: f64,
}

impl Default for Ownership {
    /// A workstation without its GPU for 1500 USD (the study's "cost of GPU and CPU" gives no figure; a desktop
    /// with a good CPU cost about that in 2018), three years as tax rules for computers have it, busy half of the time.
    fn default() -> Self {
        Self { host_usd: 1500.0, years: 3.0, utilisation: 0.5 }
    }
}

impl Ownership {
    /// Price of one hour of work.
    ///
    /// ```text
    /// usd_per_hour = (gpu_usd + host_usd) / (years * 8760 h * utilisation)
    /// ```
    pub fn usd_per_hour(&self, gpu_usd: f64) -> f64 {
        (gpu_usd + self.host_usd) / (self.years * 8760.0 * self.utilisation)
    }
}

/// A price with its date.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quote {
    /// US dollars per GPU-hour.
    pub usd_per_hour: f64,
    /// When that was the price.
    pub date: Date,
    /// Who asked it, for what.
    pub source: String,
    /// Does it pay for the host as well?
    pub host_included: bool,
}

/// All prices, and what the user said instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    /// Cloud offers.
    pub offers: Vec<Offer>,
    /// Purchase prices.
    pub purchases: Vec<Purchase>,
    /// Prices given by the user, by GPU: they win.
    pub overrides: Vec<(String, Quote)>,
    /// Only this cloud.
    pub cloud: Option<String>,
    /// For purchase prices.
    pub ownership: Ownership,
}

impl Catalogue {
    /// The catalogue that ships with the tool.
    pub fn embedded() -> Result<Self, CostError> {
        Self::new(CLOUD, "cloud.csv")
    }

    /// Offers from a file of the same form, purchases as shipped.
    pub fn new(offers: &str, file: &str) -> Result<Self, CostError> {
        Ok(Self {
            offers: read_offers(offers, file)?,
            purchases: read_purchases(PURCHASE, "purchase.csv")?,
            overrides: Vec::new(),
            cloud: None,
            ownership: Ownership::default(),
        })
    }

    /// The price of a GPU, if there is one.
    pub fn quote(&self, gpu: &str, pricing: Pricing) -> Option<Quote> {
        if let Some((_, quote)) = self.overrides.iter().find(|(name, _)| name == gpu) {
            return Some(quote.clone());
        }
        if pricing == Pricing::Purchase {
            let purchase = self.purchases.iter().find(|p| p.gpu == gpu)?;
            return Some(Quote {
                usd_per_hour: self.ownership.usd_per_hour(purchase.usd),
                date: purchase.date,
                source: format!("bought for {} usd: {}", purchase.usd, purchase.source),
                host_included: true,
            });
        }
        let price = |o: &Offer| if pricing == Pricing::Spot { o.spot } else { o.on_demand };
        let mut found: Vec<(f64, &Offer)> = self
            .offers
            .iter()
            .filter(|o| o.gpu == gpu && self.cloud.as_ref().is_none_or(|c| *c == o.cloud))
            .filter_map(|o| price(o).map(|usd| (usd, o)))
            .collect();
        // A price without its host is not comparable: it counts only where there is no other.
        if found.iter().any(|(_, o)| o.host_included) {
            found.retain(|(_, o)| o.host_included);
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Of an even number the upper middle: rather too dear than too cheap.
        let place = if pricing == Pricing::Cheapest { 0 } else { found.len() / 2 };
        found.get(place).map(|(usd, o)| Quote {
            usd_per_hour: *usd,
            date: o.date,
            source: format!("{} {}", o.cloud, o.instance),
            host_included: o.host_included,
        })
    }

    /// The prices of all these GPUs, or which of them lack one.
    pub fn need(&self, gpus: &[&str], pricing: Pricing) -> Result<(), CostError> {
        let lacking: Vec<&str> =
            gpus.iter().copied().filter(|gpu| self.quote(gpu, pricing).is_none()).collect();
        let Some(first) = lacking.first() else { return Ok(()) };
        let quoted: Vec<String> = lacking.iter().map(|gpu| format!("`{gpu}`")).collect();
        Err(CostError::NoPrice {
            pricing: pricing.name(),
            gpus: quoted.join(", "),
            first: (*first).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# made for this test\n\
        gpu,cloud,instance,ondemand_usd_h,spot_usd_h,date,host\n\
        h200,alpha,a1,2.00,1.00,2026-08-01,yes\n\
        h200,beta,b1,4.00,,2026-08-02,yes\n\
        h200,gamma,c1,3.00,0.50,2026-08-03,yes\n\
        h200,delta,d1,0.10,0.10,2026-08-04,no\n\
        p4,gamma,p,0.65,,2026-08-05,no\n";

    #[test]
    fn medians_are_real_offers_with_dates() {
        let c = Catalogue::new(FILE, "test.csv").unwrap();
        let q = c.quote("h200", Pricing::OnDemand).unwrap();
        assert_eq!(
            (q.usd_per_hour, q.date.to_string().as_str(), q.source.as_str()),
            (3.0, "2026-08-03", "gamma c1")
        );
        assert_eq!(c.quote("h200", Pricing::Cheapest).unwrap().usd_per_hour, 2.0);
        assert_eq!(c.quote("h200", Pricing::Spot).unwrap().usd_per_hour, 1.0);
        // Only a price without its host exists: better than none, and said.
        assert!(!c.quote("p4", Pricing::OnDemand).unwrap().host_included);
        assert_eq!(c.quote("p4", Pricing::Spot), None);
    }

    #[test]
    fn the_users_word_wins_and_a_missing_price_is_named() {
        let mut c = Catalogue::new(FILE, "test.csv").unwrap();
        let date = Date::parse("2026-11-01").unwrap();
        let own = Quote { usd_per_hour: 2.1, date, source: "given".into(), host_included: true };
        c.overrides.push(("h200".into(), own.clone()));
        assert_eq!(c.quote("h200", Pricing::Spot), Some(own));
        let error = c.need(&["h200", "titan-xp"], Pricing::Spot).unwrap_err().to_string();
        assert!(
            error.contains("no spot price for `titan-xp`") && error.contains("--price titan-xp=USD"),
            "{error}"
        );
        assert!(c.need(&["h200"], Pricing::OnDemand).is_ok());
    }

    #[test]
    fn one_cloud_only() {
        let mut c = Catalogue::new(FILE, "test.csv").unwrap();
        c.cloud = Some("beta".into());
        assert_eq!(c.quote("h200", Pricing::OnDemand).unwrap().usd_per_hour, 4.0);
        assert_eq!(c.quote("h200", Pricing::Spot), None);
    }

    #[test]
    fn a_bought_gpu_is_written_off() {
        // (699 + 1500) / (3 * 8760 * 0.5) = 2199 / 13140 = 0.16735 USD per hour
        assert!((Ownership::default().usd_per_hour(699.0) - 0.167_352).abs() < 1e-6);
    }

    #[test]
    fn every_shipped_price_belongs_to_a_gpu_and_is_dated() {
        let c = Catalogue::embedded().unwrap();
        let names: Vec<&str> = preflop_gpu::catalog::names().collect();
        assert!(c.offers.len() > 60 && c.purchases.len() >= 10);
        for gpu in c.offers.iter().map(|o| &o.gpu).chain(c.purchases.iter().map(|p| &p.gpu)) {
            assert!(names.contains(&gpu.as_str()), "{gpu}");
        }
        let newest = Date::parse("2026-12-31").unwrap();
        assert!(c.offers.iter().all(|o| o.date <= newest));
        for gpu in ["h200", "h100-sxm", "a100-sxm-80gb", "t4", "l4", "rtx-4090", "v100-sxm2-16gb", "mi300x"] {
            assert!(c.quote(gpu, Pricing::OnDemand).is_some(), "{gpu}");
        }
        // A few hundred bytes for each GPU.
        assert!(CLOUD.len() + PURCHASE.len() < 500 * names.len(), "{}", CLOUD.len());
    }
}
