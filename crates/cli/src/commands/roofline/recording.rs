//! Recorded work: a profile instead of a model.

use super::view::View;
use crate::commands::profile::{self, WindowArgs};
use crate::error::InputError;
use crate::input;
use clap::Args;
use preflop_core::Gpu;
use preflop_core::model::zoo;
use preflop_core::profile::{Analysis, Profile};
use preflop_core::roofline::{By, Machine, Rows, entries_of_profile};
use preflop_core::time::TimeModel;
use std::path::Path;

/// What is asked of a recording.
#[derive(Debug, Clone, Args)]
pub struct RecordingArgs {
    /// GPU of the recording, where it does not say
    #[arg(long, value_name = "GPU", help_heading = "Recordings")]
    pub from: Option<String>,

    #[command(flatten, next_help_heading = "Recordings")]
    pub window: WindowArgs,
}

impl RecordingArgs {
    /// The options as they were given, to reproduce a report.
    pub fn words(&self) -> Vec<[String; 2]> {
        let from = self.from.iter().map(|gpu| ["--from".to_string(), gpu.clone()]);
        from.chain(self.window.words()).collect()
    }
}

/// The recording of this name, or nothing where it names a model: of the zoo, or a captured graph.
pub fn read(name: &str) -> anyhow::Result<Option<Profile>> {
    let path = Path::new(name);
    if zoo::info(name).is_ok() || !path.is_file() || is_graph(name) {
        return Ok(None);
    }
    profile::read(path).map(Some)
}

/// Is it an exported network, or a JSON file that holds a model?
fn is_graph(name: &str) -> bool {
    let extension = Path::new(name).extension().map(std::ffi::OsStr::to_ascii_lowercase);
    match extension.as_ref().and_then(|e| e.to_str()) {
        Some("onnx" | "pt2") => true,
        Some("json") => input::model(name, None, None).is_ok(),
        _ => false,
    }
}

/// The GPU that the times were measured on: as the user says, as the recording says, or the first one asked for.
pub fn origin(analysis: &Analysis, args: &RecordingArgs, asked: &[Gpu]) -> anyhow::Result<Gpu> {
    let device = Some(analysis.window.device);
    let found = profile::origin(analysis.profile, device, args.from.as_deref())?;
    found.or_else(|| asked.first().cloned()).ok_or_else(|| {
        let message = format!("`{}` does not say which GPU it was recorded on", analysis.profile.source);
        InputError::new(message).hint("name it, such as `--from h100-sxm`").into()
    })
}

/// `trace.json, one iteration of 3 recorded`.
pub fn title(analysis: &Analysis) -> String {
    let iterations = analysis.window.iterations;
    let which = if iterations > 1 {
        format!("mean of {iterations} recorded iterations")
    } else {
        "as recorded".to_string()
    };
    format!("{}, {which}", analysis.profile.source)
}

/// Title and view of a recording.
pub fn collect(
    recording: &Profile,
    args: &RecordingArgs,
    asked: &[Gpu],
    by: By,
) -> anyhow::Result<(String, Vec<View>)> {
    let analysis = profile::analyse(recording, &args.window)?;
    let gpu = origin(&analysis, args, asked)?;
    if let Some(other) = asked.iter().find(|g| g.name != gpu.name) {
        let message = format!("`{}` was recorded on {}, not {}", recording.source, gpu.name, other.name);
        return Err(InputError::new(message)
            .hint("`--from` says where it was recorded; `preflop transfer` carries it to other GPUs")
            .into());
    }
    let (entries, sources) = entries_of_profile(&analysis, &TimeModel::embedded(), &gpu);
    let machine = Machine::of(&gpu);
    let view = View {
        label: String::new(),
        rows: Rows::new(&entries, by, &machine),
        machine,
        iteration: Some(analysis.measured()),
        host: Some(analysis.host()),
        sources: Some(sources),
    };
    Ok((title(&analysis), vec![view]))
}
