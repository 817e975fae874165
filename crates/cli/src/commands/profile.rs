//! What the commands over recordings share: the window, the device, the GPU it ran on.

use crate::error::InputError;
use crate::input;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::profile::window::{Choice, WindowError};
use preflop_core::profile::{Analysis, Profile, origin};
use std::path::Path;

/// Which part of a recording is looked at.
#[derive(Debug, Clone, Default, Args)]
pub struct WindowArgs {
    /// One step, by the number in its `ProfilerStep#N` mark; all steps by default
    #[arg(long, value_name = "N")]
    step: Option<u64>,

    /// A range in milliseconds from the start of the recording, such as `10:25`
    #[arg(long, value_name = "FROM:TO", conflicts_with = "step", value_parser = range)]
    window: Option<(f64, f64)>,

    /// Device number; the busiest by default
    #[arg(long, value_name = "N")]
    device: Option<i32>,

    /// Leave out GPU work that no recorded operator asked for
    #[arg(long)]
    attributed_only: bool,
}

impl WindowArgs {
    /// As the core takes it.
    pub fn choice(&self) -> Choice {
        Choice {
            step: self.step,
            range_ms: self.window,
            device: self.device,
            attributed_only: self.attributed_only,
        }
    }

    /// Is work without an operator left out?
    pub fn attributed_only(&self) -> bool {
        self.attributed_only
    }

    /// The options as they were given, to reproduce a report.
    pub fn words(&self) -> Vec<[String; 2]> {
        let one = [
            ("--step", self.step.map(|n| n.to_string())),
            ("--window", self.window.map(|(a, b)| format!("{a}:{b}"))),
            ("--device", self.device.map(|n| n.to_string())),
        ];
        one.into_iter().filter_map(|(flag, value)| Some([flag.to_string(), value?])).collect()
    }
}

fn range(text: &str) -> Result<(f64, f64), String> {
    let parse = |t: &str| t.trim().parse::<f64>().ok().filter(|x| (0.0..1e12).contains(x));
    match text.split_once(':').map(|(a, b)| (parse(a), parse(b))) {
        Some((Some(a), Some(b))) if a < b => Ok((a, b)),
        _ => {
            Err("it must be two times in milliseconds, the first below the second, such as 10:25".to_string())
        }
    }
}

/// Reads a recording.
pub fn read(path: &Path) -> anyhow::Result<Profile> {
    Ok(preflop_import::import(path)?)
}

/// Analyses a recording; one without GPU times gets a hint on what would have them.
pub fn analyse<'a>(profile: &'a Profile, window: &WindowArgs) -> anyhow::Result<Analysis<'a>> {
    Analysis::new(profile, &window.choice()).map_err(|e| match e {
        WindowError::NoGpuWork(_) => InputError::new(e.to_string())
            .hint("record with ProfilerActivity.CUDA, or export with `nsys export --type sqlite`")
            .into(),
        other => InputError::new(other.to_string()).into(),
    })
}

/// The GPU a recording was made on: as the user says, or as the recording does.
pub fn origin(profile: &Profile, device: Option<i32>, said: Option<&str>) -> anyhow::Result<Option<Gpu>> {
    if let Some(name) = said {
        return Ok(Some(input::gpu(name)?));
    }
    let recorded = profile
        .devices
        .iter()
        .find(|d| device.is_some_and(|wanted| d.id == i64::from(wanted)))
        .or(profile.devices.first());
    Ok(recorded.and_then(origin::find))
}
