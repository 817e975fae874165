//! Constants of the convolution families, looked up by key with coarser keys to fall back on.

use super::fitted::Fitted;
use preflop_kernels::conv::{ConvConstants, ConvFamily, ConvKey, Task};
use preflop_kernels::conv_features::ConvTable;
use preflop_kernels::depthwise::StreamConstants;
use preflop_learned::choice::Variant;
use preflop_ops::Gemm;
use preflop_units::dtype::Dtype;

/// Constants of every key, with coarser keys filled in.
#[derive(Debug, Clone, Default)]
pub struct ConvForms {
    /// By [`ConvKey::index`] the place in one of the lists that follow; which one, the family tells.
    nearest: Vec<Option<u16>>,
    products: Vec<Option<ConvConstants>>,
    depthwise: Vec<Option<StreamConstants>>,
    /// Constants of single engines, by [`ConvKey::index`] and engine, and of their tiles; zeros stand for all tiles. In
    /// order.
    engines: Vec<((usize, EngineTile), ConvConstants)>,
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
        let mut out = Self { nearest: vec![None; ConvKey::COUNT], ..Self::default() };
        let (mut of_keys, mut of_engines): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (text, values) in forms.filter(|(text, _)| text.starts_with("conv/")) {
            match text.rsplit_once("/engine") {
                Some((key, engine)) => of_engines.push((key, engine, values)),
                None => of_keys.push((text.matches('/').count(), text, values)),
            }
        }
        // Coarser keys first, so that finer ones replace them.
        of_keys.sort_by_key(|(parts, ..)| *parts);
        for (_, text, values) in of_keys {
            let [product, stream] = [out.products.len(), out.depthwise.len()].map(|n| u16::try_from(n).ok());
            for key in ConvKey::under(text) {
                out.nearest[key.index()] = if key.streams() { stream } else { product };
            }
            out.products.push(ConvConstants::from_slice(values));
            out.depthwise.push(StreamConstants::from_slice(values));
        }
        // Engines of one key follow each other.
        let mut last: (&str, Option<ConvKey>) = ("", None);
        for (text, engine, values) in of_engines {
            if last.0 != text {
                last = (text, ConvKey::under(text).into_iter().find(|key| key.text() == text));
            }
            if let (Some(key), Some(engine), Some(c)) =
                (last.1, engine_and_tile(engine), ConvConstants::from_slice(values))
            {
                out.engines.push(((key.index(), engine), c));
            }
        }
        out.engines.sort_by_key(|(of, _)| *of);
        out
    }

    /// The constants of an engine and tile.
    fn engine(&self, of: (usize, EngineTile)) -> Option<&ConvConstants> {
        let at = self.engines.binary_search_by_key(&of, |(of, _)| *of).ok()?;
        Some(&self.engines[at].1)
    }

    fn nearest(&self, key: usize) -> Option<usize> {
        self.nearest.get(key).copied().flatten().map(usize::from)
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
            if let Some(c) = self.forms.engine((key, (v.engine, tile))) {
                return *c;
            }
        }
        let nearest = self.forms.nearest(key).and_then(|at| self.forms.products[at]);
        nearest.unwrap_or(ConvConstants::START)
    }

    fn plain_product(&self, gemm: &Gemm, dtype: Dtype) -> f64 {
        (self.product)(gemm, dtype)
    }

    fn depthwise(&self, task: &Task, family: ConvFamily) -> StreamConstants {
        let key = ConvKey::new(task, family).index();
        let nearest = self.forms.nearest(key).and_then(|at| self.forms.depthwise[at]);
        nearest.unwrap_or(StreamConstants {
            t0: 4e-6,
            rate: 0.3,
            work: 0.0,
            wait: 0.0,
            block: 0.0,
            tried: 0.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn every_key_has_the_constants_of_the_longest_text_that_it_begins_with() {
        let fitted = Fitted::embedded();
        let table: HashMap<&str, &[f64]> = fitted.forms().collect();
        let forms = ConvForms::new(&fitted);
        let mut found = 0;
        for key in ConvKey::all() {
            let text = key.text();
            let longest = coarser(&text).find_map(|k| table.get(k));
            let at = forms.nearest(key.index());
            if key.streams() {
                let expected = longest.and_then(|v| StreamConstants::from_slice(v));
                assert_eq!(at.and_then(|at| forms.depthwise[at]), expected, "{text}");
            } else {
                let expected = longest.and_then(|v| ConvConstants::from_slice(v));
                assert_eq!(at.and_then(|at| forms.products[at]), expected, "{text}");
            }
            for ((of, (engine, tile)), c) in forms.engines.iter().filter(|e| e.0.0 == key.index()) {
                assert_eq!(*of, key.index());
                let name = if *tile == [0; 3] {
                    engine_key(&text, *engine)
                } else {
                    tile_key(&text, *engine, *tile)
                };
                assert_eq!(Some(*c), ConvConstants::from_slice(table[name.as_str()]));
                found += 1;
            }
        }
        let engines = table.keys().filter(|k| k.starts_with("conv/") && k.contains("/engine")).count();
        assert_eq!(found, engines);
    }
}
