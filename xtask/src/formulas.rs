//! Formulas of the documents, drawn: blocks of kind `math` and words between `$` signs become MathML, which browsers draw by themselves.

use anyhow::Context as _;
use pulldown_latex::config::DisplayMode;
use pulldown_latex::{Parser, RenderConfig, Storage, push_mathml};

const START: &str = "```math\n";
const END: &str = "\n```";

/// The document with its formulas drawn. One without blocks of formulas is left as it is: there a `$` is a dollar.
pub fn drawn(text: &str) -> anyhow::Result<String> {
    let mut out = String::new();
    let mut rest = text;
    if !rest.contains(START) {
        return Ok(text.to_string());
    }
    while let Some((before, after)) = rest.split_once(START) {
        let (formula, behind) = after.split_once(END).context("a block of kind `math` does not end")?;
        out.push_str(&inline(before)?);
        // Inside HTML a blank line would end the block.
        out.push_str(&mathml(formula, DisplayMode::Block)?.replace('\n', " "));
        rest = behind;
    }
    Ok(out + &inline(rest)?)
}

/// Every second piece between `$` signs is a formula.
fn inline(text: &str) -> anyhow::Result<String> {
    let pieces: Vec<&str> = text.split('$').collect();
    anyhow::ensure!(pieces.len() % 2 == 1, "a `$` is not closed in: {}", text.trim());
    let mut out = String::new();
    for (i, piece) in pieces.into_iter().enumerate() {
        out.push_str(&if i % 2 == 0 { piece.to_string() } else { mathml(piece, DisplayMode::Inline)? });
    }
    Ok(out)
}

fn mathml(formula: &str, display_mode: DisplayMode) -> anyhow::Result<String> {
    let storage = Storage::new();
    let events: Result<Vec<_>, _> = Parser::new(formula, &storage).collect();
    let events = events.map_err(|e| anyhow::anyhow!("the formula `{formula}` cannot be drawn: {e}"))?;
    let config = RenderConfig { display_mode, ..RenderConfig::default() };
    let mut out = String::new();
    push_mathml(&mut out, events.into_iter().map(Ok::<_, std::convert::Infallible>), config)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_mathml_and_dollars_stay() {
        let text = "Where $x$ is\n\n```math\n\\frac{a}{b}\n```\n\nand so on.";
        let drawn = drawn(text).unwrap();
        assert!(drawn.contains("<mfrac>") && drawn.contains("<mi>"), "{drawn}");
        assert!(!drawn.contains('$') && !drawn.contains("```"), "{drawn}");
        assert_eq!(super::drawn("costs $3 an hour").unwrap(), "costs $3 an hour");
        assert!(super::drawn("```math\n\\frac{a\n```").is_err());
    }
}
