//! Whose measurements speak for a call on a GPU, and how near they are.
//!
//! Measurements lie on *reference* GPUs. What was learned from them is evaluated there, with the reference's own waves, cache and
//! balance; the figures of the GPU that is asked for enter through the closed form alone:
//!
//! ```text
//! time(gpu) = form(gpu) * exp(trust * learned(reference))
//! ```
//!
//! So a GPU that has more of anything is never slower, as long as the closed forms are not, and a copy of a reference's
//! file under another name predicts the same to the last bit. Which GPU is the reference of a generation is data: the
//! fit writes it beside the constants.

use crate::fitted::Fitted;
use preflop_gpu::{Architecture, Gpu, catalog};
use preflop_kernels::kernels_of;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A body of measurements, by the software that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// The project's own: eager PyTorch.
    Own,
    /// Published 16-bit and 8-bit products and attention of an inference server.
    Served,
    /// Published fp32 operators of PyTorch on GPUs without fast fp32 matrix units.
    Plain,
}

impl Library {
    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Served => "served",
            Self::Plain => "plain",
        }
    }
}

/// How near measurements are to the GPU that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Nearness {
    /// This very GPU was measured.
    Here,
    /// Another GPU of its generation was.
    Generation,
    /// Only GPUs of other generations were.
    Elsewhere,
}

impl Nearness {
    /// In words, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Here => "measured",
            Self::Generation => "generation measured",
            Self::Elsewhere => "never measured",
        }
    }
}

/// The measurements that speak for a call.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The GPU they were made on.
    pub reference: &'a Gpu,
    /// How near that is.
    pub nearness: Nearness,
}

/// Reference GPUs by library and generation, read from the catalogue when they are first asked for.
#[derive(Debug, Clone, Default)]
pub struct References {
    /// Each once, by name.
    gpus: Vec<(String, OnceLock<Option<Gpu>>)>,
    /// Places of those of a generation by library and generation, and of a library's first by library.
    of_generation: [[Option<usize>; Architecture::ALL.len()]; 3],
    first: [Option<usize>; 3],
}

impl References {
    /// As the fit names them: `library/generation` or `library`, and a GPU of the catalogue.
    pub fn new(fitted: &Fitted) -> Self {
        let mut gpus: Vec<(String, OnceLock<Option<Gpu>>)> = Vec::new();
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (key, name) in fitted.references() {
            let place = gpus.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
                gpus.push((name.to_string(), OnceLock::new()));
                gpus.len() - 1
            });
            places.insert(key, place);
        }
        let place = |key: &str| places.get(key).copied();
        let all = [Library::Own, Library::Served, Library::Plain];
        let mut of_generation = [[None; Architecture::ALL.len()]; 3];
        for library in all {
            for generation in Architecture::ALL {
                of_generation[library as usize][generation as usize] = place(key_of(library, generation));
            }
        }
        Self { of_generation, first: all.map(|library| place(library.name())), gpus }
    }

    fn get(&self, place: Option<usize>) -> Option<&Gpu> {
        let (name, gpu) = self.gpus.get(place?)?;
        gpu.get_or_init(|| catalog::find(name).ok()).as_ref()
    }

    /// Is it one of these GPUs, not a copy of one? Then it stays where it is as long as they do.
    pub fn hold(&self, gpu: &Gpu) -> bool {
        self.gpus.iter().filter_map(|(_, read)| read.get()?.as_ref()).any(|own| std::ptr::eq(own, gpu))
    }

    /// The GPU of the project's own measurements.
    pub fn own(&self) -> Option<&Gpu> {
        self.get(self.first[Library::Own as usize])
    }

    /// How near any measurement is to a GPU: what a whole network there rests on.
    pub fn nearness(&self, gpu: &Gpu) -> Nearness {
        let all = [Library::Own, Library::Served, Library::Plain];
        let nearest = all.map(|library| self.nearest(library, None, gpu).nearness);
        // Published sets have products or fp32 operators alone; a whole network is measured where the project's own are.
        match nearest {
            [Nearness::Here, ..] => Nearness::Here,
            [own, served, plain] if own.min(served).min(plain) < Nearness::Elsewhere => Nearness::Generation,
            _ => Nearness::Elsewhere,
        }
    }

    /// The measurements of a library that are nearest to a GPU: those of its generation, else of `near`, else the library's first.
    pub fn nearest<'a>(&'a self, library: Library, near: Option<Architecture>, gpu: &'a Gpu) -> Evidence<'a> {
        let own = kernels_of(gpu);
        let of = |generation: Architecture| {
            self.get(self.of_generation[library as usize].get(generation as usize).copied()?)
        };
        if let Some(reference) = of(own) {
            let older = matches!(gpu.architecture, Architecture::Kepler | Architecture::Maxwell);
            let nearness = match (gpu.same_figures(reference), older) {
                (true, _) => Nearness::Here,
                (_, true) => Nearness::Elsewhere,
                _ => Nearness::Generation,
            };
            return Evidence { reference, nearness };
        }
        let reference = near.and_then(of).or_else(|| self.get(self.first[library as usize])).unwrap_or(gpu);
        Evidence { reference, nearness: Nearness::Elsewhere }
    }
}

/// Key of a generation's reference.
fn key_of(library: Library, generation: Architecture) -> &'static str {
    use Architecture as A;
    match (library, generation) {
        (Library::Own, A::Hopper) => "own/hopper",
        (Library::Served, A::Ampere) => "served/ampere",
        (Library::Served, A::Ada) => "served/ada",
        (Library::Served, A::Hopper) => "served/hopper",
        (Library::Served, A::Blackwell) => "served/blackwell",
        (Library::Plain, A::Pascal) => "plain/pascal",
        (Library::Plain, A::Volta) => "plain/volta",
        (Library::Plain, A::Turing) => "plain/turing",
        (Library::Plain, A::Ampere) => "plain/ampere",
        (Library::Plain, A::Cdna1) => "plain/cdna1",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn references() -> References {
        References::new(&Fitted::embedded())
    }

    #[test]
    fn a_copy_under_another_name_is_the_measured_gpu() {
        let references = references();
        let mut copy = catalog::find("h200").unwrap();
        copy.name = "mine".to_string();
        assert_eq!(references.nearest(Library::Own, None, &copy).nearness, Nearness::Here);
        let more = copy.with_more(preflop_gpu::Resource::Dram, 1.01);
        assert_eq!(references.nearest(Library::Own, None, &more).nearness, Nearness::Generation);
    }

    #[test]
    fn generations_without_measurements_take_the_nearest() {
        let references = references();
        let volta = catalog::find("v100").unwrap();
        let near = references.nearest(Library::Served, Some(Architecture::Ampere), &volta);
        assert_eq!(near.nearness, Nearness::Elsewhere);
        assert_eq!(near.reference.architecture, Architecture::Ampere);
        assert_eq!(references.nearest(Library::Plain, None, &volta).nearness, Nearness::Generation);
    }
}
