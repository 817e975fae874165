//! The constants of a server's kernels by generation, as `data/fitted/served.toml` has them, and what trees know beside them (`served.bin`).

use super::forms::{EXPERT_START, PROMPT_START, Shape, TOKEN_START};
use preflop_core::gpu::{Architecture, Gpu};
use preflop_core::learned::trees::Forest;
use preflop_core::units::math::Elementary as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// The files, embedded.
const FILE: &str = include_str!("../../data/fitted/served.toml");
const TREES: &[u8] = include_bytes!("../../data/fitted/served.bin");

/// Constants of each kind of kernel (`prompt`, `token`, `experts.bf16`, ..) by generation.
pub type Lists = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

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

/// Whose kernels run on a generation that was not measured: those of the nearest that was. A server has one code for Ampere and Hopper, another for
/// Blackwell; Ada's kernels are Ampere's and its caches Hopper's. Of the orders that these reasons allow, the one that is best with the GPU left out.
pub fn kin(generation: Architecture) -> &'static [Architecture] {
    use Architecture as A;
    match generation {
        A::Ampere => &[A::Ampere, A::Hopper, A::Ada, A::Blackwell],
        A::Ada => &[A::Ada, A::Hopper, A::Ampere, A::Blackwell],
        A::Blackwell => &[A::Blackwell, A::Hopper, A::Ampere, A::Ada],
        A::Hopper | A::Cdna1 | A::Cdna2 | A::Cdna3 | A::Other => {
            &[A::Hopper, A::Ampere, A::Ada, A::Blackwell]
        }
        _ => &[A::Ampere, A::Ada, A::Hopper, A::Blackwell],
    }
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

    fn forest(&self, kind: &str, generation: Architecture) -> Option<&Forest> {
        let (bytes, opened) = self.forests.get(&format!("{kind}/{}", generation.name()))?;
        opened.get_or_init(|| Forest::from_bytes(bytes).map(|(forest, _)| forest)).as_ref()
    }

    /// The generation whose kernels speak for a GPU.
    pub fn speaks(&self, kind: &str, gpu: &Gpu) -> Option<Architecture> {
        let lists = self.lists.get(kind)?;
        kin(gpu.architecture).iter().copied().find(|g| lists.contains_key(g.name()))
    }

    /// Seconds of a kernel on a GPU: `prompt`, `token`, `experts.bf16`, `experts.fp8`, `experts.int4` or `experts.nvfp4`.
    pub fn seconds(&self, kind: &str, shape: &Shape, gpu: &Gpu) -> f64 {
        let start: &[f64] = match shape {
            Shape::Prompt(_) => &PROMPT_START,
            Shape::Token(_) => &TOKEN_START,
            Shape::Experts(_) => &EXPERT_START,
        };
        let Some(generation) = self.speaks(kind, gpu) else { return shape.form(start, gpu) };
        let list = self.lists.get(kind).and_then(|l| l.get(generation.name()));
        let usable = |l: &&Vec<f64>| l.len() == start.len() && l.iter().all(|x| x.is_finite() && *x > 0.0);
        let form = shape.form(list.filter(usable).map_or(start, Vec::as_slice), gpu);
        let log = self.forest(kind, generation).map_or(0.0, |f| f64::from(f.predict(&shape.features())));
        form * log.exponential()
    }
}

#[cfg(test)]
mod tests {
    use super::super::forms::Token;
    use super::*;
    use preflop_core::gpu::catalog;

    #[test]
    fn the_embedded_files_are_whole() {
        let all: File = toml::from_str(FILE).unwrap();
        let trees = open_trees(TREES).unwrap();
        let constants = Constants::embedded();
        assert!(all.kernels.len() >= 6);
        for (kind, lists) in &all.kernels {
            for generation in lists.keys() {
                assert!(trees.contains_key(&format!("{kind}/{generation}")), "{kind} {generation}");
                let generation = Architecture::ALL.into_iter().find(|a| a.name() == generation).unwrap();
                assert!(constants.forest(kind, generation).is_some(), "{kind} {generation:?}");
            }
        }
    }

    #[test]
    fn a_generation_that_was_measured_speaks_for_itself_and_for_its_kin() {
        let constants = Constants::embedded();
        let speaks = |gpu: &str| constants.speaks("token", &catalog::find(gpu).unwrap()).unwrap();
        assert_eq!(speaks("h200"), Architecture::Hopper);
        assert_eq!(speaks("b300"), Architecture::Blackwell);
        assert_eq!(speaks("v100"), Architecture::Ampere);
        assert_eq!(
            constants.speaks("experts.nvfp4", &catalog::find("h200").unwrap()),
            Some(Architecture::Blackwell)
        );
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
