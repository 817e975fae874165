//! Tables of convolution layers (CSV), as `preflop delta` and `preflop explore` read them.

use preflop_core::Dtype;
use preflop_core::delta::networks::NamedLayer;
use preflop_core::delta::{Layer, Tile};

/// The columns that every file of layers has.
const NEEDED: [&str; 10] = ["name", "b", "ci", "h", "w", "co", "r", "s", "stride", "pad"];
/// What a user who got them wrong is told.
pub const COLUMNS: &str = "columns: name,b,ci,h,w,co,r,s,stride,pad; groups, dilation and tile are optional";

/// A layer, and the CTA tile that the file gives it.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The layer.
    pub named: NamedLayer,
    /// Its tile.
    pub tile: Option<Tile>,
}

/// The layers of a table. An error begins with the place in the file: `, line 3: ..`.
pub fn read(bytes: &[u8]) -> Result<Vec<Listed>, String> {
    // A quoted cell may hold line breaks, and an error is one line.
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    listed(bytes).map_err(|error| error.chars().map(visible).collect())
}

fn listed(bytes: &[u8]) -> Result<Vec<Listed>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(bytes);
    let headers: Vec<String> = reader
        .headers()
        .map_err(|e| format!(": not a CSV file: {e}"))?
        .iter()
        .map(|h| h.trim_start_matches('\u{feff}').to_lowercase())
        .collect();
    if let Some(missing) = NEEDED.iter().find(|c| !headers.iter().any(|h| h == *c)) {
        return Err(format!(": the column `{missing}` is missing"));
    }
    let mut listed = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| format!(": not a CSV file: {e}"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = |column: &str| {
            let index = headers.iter().position(|h| h == column)?;
            record.get(index).filter(|text| !text.is_empty())
        };
        listed.push(row(&cell).map_err(|problem| format!(", line {line}: {problem}"))?);
    }
    if listed.is_empty() {
        return Err(": there is no layer in it".to_string());
    }
    Ok(listed)
}

fn row<'a>(cell: &impl Fn(&str) -> Option<&'a str>) -> Result<Listed, String> {
    let text = |column: &str| cell(column).ok_or_else(|| format!("`{column}` is empty"));
    let count = |column: &str| whole(column, text(column)?);
    let pair = |column: &str| sides(column, text(column)?);
    let layer = Layer {
        batch: count("b")?,
        ci: count("ci")?,
        h: count("h")?,
        w: count("w")?,
        co: count("co")?,
        r: count("r")?,
        s: count("s")?,
        stride: pair("stride")?,
        pad: pair("pad")?,
        dilation: cell("dilation").map_or(Ok([1, 1]), |t| sides("dilation", t))?,
        groups: cell("groups").map_or(Ok(1), |t| whole("groups", t))?,
        element_bytes: Dtype::Fp32.size(),
    };
    let name = text("name")?.to_string();
    layer.check().map_err(|e| e.in_layer(&name).to_string())?;
    let tile = cell("tile").map(|t| tile(t).map_err(|e| format!("layer `{name}`: {e}"))).transpose()?;
    Ok(Listed { named: NamedLayer { name, layer }, tile })
}

pub(crate) fn whole(column: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{column}` is `{text}`, not a whole number"))
}

/// `2` for both sides or `2x1` for height and width.
pub(crate) fn sides(column: &str, text: &str) -> Result<[u64; 2], String> {
    match text.split_once('x') {
        Some((h, w)) => Ok([whole(column, h)?, whole(column, w)?]),
        None => whole(column, text).map(|side| [side; 2]),
    }
}

/// `128x64` as kernels name their CTA tile.
pub fn tile(text: &str) -> Result<Tile, String> {
    let size = text.split_once('x').and_then(|(m, n)| Some((m.trim().parse().ok()?, n.trim().parse().ok()?)));
    let (m, n) = size.ok_or_else(|| format!("tile `{text}` is not HEIGHTxWIDTH, such as 128x64"))?;
    Tile::of_size(m, n).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_a_quoted_cell_is_one_line() {
        let text = b"name,b,ci,h,w,co,r,s,stride,pad\nconv,4,3,\"24,224\n64\"\n";
        let error = read(text).unwrap_err();
        assert!(error.contains("`h` is `24,224 64`") && !error.contains('\n'), "{error}");
    }
}
