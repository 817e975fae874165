//! `preflop explain`: where the time of a recording goes, and what would help.

use super::profile::{self, WindowArgs};
use crate::output::{self, Output};
use clap::Args;
use preflop_core::profile::render::{self, Style};
use preflop_core::profile::{Profile, explain};
use preflop_core::time::TimeModel;
use preflop_import::Recorded;
use std::io::Write as _;
use std::path::PathBuf;

/// Explain where the time of a recording goes and what would help
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop explain trace.json.gz
  preflop explain run.sqlite --json")]
pub struct ExplainArgs {
    /// Recording: PyTorch profiler JSON, Nsight Systems SQLite, Nsight Compute CSV or Chakra JSON, plain, .gz or .zst; or VTune's summary of the host
    profile: PathBuf,

    /// GPU of the recording, where it does not say
    #[arg(long, value_name = "GPU")]
    from: Option<String>,

    /// Print Markdown
    #[arg(long, visible_alias = "markdown", conflicts_with = "json")]
    md: bool,

    #[command(flatten)]
    window: WindowArgs,
}

/// Does the recording hold operators or counters alone?
fn is_untimed(profile: &Profile) -> bool {
    profile.gpu_events.is_empty()
}

/// Reads, explains, prints.
pub fn run(args: &ExplainArgs, output: &Output) -> anyhow::Result<()> {
    let style = if args.md { Style::Markdown } else { Style::Text { width: output.width } };
    let profile = match preflop_import::recorded(&args.profile)? {
        Recorded::Run(profile) => profile,
        Recorded::Host(host) => {
            if output.json {
                return output::print_json(&host);
            }
            return write(&host.render(style));
        }
    };
    let text = if is_untimed(&profile) {
        let untimed = explain::explain_untimed(&profile);
        if output.json {
            return output::print_json(&untimed);
        }
        render::untimed(&untimed, style)
    } else {
        let analysis = profile::analyse(&profile, &args.window)?;
        let gpu = profile::origin(&profile, Some(analysis.window.device), args.from.as_deref())?;
        let explanation = explain::explain(&analysis, &TimeModel::embedded(), gpu.as_ref());
        if output.json {
            return output::print_json(&explanation);
        }
        render::explanation(&explanation, style)
    };
    write(&text)
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = output::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
