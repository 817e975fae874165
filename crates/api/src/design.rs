//! `design`: what a whole network gains from changed designs of a GPU, by the time model.

use crate::engine::Engine;
use crate::error::ApiError;
use crate::question::{ChangedGpu, Designs};
use crate::schema::SCALE_RANGE;
use preflop_core::cost::{Pricing, search as formats};
use preflop_core::explore::{AREA_WEIGHTS, AreaWeights};
use preflop_core::names::did_you_mean;
use preflop_core::units::math::Elementary as _;
use preflop_design::{Design, Evaluated, KEYS, Limits, Network, Objective, Workload, front};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Most designs of one question: each is a whole prediction.
pub const MAX_DESIGNS: usize = 256;

/// The designs in the order of the question.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DesignsAnswer)]
#[allow(missing_docs)]
pub struct Answer {
    base: String,
    model: String,
    batch: u64,
    precision: &'static str,
    base_time_ms: f64,
    designs: Vec<Row>,
}

/// One design over whole networks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WholeDesign)]
#[allow(missing_docs)]
pub struct Row {
    pub name: String,
    /// Multiples of the base by key.
    pub scales: BTreeMap<&'static str, f64>,
    /// Geometric mean over the networks.
    pub time_ms: f64,
    /// Of each network, in their order.
    pub network_ms: Vec<f64>,
    pub speedup: f64,
    /// Networks by what binds them.
    pub bottlenecks: BTreeMap<&'static str, u64>,
    pub joules_per_sample: f64,
    pub usd_per_million_samples: Option<f64>,
    pub area_mm2: Option<f64>,
    pub area_share: f64,
    pub watts: f64,
    pub within_limits: bool,
    pub on_front: bool,
}

impl Row {
    /// A design that was tried, in the words of the answer.
    pub fn of(e: &Evaluated, limits: &Limits, on_front: bool) -> Self {
        let mut bottlenecks = BTreeMap::new();
        for bound in &e.bounds {
            *bottlenecks.entry(bound.name()).or_insert(0) += 1;
        }
        let logs: f64 = e.iteration_ms.iter().map(|t| t.natural_log()).sum();
        Self {
            name: e.design.name(),
            scales: KEYS.into_iter().zip(e.design.0).collect(),
            time_ms: (logs / e.iteration_ms.len().max(1) as f64).exponential(),
            network_ms: e.iteration_ms.clone(),
            speedup: e.speedup,
            bottlenecks,
            joules_per_sample: e.joules_per_sample,
            usd_per_million_samples: e.usd_per_million_samples,
            area_mm2: e.area_mm2,
            area_share: e.share,
            watts: e.watts,
            within_limits: limits.excess(e) == 0.0,
            on_front,
        }
    }
}

/// Every resource twice, one after the other.
fn doubled() -> Vec<ChangedGpu> {
    let twice = |key: &str| ChangedGpu {
        name: format!("{key} x 2"),
        scales: BTreeMap::from([(key.to_string(), 2.0)]),
    };
    KEYS.into_iter().map(twice).collect()
}

fn design(asked: &ChangedGpu) -> Result<Design, ApiError> {
    let mut scales = Design::BASE.0;
    for (key, value) in &asked.scales {
        let shown: String = key.chars().take(40).collect();
        let Some(place) = KEYS.iter().position(|k| k == key) else {
            let hint = did_you_mean(&shown, KEYS);
            let known = KEYS.join(", ");
            return Err(ApiError::invalid(format!("unknown resource `{shown}`{hint}; there are {known}")));
        };
        let [least, most] = SCALE_RANGE;
        if !(least..=most).contains(value) {
            return Err(ApiError::invalid(format!("`{key}` is {value}; it must be from {least} to {most}")));
        }
        scales[place] = *value;
    }
    Ok(Design(scales))
}

/// Evaluates the designs.
pub fn answer(engine: &Engine, asked: &Designs) -> Result<Answer, ApiError> {
    let gpu = engine.gpu(&asked.base)?;
    let list = asked.designs.clone().unwrap_or_else(doubled);
    if list.is_empty() || list.len() > MAX_DESIGNS {
        let message = format!("`designs` takes 1 to {MAX_DESIGNS} designs, not {}", list.len());
        return Err(ApiError::invalid(message));
    }
    let designs = list.iter().map(design).collect::<Result<Vec<_>, _>>()?;
    let job = engine.jobs.job(&asked.run)?;
    if let Some(lacks) = formats::lacks(gpu, job.options.precision) {
        return Err(ApiError::invalid(lacks));
    }
    let weights = AreaWeights::parse(AREA_WEIGHTS, "data/area_weights.toml")?;
    let usd = engine.prices.quote(&gpu.name, Pricing::OnDemand).map(|q| q.usd_per_hour);
    let networks = [Network { name: job.model.clone(), iteration: job.iteration.clone() }];
    let workload = Workload::new(&engine.model, gpu, &networks, weights, usd, None);
    let base = workload.evaluate(Design::BASE);
    let all: Vec<Evaluated> = designs.into_iter().map(|d| workload.evaluate(d)).collect();
    let limits = Limits::default();
    let on_front = front(&all, Objective::Time, &limits);
    let row = |((e, on_front), asked): ((&Evaluated, bool), &ChangedGpu)| {
        let row = Row::of(e, &limits, on_front);
        let name = asked.name.chars().take(80).collect::<String>();
        if name.is_empty() { row } else { Row { name, ..row } }
    };
    Ok(Answer {
        base: gpu.name.clone(),
        model: job.model.clone(),
        batch: job.batch,
        precision: job.options.precision.name(),
        base_time_ms: base.iteration_ms[0],
        designs: all.iter().zip(on_front).zip(&list).map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn ask(question: &str) -> Value {
        serde_json::from_str(&Engine::new(None).unwrap().ask(question)).unwrap()
    }

    #[test]
    fn more_of_anything_is_no_slower_and_the_base_is_what_predict_says() {
        let answer = ask(r#"{"ask": "design", "model": "resnet50", "base": "h100", "precision": "amp"}"#);
        let predicted = ask(r#"{"ask": "predict", "model": "resnet50", "gpu": "h100", "precision": "amp"}"#);
        assert_eq!(answer["base_time_ms"], predicted["iteration_ms"]);
        let designs = answer["designs"].as_array().unwrap();
        assert_eq!(designs.len(), KEYS.len());
        for design in designs {
            assert!(design["speedup"].as_f64() >= Some(1.0), "{design}");
            assert!(design["area_share"].as_f64() >= Some(1.0), "{design}");
        }
    }

    #[test]
    fn wrong_designs_are_refused_by_name() {
        for (designs, word) in [
            (r#"[{"scales": {"dram_bandwidth": 2}}]"#, "dram_bw"),
            (r#"[{"scales": {"l2": 0}}]"#, "`l2` is 0"),
            ("[]", "1 to 256"),
        ] {
            let question =
                format!(r#"{{"ask": "design", "model": "resnet50", "base": "h100", "designs": {designs}}}"#);
            let message = ask(&question)["error"]["message"].as_str().unwrap_or_default().to_string();
            assert!(message.contains(word), "{designs}: {message}");
        }
    }
}
