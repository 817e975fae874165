//! The closed form of a tiled matrix product: the least time over output tiles and split-K factors.
//!
//! For a tile of `bm` x `bn` results and `s` parts of the sum:
//!
//! ```text
//! tiles = ceil(M/bm) * ceil(N/bn) * B * s          CTAs of the grid
//! ks    = ceil(K/s/32) * 32                        length of one part
//! wv    = ceil(tiles/SM)                           CTAs that one SM runs in turn; a share `uneven` of what the last wave lacks is saved ([`Machine`])
//! occ   = clamp(floor(16384/(bm*bn)), 1, 4)        CTAs that fit an SM together
//! frac  = min(1, min(wv,occ) * min(1, bm*bn/16384)^pw)   one small CTA cannot fill an SM
//! teff  = 1/(1 + slope*(1/bm + 1/bn))              small tiles run below peak
//! t_c   = 2*bm*bn*ks*wv / (eff*peak/SM * teff * frac) + bm*bn*wv*drain*D
//! t_l2  = tiles*(bm+bn)*ks*e / (l2*L2BW)
//! t_d   = miss*bytes/(bw*DRAM) + (1-miss)*bytes/(hot*HOT)             on other GPUs see [`mixed`]
//! t_lat = kl*lat*(ks/32)*ceil(wv/occ)
//! t_red = 0 if s = 1 else red0*lat + 8*s*B*M*N/(l2*L2BW)
//! time  = t0*lat + min over tiles and s of max(t_c, t_l2, t_d) + t_lat + t_red     4-norm for max if soft
//! ```
//!
//! [`with_tile`] evaluates one tile that is known (convolutions, whose tile the library tells) and adds
//! `epilogue * ceil(wv/occ)`: what every wave of CTAs spends before and after its sums. [`in_clusters`] does so for
//! kernels that stay on their SMs in clusters of CTAs and take one tile after the other.
//!
//! Where e is the element size; eff, slope, pw, l2, bw, hot, kl, red0, t0 and drain are fitted per kernel class
//! (`data/fitted`); `miss` is the share of the compulsory bytes that come from DRAM: operands that are used
//! again and again stay in the L2 when all sets of them fit ([`super::Reuse`]). HOT is the rate from the L2 then, and
//! `lat` makes latencies longer on GPUs with a lower clock, D is what one result costs on its way out ([`Machine`]).

use super::{Machine, row_reads};
use preflop_units::math::Elementary as _;

/// Fitted constants of one kernel class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Share of the sustained peak that large tiles reach.
    pub eff: f64,
    /// Share of the sustained DRAM bandwidth.
    pub bw: f64,
    /// Share of the rate from the L2 when the operands stay there.
    pub hot: f64,
    /// Share of the L2 bandwidth for operand tiles.
    pub l2: f64,
    /// Loss of small tiles, in elements.
    pub slope: f64,
    /// How much a small CTA leaves an SM idle.
    pub pw: f64,
    /// Seconds per 32 elements of the sum.
    pub kl: f64,
    /// Seconds of a split-K reduction.
    pub red0: f64,
    /// Seconds of launch, prologue and epilogue.
    pub t0: f64,
    /// What filling the pipeline and storing the results of a tile costs, in elements of the sum.
    pub drain: f64,
}

impl Constants {
    /// How many there are.
    pub const COUNT: usize = 10;

    /// Where fits start: what a healthy kernel does.
    pub const START: Self = Self {
        eff: 0.95,
        bw: 0.9,
        hot: 0.4,
        l2: 0.8,
        slope: 15.0,
        pw: 0.4,
        kl: 4e-9,
        red0: 2.5e-6,
        t0: 2.3e-6,
        drain: 100.0,
    };

    /// As a list, for fits and files.
    pub fn to_array(self) -> [f64; Self::COUNT] {
        let Self { eff, bw, hot, l2, slope, pw, kl, red0, t0, drain } = self;
        [eff, bw, hot, l2, slope, pw, kl, red0, t0, drain]
    }

