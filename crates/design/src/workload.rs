//! Networks on a design: time, energy and dollars of a sample; area and power of the chip.

use crate::{Axis, DesignError, KEYS, die_mm2};
use preflop_core::Gpu;
use preflop_core::cost::Power;
use preflop_core::cost::rank::usd_per_million_samples;
use preflop_core::explore::{AreaWeights, Scales};
use preflop_core::gpu::Resource;
use preflop_core::model::Iteration;
use preflop_core::schedule::Schedule as _;
use preflop_core::time::{Bound, TimeModel};
use preflop_core::units::math::Elementary as _;

/// A design: multiples of the base in the order of [`KEYS`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design(pub [f64; 5]);

impl Design {
    /// The base itself.
    pub const BASE: Self = Self([1.0; 5]);

    /// `sm_count=2 dram_bw=1.5`; the base has no changes to name.
    pub fn name(&self) -> String {
        let parts: Vec<String> = KEYS
            .iter()
            .zip(self.0)
            .filter(|(_, x)| *x != 1.0)
            .map(|(key, x)| format!("{key}={}", (x * 1e4).round() / 1e4))
            .collect();
        if parts.is_empty() { "base".to_string() } else { parts.join(" ") }
    }
}

/// What is to be small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// Time of an iteration.
    Time,
    /// Dollars of a sample, when an hour of a design costs in proportion to its area.
    Cost,
    /// Joules of a sample.
    Energy,
}

impl Objective {
    /// All, with the names of `--objective`.
    pub const ALL: [(&'static str, Self); 3] =
        [("time", Self::Time), ("cost", Self::Cost), ("energy", Self::Energy)];
}

/// What a design may not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Board power in watts.
    pub watts: Option<f64>,
    /// Area of the die in square millimetres.
    pub area_mm2: Option<f64>,
}

impl Limits {
    /// Reads `watts=700,area=814`.
    pub fn parse(text: &str) -> Result<Self, DesignError> {
        let wrong = |problem: String| DesignError::Limit { text: text.to_string(), problem };
        let mut out = Self::default();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| {
                wrong("write it as watts=700 or area=814, or both with a comma".to_string())
            })?;
            let value = match value.trim().parse::<f64>() {
                Ok(x) if x > 0.0 && x.is_finite() => x,
                _ => return Err(wrong(format!("`{value}` is no number above 0"))),
            };
            match key.trim() {
                "watts" => out.watts = Some(value),
                "area" => out.area_mm2 = Some(value),
                other => {
                    let hint = preflop_core::names::did_you_mean(other, ["watts", "area"]);
                    return Err(wrong(format!("unknown limit `{other}`{hint} (limits: watts, area)")));
                }
            }
        }
        Ok(out)
    }

    /// By how much a design exceeds them, as a share; 0 where it does not.
    pub fn excess(&self, e: &Evaluated) -> f64 {
        let over = |limit: Option<f64>, value: f64| limit.map_or(0.0, |limit| (value / limit - 1.0).max(0.0));
        // Rounding is no excess: the base has just its own area.
        let sum = over(self.watts, e.watts) + over(self.area_mm2, e.area_mm2.unwrap_or(0.0));
        if sum < 1e-9 { 0.0 } else { sum }
    }
}

/// A network made ready.
#[derive(Debug, Clone)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// What one iteration runs.
    pub iteration: Iteration,
}

/// A design with what was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluated {
    /// The design; SMs are whole, so that its number of them may be a little larger than what was asked for.
    pub design: Design,
    /// Milliseconds of an iteration of each network.
    pub iteration_ms: Vec<f64>,
    /// What binds each network.
    pub bounds: Vec<Bound>,
    /// Geometric mean over networks of the base's time over this one.
    pub speedup: f64,
    /// Geometric mean over networks.
    pub joules_per_sample: f64,
    /// Geometric mean over networks, where the base has a price.
    pub usd_per_million_samples: Option<f64>,
    /// Weighted multiple of the base's area.
    pub share: f64,
    /// Area, where that of the base is known.
    pub area_mm2: Option<f64>,
    /// Board power.
    pub watts: f64,
}

impl Evaluated {
    /// What is to be small.
    pub fn objective(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Time => 1.0 / self.speedup,
            Objective::Cost => self.usd_per_million_samples.unwrap_or(f64::INFINITY),
            Objective::Energy => self.joules_per_sample,
        }
    }
}

