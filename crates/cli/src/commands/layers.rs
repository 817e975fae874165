//! Layers for `delta` and `explore`: a network by name or a CSV file.

use crate::error::InputError;
use crate::input;
use preflop_core::Dtype;
use preflop_core::delta::Tile;
use preflop_core::delta::networks;
use preflop_import::layer_table;
pub use preflop_import::layer_table::Listed;
use std::path::Path;

/// A file of layers is a list of lines; this is half a million of them.
pub const MAX_FILE: u64 = 32 << 20;
/// The paper's batch.
const DEFAULT_BATCH: u64 = 256;

/// The layers of a network or file. A batch given on the command line wins over the file's.
pub fn read(network: &str, batch: Option<u64>, dtype: Dtype, fc: bool) -> anyhow::Result<Vec<Listed>> {
    let mut listed = if is_file(network) {
        from_csv(network)?
    } else {
        let find = if fc { networks::find_with_fc } else { networks::find };
        find(network, DEFAULT_BATCH)?.into_iter().map(|named| Listed { named, tile: None }).collect()
    };
    for l in &mut listed {
        l.named.layer.element_bytes = dtype.size();
        if let Some(batch) = batch {
            l.named.layer.batch = batch;
        }
    }
    Ok(listed)
}

fn is_file(name: &str) -> bool {
    name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))
}

fn from_csv(path: &str) -> anyhow::Result<Vec<Listed>> {
    let bytes = input::read_limited(path, MAX_FILE, "list of layers")?;
    layer_table::read(&bytes)
        .map_err(|e| InputError::new(format!("{path}{e}")).hint(layer_table::COLUMNS).into())
}

/// `128x64` as kernels name their CTA tile.
pub fn tile(text: &str) -> Result<Tile, String> {
    layer_table::tile(text)
}

/// For `--dtype`.
pub fn dtype(text: &str) -> Result<Dtype, String> {
    Dtype::MATH.into_iter().find(|d| d.name() == text.to_lowercase()).ok_or_else(|| {
        let known: Vec<&str> = Dtype::MATH.iter().map(|d| d.name()).collect();
        format!("it must be one of {}", known.join(", "))
    })
}