    /// From a list.
    pub fn from_array(a: [f64; Self::COUNT]) -> Self {
        let [eff, bw, hot, l2, slope, pw, kl, red0, t0, drain] = a;
        Self { eff, bw, hot, l2, slope, pw, kl, red0, t0, drain }
    }
}

/// A product as the tiler sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Product {
    /// Independent products.
    pub batch: f64,
    /// Rows of the result.
    pub m: f64,
    /// Columns of the result.
    pub n: f64,
    /// Length of the sums.
    pub k: f64,
    /// Bytes of one element.
    pub element: f64,
    /// Bytes of the operands.
    pub read: f64,
    /// Bytes of the result.
    pub written: f64,
    /// Largest split factor a library would try, and the least length of a part.
    pub max_split: f64,
    /// Least length of one part.
    pub min_part: f64,
    /// Elements of the sum that a kernel takes at once.
    pub step: f64,
}

/// The best tiling and where its time goes. Seconds and counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tiling {
    /// Closed-form time.
    pub time: f64,
    /// Arithmetic.
    pub compute: f64,
    /// Operand tiles from the L2.
    pub l2: f64,
    /// Compulsory bytes.
    pub dram: f64,
    /// Latency along the sum.
    pub latency: f64,
    /// Split-K reduction.
    pub reduction: f64,
    /// Rows of the tile.
    pub bm: f64,
    /// Columns of the tile.
    pub bn: f64,
    /// Parts of the sum.
    pub split: f64,
    /// Length of one part, padded to 32.
    pub part: f64,
    /// CTAs of the grid.
    pub tiles: f64,
    /// CTAs that one SM runs in turn.
    pub waves: f64,
    /// Share of the compulsory bytes that come from DRAM.
    pub miss: f64,
    /// The least time with each of [`TILES`], without `t0`.
    pub by_tile: [f64; 12],
}

/// Tiles that libraries ship for most shapes.
pub const TILES: [(f64, f64); 12] = [
    (16.0, 64.0),
    (32.0, 32.0),
    (32.0, 64.0),
    (64.0, 32.0),
    (64.0, 64.0),
    (64.0, 128.0),
    (128.0, 64.0),
    (128.0, 128.0),
    (64.0, 256.0),
    (256.0, 64.0),
    (128.0, 256.0),
    (256.0, 128.0),
];

/// Tiles of the fp32 kernels without tensor cores.
pub const PLAIN_TILES: [(f64, f64); 9] = [
    (128.0, 128.0),
    (64.0, 128.0),
    (128.0, 64.0),
    (32.0, 128.0),
    (128.0, 32.0),
    (64.0, 64.0),
    (32.0, 64.0),
    (64.0, 32.0),
    (32.0, 32.0),
];

/// Seconds of bytes of which a share `miss` takes `cold` for all of them and the rest `hot`, with constants of a GPU on
/// which the share was `fitted`.
///
/// Where both shares are equal it is `cold miss + hot (1 - miss)`. A larger cache keeps more; that shortens a call only where the
/// cache is the faster place, and a fitted `hot` need not be: operands that stay are those of short calls, which load slowly
/// from anywhere. So the time never grows with the cache.
pub fn mixed(cold: f64, hot: f64, fitted: f64, miss: f64) -> f64 {
    cold * fitted + hot * (1.0 - fitted) + (miss - fitted) * (cold - hot).max(0.0)
}

/// [`f64::ceil`] of a count, without leaving the loop: where the processor is not known, that is a call of the system's
/// library.
fn up(x: f64) -> f64 {
    const WHOLE_FROM: f64 = (1u64 << 52) as f64;
    if x.abs() < WHOLE_FROM {
        let down = x as i64 as f64;
        if down < x { down + 1.0 } else { down }
    } else {
        x
    }
}

/// What does not depend on the tile: seconds of the compulsory bytes, and rates per second turned round.
struct Fixed {
    dram: f64,
    miss: f64,
    l2_rate: f64,
    per_sm: f64,
    drain: f64,
    latency: f64,
    soft: bool,
    uneven: f64,
    /// Of operands that are read in pieces along the sum.
    pieces: Option<Machine>,
    written: f64,
}

