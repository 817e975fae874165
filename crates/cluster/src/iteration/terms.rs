//! What is said about an iteration: its parts, its collectives, its ranks.

use crate::collective::{Group, Kind, Prediction};
use crate::interval::LogInterval;
use crate::memory::RankMemory;
use serde::Serialize;

/// Seconds of an iteration by cause; they add up to it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Breakdown {
    /// Operators of the model.
    pub compute: f64,
    /// Operators that run a second time.
    pub recompute: f64,
    /// Tensor parallel, not hidden.
    pub tp_exposed: f64,
    /// Context parallel, not hidden.
    pub cp_exposed: f64,
    /// Expert parallel, not hidden.
    pub ep_exposed: f64,
    /// Data parallel, not hidden.
    pub dp_exposed: f64,
    /// Stages that wait while the pipeline fills and drains.
    pub pp_bubble: f64,
    /// Hand-over between stages.
    pub pp_transfer: f64,
    /// Optimizer step.
    pub optimizer: f64,
    /// The host is slower than the GPU.
    pub host_exposed: f64,
    /// Ranks that wait for the slowest; an interval says it better than a number.
    pub straggler: f64,
}

impl Breakdown {
    /// Names and seconds, in the order of reports.
    pub fn parts(&self) -> [(&'static str, f64); 11] {
        [
            ("compute", self.compute),
            ("recompute", self.recompute),
            ("tp_exposed", self.tp_exposed),
            ("cp_exposed", self.cp_exposed),
            ("ep_exposed", self.ep_exposed),
            ("dp_exposed", self.dp_exposed),
            ("pp_bubble", self.pp_bubble),
            ("pp_transfer", self.pp_transfer),
            ("optimizer", self.optimizer),
            ("host_exposed", self.host_exposed),
            ("straggler", self.straggler),
        ]
    }

    /// Seconds of the iteration.
    pub fn total(&self) -> f64 {
        self.parts().iter().map(|(_, t)| t).sum()
    }
}

/// A collective of an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveUse {
    /// Which.
    pub kind: Kind,
    /// `tp`, `dp`, ...
    pub dimension: &'static str,
    /// Who takes part.
    pub group: Group,
    /// Bytes of one.
    pub bytes: f64,
    /// How often in an iteration.
    pub count: f64,
    /// Seconds of one.
    pub time: f64,
    /// Seconds of all of them that nothing hides.
    pub exposed: f64,
    /// Bus bandwidth of one.
    pub bus: f64,
}

/// Collectives as they are met: listed for a report, or only their uncertainty for a search.
#[derive(Debug, Clone)]
pub struct Uses {
    keep: bool,
    list: Vec<CollectiveUse>,
    parts: Vec<(f64, LogInterval)>,
}

impl Uses {
    /// Keeps all.
    pub fn listing() -> Self {
        Self { keep: true, list: Vec::new(), parts: Vec::new() }
    }

    /// Keeps nothing: no allocation for plans that nobody will look at.
    pub fn counting() -> Self {
        Self { keep: false, list: Vec::new(), parts: Vec::new() }
    }

    /// Adds `count` collectives of which a share is exposed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn add(
        &mut self,
        kind: Kind,
        dimension: &'static str,
        group: Group,
        bytes: f64,
        count: f64,
        p: &Prediction,
        share: f64,
    ) {
        if !self.keep {
            return;
        }
        let exposed = p.time * count * share.clamp(0.0, 1.0);
        self.parts.push((exposed, p.interval));
        self.list.push(CollectiveUse {
            kind,
            dimension,
            group,
            bytes,
            count,
            time: p.time,
            exposed,
            bus: p.bus,
        });
    }

    /// The interval of all exposed time: one fabric errs in one direction, so errors do not cancel.
    pub(super) fn interval(&self) -> LogInterval {
        let total: f64 = self.parts.iter().map(|(t, _)| t).sum();
        if total <= 0.0 {
            return LogInterval { low: -0.2, high: 0.2 };
        }
        let mean =
            |pick: fn(&LogInterval) -> f64| self.parts.iter().map(|(t, i)| t * pick(i)).sum::<f64>() / total;
        LogInterval { low: mean(|i| i.low), high: mean(|i| i.high) }
    }

    pub(super) fn take(&mut self) -> Vec<CollectiveUse> {
        std::mem::take(&mut self.list)
    }
}

/// What we say about an iteration.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Seconds.
    pub time: f64,
    /// 90 % interval as logs.
    pub interval: LogInterval,
    /// By cause.
    pub breakdown: Breakdown,
    /// Memory of the distinct ranks: one for each pipeline stage.
    pub ranks: Vec<RankMemory>,
    /// Collectives.
    pub uses: Vec<CollectiveUse>,
}

impl Outcome {
    /// The rank that needs most memory.
    pub fn fullest(&self) -> Option<&RankMemory> {
        self.ranks.iter().max_by(|a, b| a.total().total_cmp(&b.total()))
    }

    /// Does every rank fit?
    pub fn fits(&self) -> bool {
        self.ranks.iter().all(|r| r.fits)
    }

    /// Both ends of the interval, in seconds.
    pub fn ends(&self) -> (f64, f64) {
        self.interval.around(self.time)
    }
}
