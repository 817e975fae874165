//! The GPUs that ship with the tool: `data/gpus/*.toml`, embedded.

use super::file::{parse, read};
use super::{Gpu, GpuError};
use preflop_units::names::did_you_mean;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../data/gpus/", $name, ".toml")))),*]
    };
}

/// Name and text of every embedded file.
pub const FILES: &[(&str, &str)] = files!(
    "k40"
    "k80"
    "m40"
    "m60"
    "titan-x-maxwell"
    "gtx-980"
    "titan-xp"
    "titan-v"
    "gtx-1080"
    "gtx-1080-ti"
    "p4000"
    "p4"
    "p100-pcie"
    "p100-sxm2"
    "v100-pcie-16gb"
    "v100-pcie-32gb"
    "v100-sxm2-16gb"
    "v100-sxm2-32gb"
    "vega-frontier"
    "rtx-2070"
    "rtx-2070-super"
    "rtx-2080-ti"
    "titan-rtx"
    "quadro-rtx-5000"
    "quadro-rtx-6000"
    "quadro-rtx-8000"
    "t4"
    "rtx-3070"
    "rtx-3080"
    "rtx-3090"
    "rtx-4080"
    "rtx-4090"
    "rtx-5090"
    "a100-pcie-40gb"
    "a100-pcie-80gb"
    "a100-sxm-40gb"
    "a100-sxm-80gb"
    "a2"
    "a10"
    "a30"
    "a40"
    "rtx-a4000"
    "rtx-a4500"
    "rtx-a5000"
    "rtx-a5500"
    "rtx-a6000"
    "jetson-agx-orin"
    "l4"
    "l20"
    "l40s"
    "rtx-6000-ada"
    "rtx-pro-6000"
    "h100-pcie"
    "h100-sxm"
    "h100-nvl"
    "h20"
    "gh200"
    "h200"
    "b200"
    "b300"
    "gb200"
    "gb300"
    "mi100"
    "mi210"
    "mi250"
    "mi250x"
    "mi300x"
    "mi325x"
);

/// The GPU of questions that name none.
pub const USUAL: &str = "h200";

/// GPUs that are compared where nobody names any: one of each class that is sold or rented today.
pub const TODAY: [&str; 9] =
    ["rtx-4090", "rtx-5090", "l4", "l40s", "a100-sxm-80gb", "h100-sxm", "h200", "b200", "mi300x"];

/// Names of all GPUs, in catalogue order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The part of a file before its first section, which holds name and aliases: cheap to read.
fn header(text: &str) -> &str {
    text.split("\n[").next().unwrap_or(text)
}

/// Other names of a catalogue GPU.
pub fn aliases(name: &str) -> Vec<String> {
    FILES
        .iter()
        .find(|(n, _)| *n == name)
        .and_then(|(_, text)| header(text).parse::<toml::Table>().ok())
        .and_then(|t| {
            t.get("aliases")?
                .as_array()
                .map(|a| a.iter().filter_map(|v| v.as_str().map(str::to_string)).collect())
        })
        .unwrap_or_default()
}

/// The catalogue GPU of that name or alias.
pub fn find(name: &str) -> Result<Gpu, GpuError> {
    let wanted = name.to_lowercase().replace([' ', '_'], "-");
    if let Some((file, text)) = FILES.iter().find(|(n, _)| *n == wanted) {
        return parse(text, file);
    }
    for (file, text) in FILES {
        if aliases(file).contains(&wanted) {
            return parse(text, file);
        }
    }
    let known: Vec<String> = names().map(str::to_string).chain(names().flat_map(aliases)).collect();
    let hint = did_you_mean(&wanted, known.iter().map(String::as_str));
    Err(GpuError::Unknown { name: name.to_string(), hint })
}

/// All catalogue GPUs.
pub fn all() -> Result<Vec<Gpu>, GpuError> {
    FILES.iter().map(|(file, text)| parse(text, file)).collect()
}

/// All catalogue files without defaults, for listings of what is sourced.
pub fn files() -> Result<Vec<super::GpuFile>, GpuError> {
    FILES.iter().map(|(file, text)| read(text, file)).collect()
}