impl Fixed {
    fn new(p: &Product, c: &Constants, machine: &Machine) -> Self {
        let first = p.element * p.batch * p.m * p.k;
        let operands = [first, p.read - first, p.written];
        let miss = machine.reuse.miss(operands, machine.hot_size);
        let fitted = machine.reuse.miss(operands, machine.fitted_size);
        let bytes = p.read + p.written;
        let dram = mixed(bytes / (c.bw * machine.dram), bytes / (c.hot * machine.hot), fitted, miss);
        Self {
            dram,
            miss,
            l2_rate: 1.0 / (c.l2 * machine.l2),
            per_sm: machine.sm / (c.eff * machine.peak),
            drain: c.drain * machine.drain,
            latency: machine.latency,
            soft: machine.soft,
            uneven: machine.uneven,
            pieces: machine.in_pieces.then_some(*machine),
            written: p.written / (c.bw * machine.dram),
        }
    }

    /// Tries the split factors of one tile; `best` keeps the least time over all calls (its `miss` and `by_tile` stay as they are), and the
    /// least of this tile is returned. `small` is (bm bn/16384)^pw, at most 1; `epilogue` seconds are spent per wave of CTAs.
    fn try_tile(
        &self,
        p: &Product,
        c: &Constants,
        sm: f64,
        (bm, bn, small): (f64, f64, f64),
        epilogue: f64,
        best: &mut Tiling,
    ) -> f64 {
        let grid = up(p.m / bm) * up(p.n / bn) * p.batch;
        let occ = (16384.0 / (bm * bn)).floor().clamp(1.0, 4.0);
        let teff = 1.0 / (1.0 + c.slope * (1.0 / bm + 1.0 / bn));
        let dram = match &self.pieces {
            Some(machine) => row_reads::memory(p, (bm, bn), machine) + self.written,
            None => self.dram,
        };
        let mut least = f64::INFINITY;
        let (mut s, mut reduction) = (1.0, 0.0);
        // However long the parts, no time is shorter than that of the bytes.
        let bytes = self.together(0.0, 0.0, dram);
        loop {
            let tiles = grid * s;
            let ks = up(p.k / s / p.step) * p.step;
            let whole = up(tiles / sm);
            let wv = whole - self.uneven * (whole - (tiles / sm).max(1.0));
            let frac = (wv.min(occ) * small).min(1.0);
            let compute = bm * bn * wv * (2.0 * ks * self.per_sm / (teff * frac) + self.drain);
            let l2 = tiles * (bm + bn) * ks * p.element * self.l2_rate;
            let latency = (c.kl * (ks / 32.0) + epilogue) * self.latency * up(wv / occ);
            let pages = self.pieces.as_ref().map_or(0.0, |m| row_reads::pages(p.k, ks, wv, (bm, bn), m));
            let time = self.together(compute, l2.max(pages), dram) + latency + reduction;
            least = least.min(time);
            if time < best.time {
                (best.time, best.compute, best.l2, best.dram) = (time, compute, l2, dram);
                (best.latency, best.reduction) = (latency, reduction);
                (best.bm, best.bn, best.split, best.part) = (bm, bn, s, ks);
                (best.tiles, best.waves) = (tiles, wv);
            }
            s *= 2.0;
            // More parts cannot help once the grid fills the GPU twice.
            if s > p.max_split || p.k / s < p.min_part || tiles >= 2.0 * sm {
                return least;
            }
            // Nor once adding them up takes too long, which takes longer with more of them.
            reduction = c.red0 * self.latency + 8.0 * s * p.batch * p.m * p.n * self.l2_rate;
            if bytes + reduction >= least {
                return least;
            }
        }
    }

    /// Seconds of arithmetic and traffic together: the longest of them, or their 4-norm where they hinder each other.
    fn together(&self, compute: f64, l2: f64, dram: f64) -> f64 {
        if !self.soft {
            return compute.max(l2).max(dram);
        }
        let fourth = |x: f64| (x * x) * (x * x);
        (fourth(compute) + fourth(l2) + fourth(dram)).sqrt().sqrt()
    }

