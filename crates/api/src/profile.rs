//! A recording: where its time goes, and how long it would take elsewhere.

use crate::engine::{Engine, text};
use crate::error::ApiError;
use preflop_core::Gpu;
use preflop_core::profile::explain::{Explanation, Untimed, explain, explain_untimed};
use preflop_core::profile::window::{Choice, WindowError};
use preflop_core::profile::{Analysis, Profile, origin};
use preflop_core::transfer::{Host, Options, Transfer, lacks, transfer};
use serde::Serialize;

/// What is asked of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfileOptions {
    /// GPU of the recording, where it does not say.
    pub from: Option<String>,
    /// GPUs to carry it to; all if left out.
    pub to: Option<Vec<String>>,
    /// Factor on the recorded host time; the profiler's own share is taken out if left out.
    pub host: Option<f64>,
}

/// Least and largest factor on the host's time.
const HOST_RANGE: [f64; 2] = [0.01, 100.0];

#[derive(Serialize)]
struct Answer {
    /// Where the time goes; absent where the recording has no GPU times.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
    /// Operators and counters of a recording without GPU times.
    #[serde(skip_serializing_if = "Option::is_none")]
    untimed: Option<Untimed>,
    /// Other GPUs, where the one of the recording is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer: Option<Transfer>,
    /// Why there are no other GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    transfer_problem: Option<String>,
}

impl Engine {
    /// Explains a recording and carries it to other GPUs.
    pub fn profile(&self, profile: &Profile, options: &ProfileOptions) -> Result<String, ApiError> {
        let targets: Vec<Gpu> = self.some_gpus(options.to.as_deref())?.into_iter().cloned().collect();
        let [least, most] = HOST_RANGE;
        let host = match options.host {
            None => Host::Unprofiled,
            Some(factor) if (least..=most).contains(&factor) => Host::Factor(factor),
            Some(factor) => {
                let message = format!("`host` is {factor}; it must be from {least} to {most}");
                return Err(ApiError::invalid(message));
            }
        };
        let said = options.from.as_deref().map(|name| self.gpu(name)).transpose()?;
        if profile.gpu_events.is_empty() {
            return text(&Answer {
                explanation: None,
                untimed: Some(explain_untimed(profile)),
                transfer: None,
                transfer_problem: Some("the recording has no GPU times".to_string()),
            });
        }
        let analysis = Analysis::new(profile, &Choice::default()).map_err(|e| ApiError::Invalid {
            hint: matches!(e, WindowError::NoGpuWork(_))
                .then_some("record with ProfilerActivity.CUDA, or export with `nsys export --type sqlite`"),
            message: e.to_string(),
        })?;
        let recorded = profile
            .devices
            .iter()
            .find(|d| d.id == i64::from(analysis.window.device))
            .or(profile.devices.first());
        let gpu = said.cloned().or_else(|| recorded.and_then(origin::find));
        // Of the whole catalogue, those that have the recording's formats are answered; one that is named must have them.
        let mut able = Vec::with_capacity(targets.len());
        for target in targets {
            match lacks(&analysis, &target) {
                Some(lacks) if options.to.is_some() => return Err(ApiError::invalid(lacks)),
                Some(_) => {}
                None => able.push(target),
            }
        }
        let targets = able;
        let explanation = explain(&analysis, &self.model, gpu.as_ref());
        let carried = gpu.as_ref().map(|gpu| {
            transfer(&analysis, &self.model, gpu, &targets, &Options { host, ..Options::default() })
        });
        let transfer_problem = carried
            .is_none()
            .then(|| "the recording does not say which GPU it was made on; name it".to_string());
        text(&Answer { explanation: Some(explanation), untimed: None, transfer: carried, transfer_problem })
    }
}
