//! `preflop sweep --engine ray`: the Python package does it, in a process of its own.

use super::{Summary, SweepArgs, finish};
use crate::error::InputError;
use crate::output::Output;
use anyhow::Context as _;
use serde::Deserialize;
use std::process::{Command, Stdio};

/// What Python runs. It says one line of JSON on standard output; progress goes to standard error.
const PROGRAM: &str = "import sys
try:
    from preflop.ray import _main
except ImportError as error:
    import json
    print(json.dumps({'error': f'this Python has no preflop.ray: {error}', 'hint': \"pip install 'preflop[ray]', or name another with --python\"}))
    sys.exit(2)
sys.exit(_main(sys.argv[1:]))";

/// What Python said.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Said {
    error: Option<String>,
    hint: Option<String>,
    rows: u64,
    failed: u64,
    parts: u64,
    seconds: f64,
}

pub(super) fn run(args: &SweepArgs, output: &Output) -> anyhow::Result<()> {
    for (flag, given) in [
        ("--shard", args.shard.is_some()),
        ("--threads", args.threads.is_some()),
        ("--gpu", args.gpu.is_some()),
    ] {
        if given {
            return Err(InputError::new(format!(
                "`{flag}` is for `--engine threads`; Ray shares the work out itself"
            ))
            .into());
        }
    }
    let mut command = Command::new(&args.python);
    command.args(["-c", PROGRAM, &args.study, "--output", &args.output]);
    if let Some(format) = args.format {
        command.args(["--format", format.name()]);
    }
    if let Some(address) = &args.address {
        command.args(["--address", address]);
    }
    if let Some(rows) = args.part_rows {
        command.args(["--part-rows", &rows.to_string()]);
    }
    if args.restart {
        command.arg("--restart");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().map_err(|e| {
        InputError::new(format!("cannot start `{}`: {e}", args.python)).hint("name a Python with --python")
    })?;
    let ended = child.wait_with_output().with_context(|| format!("`{}` did not end", args.python))?;
    let text = String::from_utf8_lossy(&ended.stdout);
    let said: Option<Said> = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    let Some(said) = said else {
        return Err(InputError::new(format!("`{}` ended without an answer ({})", args.python, ended.status))
            .hint("what it said stands above")
            .into());
    };
    if let Some(error) = said.error {
        let error = InputError::new(error);
        return Err(match said.hint {
            Some(hint) => error.hint(hint),
            None => error,
        }
        .into());
    }
    let summary = Summary {
        output: args.output.clone(),
        rows: said.rows,
        failed: Some(said.failed),
        parts: said.parts,
        missing_parts: 0,
        seconds: said.seconds,
    };
    finish(&summary, output)
}