    fn nothing(&self) -> Tiling {
        Tiling {
            time: f64::INFINITY,
            compute: 0.0,
            l2: 0.0,
            dram: self.dram,
            latency: 0.0,
            reduction: 0.0,
            bm: 0.0,
            bn: 0.0,
            split: 1.0,
            part: 0.0,
            tiles: 0.0,
            waves: 0.0,
            miss: self.miss,
            by_tile: [0.0; 12],
        }
    }
}

/// The best tiling of a product: the closed form of the module's head.
pub fn best(p: &Product, c: &Constants, machine: &Machine) -> Tiling {
    best_of(p, c, machine, &TILES, u16::MAX)
}

/// The best tiling among the tiles of a list whose bits are set in `allowed`; times by tile are those of the list.
pub fn best_of(p: &Product, c: &Constants, machine: &Machine, tiles: &[(f64, f64)], allowed: u16) -> Tiling {
    let fixed = Fixed::new(p, c, machine);
    let mut best = fixed.nothing();
    let half = (-c.pw).power_of_two();
    let halved = [1.0, half, half * half, half * half * half, half.powi(4), 1.0, 1.0, 1.0];
    let mut by_tile = [1.0; 12];
    let mut others = fixed.nothing();
    for (i, (&(bm, bn), tile_time)) in tiles.iter().zip(&mut by_tile).enumerate() {
        // bm * bn / 16384 is a power of two; its pw-th power is one of halving's.
        let small = halved[((16384.0 / (bm * bn)) as usize).trailing_zeros() as usize % halved.len()];
        let into = if allowed & (1 << i) == 0 { &mut others } else { &mut best };
        *tile_time = fixed.try_tile(p, c, machine.sm, (bm, bn, small), 0.0, into);
    }
    best.time += c.t0 * machine.latency;
    best.by_tile = by_tile;
    best
}

/// The tiling of a product with a tile of known rows, columns and depth; every wave of CTAs costs `epilogue` seconds
/// more.
pub fn with_tile(
    p: &Product,
    c: &Constants,
    machine: &Machine,
    [bm, bn, depth]: [f64; 3],
    epilogue: f64,
) -> Tiling {
    let p = &Product { step: depth.max(1.0), ..*p };
    let fixed = Fixed::new(p, c, machine);
    let mut best = fixed.nothing();
    let small = (bm * bn / 16384.0).min(1.0).power(c.pw);
    fixed.try_tile(p, c, machine.sm, (bm, bn, small), epilogue, &mut best);
    best.time += c.t0 * machine.latency;
    best
}

/// SMs that persistent kernels fill with clusters of 1 to 8 CTAs, of the 132 of a chip: their grids show it. A
/// cluster stays within one of the chip's processing clusters, so some SMs are left over.
const CLUSTERED: [f64; 8] = [132.0, 132.0, 117.0, 120.0, 110.0, 102.0, 105.0, 120.0];
/// The same with larger clusters.
const LARGER: f64 = 112.0;
/// SMs of that chip.
const CLUSTERED_OF: f64 = 132.0;

/// Clusters of `size` CTAs that run at a time.
fn resident(size: f64, sm: f64) -> f64 {
    let filled = CLUSTERED.get((size as usize).saturating_sub(1)).copied().unwrap_or(LARGER);
    (filled * sm / CLUSTERED_OF / size).floor().max(1.0)
}

