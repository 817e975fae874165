//! The constants of a server's kernels, as `data/fitted/served.toml` has them, and what trees know beside them by generation (`served.bin`).

use super::forms::{Shape, of_data_centres};
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::learned::trees::Forest;
use preflop_core::units::math::Elementary as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The files, embedded.
const FILE: &str = include_str!("../../data/fitted/served.toml");
const TREES: &[u8] = include_bytes!("../../data/fitted/served.bin");

/// Constants of each form (`prompt`, `token`, `experts.bf16`, ..).
pub type Lists = BTreeMap<String, Vec<f64>>;

/// A forest that is decoded when it is first asked.
type Packed = (&'static [u8], OnceLock<Option<Forest>>);

/// All that is known of a server's kernels.
#[derive(Debug, Default)]
pub struct Constants {
    lists: Lists,
    forests: BTreeMap<String, Packed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    kernels: Lists,
}

/// Packs forests by name.
pub fn write_trees(forests: &BTreeMap<String, Forest>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, forest) in forests {
        out.push(name.len() as u8);
        out.extend(name.as_bytes());
        out.extend(forest.to_bytes());
    }
    out
}

fn open_trees(mut rest: &'static [u8]) -> Option<BTreeMap<String, Packed>> {
    let mut out = BTreeMap::new();
    while let Some((&long, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(long.into())?;
        let (own, after) = Forest::split(after)?;
        out.insert(std::str::from_utf8(name).ok()?.to_string(), (own, OnceLock::new()));
        rest = after;
    }
    Some(out)
}

impl Constants {
    /// Those that ship with the tool; of a damaged file the starting points are left.
    pub fn embedded() -> Self {
        Self {
            lists: toml::from_str::<File>(FILE).map(|file| file.kernels).unwrap_or_default(),
            forests: open_trees(TREES).unwrap_or_default(),
        }
    }

    fn packed(&self, kind: &str, gpu: &Gpu) -> Option<&Packed> {
        let other = gpu.architecture == Architecture::Blackwell && !of_data_centres(gpu);
        (!other).then(|| self.forests.get(&format!("{kind}/{}", gpu.architecture.name()))).flatten()
    }

    fn forest(&self, kind: &str, gpu: &Gpu) -> Option<&Forest> {
        let (bytes, opened) = self.packed(kind, gpu)?;
        opened.get_or_init(|| Forest::from_bytes(bytes).map(|(forest, _)| forest)).as_ref()
    }

    /// Were these kernels measured on a GPU of this generation?
    pub fn measured(&self, kind: &str, gpu: &Gpu) -> bool {
        self.packed(kind, gpu).is_some()
    }

    /// Seconds of a kernel on a GPU: `prompt`, `token`, `experts.bf16`, `experts.fp8`, `experts.int4`, `experts.nvfp4`, `product.fp8`, `product.fp8_block` or `product.nvfp4`. The closed form with constants that all GPUs share, and what
    /// the trees of its generation, where that was measured, know beside it.
    pub fn seconds(&self, kind: &str, shape: &Shape, gpu: &Gpu) -> f64 {
        let usable =
            |l: &&Vec<f64>| l.len() == shape.constants().len() && l.iter().all(|x| x.is_finite() && *x > 0.0);
        let list = self.lists.get(kind).filter(usable);
        // Without a list a form takes where its constants start.
        let form = shape.form(list.map_or(&[], Vec::as_slice), gpu);
        let log = self.forest(kind, gpu).map_or(0.0, |f| f64::from(f.predict(&shape.features())));
        form * log.exponential()
    }
}

#[cfg(test)]
mod tests {
    use super::super::attention::{PROMPT, TOKEN, Token};
    use super::super::experts::GROUPED;
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn the_embedded_files_are_whole() {
        let all: File = toml::from_str(FILE).unwrap();
        let constants = Constants::embedded();
        assert_eq!(
            all.kernels.keys().collect::<Vec<_>>(),
            [
                "experts.bf16",
                "experts.fp8",
                "experts.int4",
                "experts.nvfp4",
                "product.fp8",
                "product.fp8_block",
                "product.nvfp4",
                "prompt",
                "token"
            ]
        );
        for (list, form) in
            [("prompt", PROMPT.len()), ("token", TOKEN.len()), ("experts.bf16", GROUPED.len())]
        {
            assert_eq!(all.kernels[list].len(), form, "{list}");
        }
        let trees = open_trees(TREES).unwrap();
        assert!(trees.len() >= 15, "{}", trees.len());
        for name in trees.keys() {
            let (kind, generation) = name.split_once('/').unwrap();
            let generation = Architecture::ALL.into_iter().find(|a| a.name() == generation).unwrap();
            let gpu = ["a100", "l40s", "h100-sxm", "b200"].map(|gpu| catalog::find(gpu).unwrap());
            let gpu = gpu.iter().find(|gpu| gpu.architecture == generation).unwrap();
            assert!(constants.forest(kind, gpu).is_some() && all.kernels.contains_key(kind));
        }
    }

    #[test]
    fn generations_that_were_measured_are_known() {
        let constants = Constants::embedded();
        let measured = |kind: &str, gpu: &str| constants.measured(kind, &catalog::find(gpu).unwrap());
        assert!(measured("token", "h200") && measured("token", "b300") && !measured("token", "v100"));
        assert!(!measured("token", "rtx-5090"));
        assert!(measured("experts.nvfp4", "b200") && !measured("experts.nvfp4", "h200"));
    }

    #[test]
    fn attention_of_new_tokens_is_near_what_was_published() {
        let (constants, gpu) = (Constants::embedded(), catalog::find("h100-sxm").unwrap());
        let a = Token::LONG;
        let seconds = constants.seconds("token", &Shape::Token(a), &gpu);
        // 2.1 GB of keys and values at 3.35 TB/s take 0.64 ms.
        assert!((0.64e-3..0.9e-3).contains(&seconds), "{seconds}");
    }
}
