//! `preflop host`: how fast the host of this machine feeds a GPU, from a probe of a second.

use crate::destination;
use crate::error::InputError;
use crate::input;
use crate::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use preflop_calibrate::watch;
use preflop_core::time::Probe;
use serde::Deserialize;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Time this machine's host through PyTorch: it sets the pace of jobs with many small kernels
///
/// Run it where the job will run. Takes about a second and no GPU; needs a Python with PyTorch. The file goes into `--host`
/// of `predict`, `compare`, `report`, `advise` and `generate`, which then scale the host's time by it; without a probe it takes fast, usual, slow or a factor.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop host -o my.host.json")]
pub struct HostArgs {
    /// File to write
    #[arg(short, long, value_name = "FILE.host.json")]
    output: Option<PathBuf>,

    /// Python that has PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = if cfg!(windows) { "python" } else { "python3" })]
    python: String,

    /// Give up when the probe takes longer than so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// The program that Python runs.
const SCRIPT: &str = include_str!("../../data/host.py");
/// A host whose rounds differ by more was busy with something else.
const QUIET: f64 = 1.3;

/// Rounds of one kind of work.
#[derive(Debug, Default, Deserialize)]
struct Rounds {
    best_us: f64,
    median_us: f64,
}

/// What Python prints.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    operator: Rounds,
    module_call: Rounds,
    python: Rounds,
    torch: String,
    version: String,
    failed: Option<String>,
}

/// Lets Python time itself, writes and tells what it said.
pub fn run(args: &HostArgs, output: &Output) -> anyhow::Result<()> {
    if let Some(path) = &args.output {
        input::writable(path)?;
    }
    let probe = probe(args)?;
    if let Some(path) = &args.output {
        let text = serde_json::to_string_pretty(&probe)? + "\n";
        destination::write_bytes(path, text)?;
    }
    if output.json {
        let mut answer = serde_json::to_value(&probe)?;
        answer["factor"] = probe.factor().into();
        return output::print_json(&answer);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "an operator takes {:.2} us, a module call {:.2} us, a pass of a loop {:.3} us (PyTorch {}, Python {})",
        probe.operator_us, probe.module_call_us, probe.python_us, probe.torch, probe.python
    )?;
    writeln!(out, "the host takes {:.2} times as long as that of the measurements", probe.factor())?;
    if probe.unrest > QUIET {
        writeln!(
            out,
            "it was busy: the median round took {:.2} times the best one; measure again when it is idle",
            probe.unrest
        )?;
    }
    if let Some(path) = &args.output {
        let file = path.display();
        writeln!(out, "wrote {file}; use it as `--host {file}` in `predict`, `compare` and others")?;
    }
    Ok(out.flush()?)
}

fn probe(args: &HostArgs) -> anyhow::Result<Probe> {
    let hint = "`--python PROGRAM` names one that has PyTorch";
    let mut command = Command::new(&args.python);
    command.args(["-c", SCRIPT]);
    let mut last = String::new();
    watch::run(&mut command, Vec::new(), Duration::from_secs(args.timeout), |line| {
        line.clone_into(&mut last);
    })
    .map_err(|error| InputError::new(format!("`{}` cannot be timed: {error}", args.python)).hint(hint))?;
    let said: Said = serde_json::from_str(&last).with_context(|| {
        let shown: String = last.chars().take(200).collect();
        format!("`{}` printed `{shown}` instead of its times", args.python)
    })?;
    if let Some(why) = said.failed {
        return Err(InputError::new(format!("`{}` cannot be timed: {why}", args.python)).hint(hint).into());
    }
    let unrest = said.operator.median_us / said.operator.best_us;
    let probe = Probe {
        version: 1,
        operator_us: said.operator.best_us,
        module_call_us: said.module_call.best_us,
        python_us: said.python.best_us,
        unrest: if unrest.is_finite() { unrest } else { 1.0 },
        torch: said.torch,
        python: said.version,
    };
    // What would not be read back is not written.
    let text = serde_json::to_string(&probe)?;
    Ok(Probe::parse(&text, &args.python)?)
}
