//! `preflop serve`: the web page and the JSON API.

use crate::error::InputError;
use crate::output::{self, Output};
use anyhow::Context as _;
use clap::Args;
use preflop_api::Engine;
use preflop_server::{Config, Limits, ServeError, Server};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

/// Serve the web page and a JSON API on this machine
///
/// The page has everything that the other commands know, live. It works offline; nothing is sent anywhere.
/// The API is described at /api and /api/v1/openapi.json.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop serve
  preflop serve --port 8080 --no-open")]
pub struct ServeArgs {
    /// Port; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = 7878)]
    port: u16,

    /// Address to listen on; any but this machine's own needs --allow-remote
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = host)]
    host: IpAddr,

    /// Let others reach the server; they must show a token
    #[arg(long)]
    allow_remote: bool,

    /// Token that clients must show [default: a new one where others can reach the server]
    #[arg(long, value_name = "TEXT", env = "PREFLOP_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// Do not open a browser
    #[arg(long)]
    no_open: bool,

    /// Print the OpenAPI document of the JSON API and end
    #[arg(long)]
    document: bool,

    /// Largest recording that can be uploaded, in MiB
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_upload_mib: u64,
}

fn host(text: &str) -> Result<IpAddr, String> {
    if text == "localhost" {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    text.parse().map_err(|_| "it must be an IP address, such as 127.0.0.1 or 0.0.0.0".to_string())
}

/// Binds, prints the address, serves until it is told to stop.
pub fn run(args: &ServeArgs, output: &Output) -> anyhow::Result<()> {
    if args.document {
        return output::print_json(&preflop_api::document());
    }
    let mut limits = Limits::default();
    limits.upload_bytes = args.max_upload_mib << 20;
    limits.unpacked_bytes = limits.unpacked_bytes.max(2 * limits.upload_bytes);
    let config = Config {
        host: args.host,
        port: args.port,
        allow_remote: args.allow_remote,
        token: args.token.clone(),
        limits,
    };
    // The scoreboard takes a moment: made when it is first asked for, then kept.
    let kept: OnceLock<Result<String, String>> = OnceLock::new();
    let scoreboard =
        move || kept.get_or_init(|| super::validate::scoreboard().map_err(|e| format!("{e:#}"))).clone();
    let engine = Engine::new(Some(Arc::new(scoreboard)))?.for_many();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let served = runtime.block_on(async {
        let stop = stopped();
        let server = Server::bind(config, engine).await.map_err(input_error)?;
        announce(&server, output)?;
        if !args.no_open {
            open(&server.url());
        }
        Ok(server.run(stop).await?)
    });
    // Whatever still computes has nobody left to answer.
    runtime.shutdown_timeout(LAST_WORDS);
    served
}

/// Time for threads that are at work when the server has ended.
const LAST_WORDS: std::time::Duration = std::time::Duration::from_millis(500);

fn input_error(error: ServeError) -> anyhow::Error {
    let hint = match &error {
        ServeError::Remote { .. } => "add --allow-remote to let them; they must then show a token",
        ServeError::Token { .. } => "leave out --token to have one made",
        ServeError::Bind { .. } => "take another port with --port N, or any free one with --port 0",
        _ => return error.into(),
    };
    InputError::new(error.to_string()).hint(hint).into()
}

fn announce(server: &Server, output: &Output) -> anyhow::Result<()> {
    if output.json {
        let answer = serde_json::json!({ "url": server.url(), "token": server.token() });
        return output::print_json(&answer);
    }
    let mut out = output::stdout();
    writeln!(out, "{}", server.url())?;
    writeln!(out, "{}", output.dim("Ctrl-C stops it. The API is described at /api."))?;
    Ok(out.flush()?)
}

/// Opens the page in a browser, where there is one. The address is printed in any case.
fn open(url: &str) {
    let (program, args): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    let nothing = Stdio::null;
    let _ = Command::new(program)
        .args(args)
        .arg(url)
        .stdin(nothing())
        .stdout(nothing())
        .stderr(nothing())
        .spawn();
}

/// Ends when the user or the system says so. Both are listened for from the call on, not from the first wait: whoever reads the address may say so at once.
fn stopped() -> impl Future<Output = ()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{Signal, SignalKind, signal};
        async fn heard(signal: std::io::Result<Signal>) {
            match signal {
                Ok(mut signal) => drop(signal.recv().await),
                Err(_) => std::future::pending().await,
            }
        }
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        async {
            tokio::select! {
                () = heard(interrupt) => {}
                () = heard(terminate) => {}
            }
        }
    }
    #[cfg(not(unix))]
    async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