/// The tiling of a product by a persistent kernel with a known tile in clusters of `cluster` CTAs; it may share out
/// all sums evenly among the SMs where `segments` says so.
pub fn in_clusters(
    p: &Product,
    c: &Constants,
    machine: &Machine,
    (bm, bn): (f64, f64),
    cluster: (f64, f64),
    segments: bool,
    epilogue: f64,
) -> Tiling {
    let fixed = Fixed::new(p, c, machine);
    let size = cluster.0 * cluster.1;
    let rows = up(up(p.m / bm) / cluster.0);
    let clusters = rows * up(up(p.n / bn) / cluster.1) * p.batch;
    let at_once = resident(size, machine.sm);
    let waves = up(clusters / at_once);
    let teff = 1.0 / (1.0 + c.slope * (1.0 / bm + 1.0 / bn));
    let small = (bm * bn / 16384.0).min(1.0).power(c.pw);
    let part = up(p.k / 32.0) * 32.0;
    let tile = bm * bn * (2.0 * part * fixed.per_sm / (teff * small) + fixed.drain)
        + c.kl * machine.latency * (part / 32.0);
    let tiles = clusters * size;
    // A cluster reads its operands once.
    let l2 = tiles * (bm / cluster.1 + bn / cluster.0) * part * p.element * fixed.l2_rate;
    let others = l2.max(fixed.dram);
    let mut compute = waves * tile;
    let mut reduction = 0.0;
    if segments {
        // Each part is added up in the L2, so that more parts than these would not pay, nor where other things take longer.
        let added = 8.0 * size * bm * bn * fixed.l2_rate;
        let enough = (tile * clusters / added).sqrt().min(tile * clusters / others);
        let parts = at_once.min(enough.max(1.0));
        let shared = tile * clusters / parts;
        let cost = c.red0 * machine.latency + parts * added;
        if shared.max(others) + cost < compute.max(others) {
            (compute, reduction) = (shared, cost);
        }
    }
    let latency = waves * epilogue * machine.latency;
    let time = c.t0 * machine.latency + compute.max(others) + latency + reduction;
    Tiling { time, compute, l2, latency, reduction, bm, bn, part, tiles, waves, ..fixed.nothing() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Machine = Machine {
        sm: 132.0,
        peak: 790e12,
        burst: 0.0,
        lasting: [0.0, 0.0],
        dram: 4.3e12,
        l2: 9.77e12,
        l2_size: 60e6,
        hot: 9.77e12,
        hot_size: 60e6,
        fitted_size: 60e6,
        reuse: crate::Reuse::OWN,
        drain: 2.0 * 132.0 / 790e12,
        latency: 1.0,
        soft: false,
        uneven: 0.0,
        min_part: 128.0,
        in_pieces: false,
    };

    fn product(m: f64, n: f64, k: f64) -> Product {
        Product {
            batch: 1.0,
            m,
            n,
            k,
            element: 2.0,
            read: 2.0 * (m * k + k * n),
            written: 2.0 * m * n,
            max_split: 32.0,
            min_part: 128.0,
            step: 32.0,
        }
    }

    #[test]
    fn counts_are_rounded_up() {
        let large = 2f64.powi(53);
        for x in [0.0, 0.25, 1.0, 1.0 + f64::EPSILON, 2.5, -0.5, -3.0, -3.5, large, 1e300, f64::INFINITY] {
            assert_eq!(up(x), x.ceil(), "{x}");
        }
        assert!(up(f64::NAN).is_nan());
    }

    #[test]
    fn a_large_product_runs_near_peak() {
        let t = best(&product(8192.0, 8192.0, 8192.0), &Constants::START, &H200);
        let rate = 2.0 * 8192f64.powi(3) / t.time;
        assert!(rate > 0.6 * H200.peak && rate < H200.peak, "{:.0} TFLOP/s", rate / 1e12);
        assert_eq!(t.split, 1.0);
    }

    #[test]
    fn clusters_leave_sms_idle() {
        let p = product(128.0 * 128.0, 128.0, 4096.0);
        let time = |cluster, segments| {
            in_clusters(&p, &Constants::START, &H200, (128.0, 128.0), cluster, segments, 0.0)
        };
        // 128 tiles: one wave of single CTAs, two of fifteen clusters of eight
        assert_eq!((time((1.0, 1.0), false).waves, time((8.0, 1.0), false).waves), (1.0, 2.0));
        assert!(time((8.0, 1.0), true).time < time((8.0, 1.0), false).time);
    }

    #[test]
    fn a_long_sum_with_few_tiles_is_split() {
        let t = best(&product(64.0, 64.0, 65536.0), &Constants::START, &H200);
        assert!(t.split > 1.0);
    }
}