/// Networks on designs of one base.
#[derive(Debug)]
pub struct Workload<'a> {
    model: &'a TimeModel,
    base: &'a Gpu,
    networks: &'a [Network],
    weights: AreaWeights,
    usd_per_hour: Option<f64>,
    area_mm2: Option<f64>,
    base_seconds: Vec<f64>,
}

impl<'a> Workload<'a> {
    /// These networks on designs of this base. Its area may be given where the catalogue does not have it.
    pub fn new(
        model: &'a TimeModel,
        base: &'a Gpu,
        networks: &'a [Network],
        weights: AreaWeights,
        usd_per_hour: Option<f64>,
        area_mm2: Option<f64>,
    ) -> Self {
        let base_seconds =
            networks.iter().map(|n| model.predict_iteration(&n.iteration, base).time.0).collect();
        let area_mm2 = area_mm2.or_else(|| die_mm2(&base.chip));
        Self { model, base, networks, weights, usd_per_hour, area_mm2, base_seconds }
    }

    /// Can these limits and this objective be judged?
    pub fn check(&self, objective: Objective, limits: &Limits) -> Result<(), DesignError> {
        let base = &self.base.name;
        if limits.area_mm2.is_some() && self.area_mm2.is_none() {
            let message =
                format!("the area of `{base}` is not known, so `--limit area` needs `--base-area MM2`");
            return Err(DesignError::Base(message));
        }
        if objective == Objective::Cost && self.usd_per_hour.is_none() {
            let message = format!("`{base}` has no price, so `--objective cost` needs `--usd-per-hour USD`");
            return Err(DesignError::Base(message));
        }
        Ok(())
    }

    /// The design's share of the base's area, its GPU and the design as it can be built.
    fn built(&self, design: Design) -> (Design, f64, Gpu) {
        let [sms, clock, mac, l2, dram] = design.0;
        let mut gpu = self.base.with_more(Resource::Sms, sms);
        let sms = f64::from(gpu.sm_count) / f64::from(self.base.sm_count.max(1));
        for (resource, factor) in [
            (Resource::Clock, clock),
            (Resource::Peak, mac),
            (Resource::L2, l2),
            (Resource::L2Size, l2),
            (Resource::Dram, dram),
        ] {
            gpu = gpu.with_more(resource, factor);
        }
        let scales = Scales { sm_count: sms, mac_per_sm: mac, l2_bw: l2, dram_bw: dram, ..Scales::default() };
        let share = self.weights.cost(&scales) / self.weights.cost(&Scales::default());
        gpu.tdp_w *= share * clock;
        gpu.idle_w *= share;
        (Design([sms, clock, mac, l2, dram]), share, gpu)
    }

    /// Predicts the networks on a design.
    pub fn evaluate(&self, design: Design) -> Evaluated {
        let (design, share, gpu) = self.built(design);
        let usd = self.usd_per_hour.map(|usd| usd * share);
        let (mut iteration_ms, mut bounds) = (Vec::new(), Vec::new());
        let (mut speedup, mut joules, mut dollars) = (0.0, 0.0, 0.0);
        for (network, base) in self.networks.iter().zip(&self.base_seconds) {
            let p = self.model.predict_iteration(&network.iteration, &gpu);
            let rate = network.iteration.samples as f64 / p.time.0;
            iteration_ms.push(p.time.ms());
            bounds.push(p.bound);
            speedup += (base / p.time.0).natural_log();
            joules += Power::of(&network.iteration, &p, &gpu).per_sample(rate).joules.natural_log();
            dollars += usd.map_or(0.0, |usd| usd_per_million_samples(usd, rate).natural_log());
        }
        let mean = |sum: f64| (sum / self.networks.len().max(1) as f64).exponential();
        Evaluated {
            design,
            iteration_ms,
            bounds,
            speedup: mean(speedup),
            joules_per_sample: mean(joules),
            usd_per_million_samples: usd.map(|_| mean(dollars)),
            share,
            area_mm2: self.area_mm2.map(|area| area * share),
            watts: gpu.tdp_w,
        }
    }

    /// The design at these places of the axes; what does not vary is as in the base.
    pub fn design(axes: &[Axis], values: &[f64]) -> Design {
        let mut scales = Design::BASE.0;
        for (axis, value) in axes.iter().zip(values) {
            scales[axis.key] = *value;
        }
        Design(scales)
    }
}
