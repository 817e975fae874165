//! Constants of the convolution families, looked up by key with coarser keys to fall back on.

use super::fitted::Fitted;
use preflop_kernels::conv::{ConvConstants, ConvFamily, ConvKey, Task};
use preflop_kernels::conv_features::ConvTable;
use preflop_kernels::depthwise::StreamConstants;
use preflop_learned::choice::Variant;
use preflop_ops::Gemm;
use preflop_units::dtype::Dtype;
use std::collections::HashMap;

/// Constants of every key, with coarser keys filled in.
#[derive(Debug, Clone, Default)]
pub struct ConvForms {
    /// By [`ConvKey::index`].
    products: Vec<Option<ConvConstants>>,
    depthwise: Vec<Option<StreamConstants>>,
    /// Constants of single engines, by [`ConvKey::index`] and engine, and of their tiles; zeros stand for all tiles.
    engines: HashMap<(usize, EngineTile), ConvConstants>,
}

/// An engine and its tile.
type EngineTile = (u8, [u16; 3]);

/// Name of the constants of one engine of a key.
pub fn engine_key(key: &str, engine: u8) -> String {
    format!("{key}/engine{engine}")
}

/// Name of the constants of one tile of an engine of a key.
pub fn tile_key(key: &str, engine: u8, [rows, columns, depth]: [u16; 3]) -> String {
    format!("{}/{rows}x{columns}x{depth}", engine_key(key, engine))
}

/// Engine and tile from the end of such a name.
fn engine_and_tile(text: &str) -> Option<EngineTile> {
    let Some((engine, tile)) = text.split_once('/') else { return Some((text.parse().ok()?, [0; 3])) };
    let mut sides = tile.split('x').map(|v| v.parse().ok());
    Some((engine.parse().ok()?, [sides.next()??, sides.next()??, sides.next()??]))
}

/// The key itself, then each shorter one: `a/b/c`, `a/b`, `a`.
pub fn coarser(key: &str) -> impl Iterator<Item = &str> {
    let mut at = Some(key);
    std::iter::from_fn(move || {
        let now = at?;
        at = now.rfind('/').map(|i| &now[..i]);
        Some(now)
    })
}

impl ConvForms {
    /// From all fitted forms.
    pub fn new(fitted: &Fitted) -> Self {
        Self::from_forms(fitted.forms())
    }

    /// From forms by key; keys of other operators are left out.
    pub fn from_forms<'a>(forms: impl Iterator<Item = (&'a str, &'a [f64])>) -> Self {
        let table: HashMap<&str, &[f64]> = forms.filter(|(k, _)| k.starts_with("conv/")).collect();
        let mut out = Self {
            products: vec![None; ConvKey::COUNT],
            depthwise: vec![None; ConvKey::COUNT],
            engines: HashMap::new(),
        };
        let mut engines: HashMap<&str, Vec<(EngineTile, ConvConstants)>> = HashMap::new();
        for (key, values) in &table {
            if let Some((key, engine)) = key.rsplit_once("/engine")
                && let (Some(engine), Some(c)) = (engine_and_tile(engine), ConvConstants::from_slice(values))
            {
                engines.entry(key).or_default().push((engine, c));
            }
        }
        for key in ConvKey::all() {
            let text = key.text();
            for (engine, c) in engines.get(text.as_str()).into_iter().flatten() {
                out.engines.insert((key.index(), *engine), *c);
            }
            match coarser(&text).find_map(|k| table.get(k)) {
                Some(values) if key.streams() => {
                    out.depthwise[key.index()] = StreamConstants::from_slice(values);
                }
                Some(values) => out.products[key.index()] = ConvConstants::from_slice(values),
                None => {}
            }
        }
        out
    }
}

/// Constants together with the product model on one GPU: what the families of a convolution need.
pub struct ConvContext<'a> {
    /// Constants by key.
    pub forms: &'a ConvForms,
    /// Seconds of a plain product.
    pub product: &'a dyn Fn(&Gemm, Dtype) -> f64,
}

impl std::fmt::Debug for ConvContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConvContext").finish_non_exhaustive()
    }
}

impl ConvTable for ConvContext<'_> {
    fn product(&self, task: &Task, v: &Variant) -> ConvConstants {
        let key = ConvKey::new(task, v.family).index();
        for tile in [v.tile, [0; 3]] {
            if let Some(c) = self.forms.engines.get(&(key, (v.engine, tile))) {
                return *c;
            }
        }
        self.forms.products.get(key).copied().flatten().unwrap_or(ConvConstants::START)
    }

    fn plain_product(&self, gemm: &Gemm, dtype: Dtype) -> f64 {
        (self.product)(gemm, dtype)
    }

    fn depthwise(&self, task: &Task, family: ConvFamily) -> StreamConstants {
        let key = ConvKey::new(task, family).index();
        self.forms.depthwise.get(key).copied().flatten().unwrap_or(StreamConstants {
            t0: 4e-6,
            rate: 0.3,
            work: 0.0,
            wait: 0.0,
            block: 0.0,
        })
    }
}
