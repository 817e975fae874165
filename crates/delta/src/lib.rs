//! DeLTA: memory traffic and time of im2col convolutions (Lym et al., ISPASS 2019), as published.
//!
//! A convolution becomes a matrix product of M = B·H_o·W_o rows (output pixels), N = C_o columns (output
//! channels) and depth K = C_i·H_f·W_f, cut into CTA tiles. The steps stand in the paper's order:
//! layer -> [`tile`] -> traffic at L1 ([`l1`]), L2 ([`l2`]) and DRAM ([`dram`]) -> [`time`] -> report.
//!
//! The paper's symbols, once for all modules:
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | B, C_i, H_i, W_i | `batch`, `ci`, `h`, `w` | images, input channels, input height and width without padding |
//! | C_o, H_f, W_f | `co`, `r`, `s` | output channels, filter height and width |
//! | Strd, Pad | `stride`, `pad` | filter step, zero padding on each side |
//! | IFmap, OFmap | | input and output feature maps |
//! | M, N, K | `m`, `n`, `k` | matrix dimensions of one channel group |
//! | blk_M, blk_N, blk_K | `blk_m`, `blk_n`, `blk_k` | CTA tile and its depth per main-loop iteration |
//! | blk_WM, blk_WN | `warp_m`, `warp_n` | warp tile |
//! | MLI | `mli_*` | memory load inefficiency: bytes requested per byte used |
//! | TpL | | traffic of one CTA in one main-loop iteration |
//! | t_GLS, t_SAS, t_CS | `gls`, `sas`, `cs` | time of the global-load, shared-memory and compute stream per iteration |
//!
//! Where an equation can be read in several ways, the reading taken is said at its function; those that a
//! caller may change are in [`Readings`]. docs/delta.md lists all of them with what they give.

pub mod dram;
mod error;
pub mod explore;
pub mod l1;
pub mod l2;
mod layer;
mod machine;
pub mod measured;
pub mod networks;
mod networks_data;
pub mod prior;
mod report;
pub mod sensitivity;
pub mod tile;
pub mod time;

pub use error::DeltaError;
pub use layer::{Gemm, Layer};
pub use machine::{Machine, SMEM_LOAD_SHARE};
pub use report::{Bottleneck, LayerReport, Traffic};
pub use tile::{EdgeTiles, Fig6, FixedTile, Tile, TilePolicy};

/// How MLI_Filter is taken where the paper's text and its geometry differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FilterMli {
    /// 2.0 for blk_K = 8 in fp32 as printed (the geometry gives 1.875), geometry elsewhere.
    #[default]
    Published,
    /// Geometry everywhere.
    Exact,
}

/// What the compute stream issues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Instructions {
    /// Multiplications alone, as Eq. 13 prints it.
    #[default]
    Multiplications,
    /// All that takes an issue slot ([`time::cs`]).
    All,
}

/// What a CTA shows that has an SM to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoneCta {
    /// Nothing: its arithmetic fills the SM, as Eq. 16 has it.
    #[default]
    Hidden,
    /// Its way through shared memory, from one input tile to the next ([`time::chain`]).
    Exposed,
}

/// Readings of the paper that a caller can choose between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readings {
    /// MLI of the filter loads.
    pub filter_mli: FilterMli,
    /// What the compute stream issues.
    pub instructions: Instructions,
    /// What a CTA shows that has an SM to itself.
    pub lone_cta: LoneCta,
}

/// A layer cut into tiles, with its traffic: what does not depend on rates, and so holds for a whole sweep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Matrix dimensions.
    pub gemm: Gemm,
    /// CTA tile.
    pub tile: Tile,
    /// Bytes of one element.
    pub element_bytes: f64,
    /// CTAs of all groups.
    pub num_cta: f64,
    /// Bytes at each level.
    pub traffic: Traffic,
    /// What the compute stream issues.
    pub instructions: Instructions,
    /// What a CTA shows that has an SM to itself.
    pub lone_cta: LoneCta,
}

/// Cuts a layer into tiles and counts its traffic; the machine only tells its request sizes.
pub fn plan(
    layer: &Layer,
    machine: &Machine,
    policy: &dyn TilePolicy,
    readings: Readings,
) -> Result<Work, DeltaError> {
    layer.check()?;
    let tile = policy.tile(layer);
    let gemm = layer.gemm();
    let rows = (gemm.m / tile.blk_m).ceil();
    let columns = (gemm.n / tile.blk_n).ceil();
    let num_cta = rows * columns * gemm.groups;

    let l1 = l1::total(layer, &gemm, &tile, machine, readings);
    let l2 = l2::total(layer, &gemm, &tile);
    let dram = dram::total(layer, &gemm, columns);
    // Eq. 9 is a distance estimate and Eq. 10 a count: on odd shapes (tiny maps, strides above the filter)
    // they can contradict each other. A load that reaches an outer level has passed the inner ones.
    let l2 = l2.min(l1).max(dram);
    let l1 = l1.max(l2);

    Ok(Work {
        gemm,
        tile,
        element_bytes: layer.element_bytes,
        num_cta,
        traffic: Traffic { l1, l2, dram },
        instructions: readings.instructions,
        lone_cta: readings.lone_cta,
    })
}

/// Traffic, time and bottleneck of a layer.
pub fn evaluate(
    layer: &Layer,
    machine: &Machine,
    policy: &dyn TilePolicy,
    readings: Readings,
) -> Result<LayerReport, DeltaError> {
    machine.check()?;
    Ok(time::report(&plan(layer, machine, policy, readings)?, machine))
}
