//! `preflop page`: the whole application as one HTML file, with the core inside it as WebAssembly.

use super::roofline::page::escaped;
use crate::destination;
use crate::error::InputError;
use crate::output::{self, Output};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use clap::Args;
use std::io::Write as _;

/// Write the whole tool as one web page that needs no server and no network
///
/// All pages of `preflop serve` but the API, computed in the browser that opens the file; models and recordings are dropped on it.
/// The address of the page behind its `#` holds its state.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop page -o preflop.html
  preflop report resnet50 --gpu h200 --live -o live.html   # starts with this job")]
pub struct PageArgs {
    /// File to write
    #[arg(short, long, value_name = "FILE")]
    output: String,
}

/// Writes the page.
pub fn run(args: &PageArgs, output: &Output) -> anyhow::Result<()> {
    let page = alone("/predict")?;
    destination::write_bytes(&args.output, &page)?;
    let bytes = page.len();
    if output.json {
        return output::print_json(&serde_json::json!({ "file": args.output, "bytes": bytes }));
    }
    let mut out = output::stdout();
    writeln!(out, "page written to {} ({} kB)", args.output, bytes.div_ceil(1000))?;
    Ok(out.flush()?)
}

/// The packed core that was built into this program, if one was.
#[cfg(page_core)]
const CORE: Option<&[u8]> = Some(include_bytes!(env!("PREFLOP_PAGE_CORE")));
#[cfg(not(page_core))]
const CORE: Option<&[u8]> = None;

/// The application with its core, opened at an address of its own such as `/predict?model=resnet50`.
pub fn alone(start: &str) -> anyhow::Result<String> {
    let core = CORE.ok_or_else(|| {
        InputError::new("this program was built without the core for the browser")
            .hint("in a copy of the repository, `cargo xtask page` builds it and writes preflop.html")
    })?;
    let scoreboard = super::validate::scoreboard()?;
    let (script, style) = preflop_server::application();
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"preflop {}\">\n\
         <meta name=\"preflop-start\" content=\"{}\">\n<title>Preflop</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>{style}</style>\n</head>\n<body>\n<div id=\"app\"></div>\n\
         <noscript>This page computes with JavaScript. `preflop predict` says the same in a terminal.</noscript>\n\
         <script id=\"core\" type=\"application/octet-stream\">{}</script>\n\
         <script id=\"accuracy-data\" type=\"application/json\">{}</script>\n\
         <script type=\"module\">{}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        escaped(start),
        BASE64_STANDARD.encode(core),
        // Inside a script element only `</` and `<!--` could end or change the meaning of the text.
        scoreboard.replace('<', "\\u003c"),
        script.replace("</script", "<\\/script").replace("<!--", "<\\!--"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_the_core_says_what_to_do_and_one_with_it_writes_one_file() {
        match alone("/predict?model=a\"b") {
            Err(error) => assert!(CORE.is_none() && format!("{error:#}").contains("without the core")),
            Ok(page) => {
                assert!(page.contains("content=\"/predict?model=a&quot;b\""));
                assert!(page.len() < 8_000_000, "{} bytes", page.len());
                for link in ["src=\"/", "href=\"/", "src=\"http", "url(http", "@import"] {
                    assert!(!page.contains(link), "{link}");
                }
            }
        }
    }
}
