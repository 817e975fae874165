//! Time: the three execution streams, prologue and epilogue, and the bottleneck cases (Eq. 11 to 18).

use super::{Bottleneck, Instructions, LayerReport, LoneCta, Machine, Work};
use preflop_units::{Bytes, Seconds};

/// TpL: bytes that one CTA loads in one main-loop iteration, at one level.
///
/// Reading: total traffic over Num_CTA·K/blk_K, the latter not rounded.
pub fn per_loop(total: Bytes, work: &Work) -> Bytes {
    total / (work.num_cta * (work.gemm.k / work.tile.blk_k))
}

/// Transfer times of one iteration's loads at L1, L2 and DRAM: TpL over the bandwidth share of one SM.
pub fn transfers(work: &Work, machine: &Machine) -> [Seconds; 3] {
    [
        per_loop(work.traffic.l1, work) / machine.l1_per_sm,
        per_loop(work.traffic.l2, work) / machine.l2_per_sm(),
        per_loop(work.traffic.dram, work) / machine.dram_per_sm(),
    ]
}

/// Eq. 11, t_GLS: the slowest level, pipeline latency plus transfer.
pub fn gls([l1, l2, dram]: [Seconds; 3], machine: &Machine) -> Seconds {
    (machine.lat_l1 + l1).max(machine.lat_l2 + l2).max(machine.lat_dram + dram)
}

/// Bytes of one input tile: (blk_M + blk_N)·blk_K elements.
fn input_tile(work: &Work) -> Bytes {
    let t = &work.tile;
    Bytes((t.blk_m + t.blk_n) * t.blk_k * work.element_bytes)
}

/// SMEM loads of one iteration: (blk_WM + blk_WN)·blk_K·Num_warps / BW_SMEM_LD.
fn smem_loads(work: &Work, machine: &Machine) -> Seconds {
    let t = &work.tile;
    Bytes((t.warp_m + t.warp_n) * t.blk_k * t.num_warps * work.element_bytes) / machine.smem_load
}

/// Eq. 12, t_SAS: stores of the input tile, then the loads of all warps.
pub fn sas(work: &Work, machine: &Machine) -> Seconds {
    input_tile(work) / machine.smem_store + smem_loads(work, machine)
}

/// Instructions that an element of the IFmap tile takes on its way to shared memory, beside the multiplications: the load of its offset from the table that
/// `IMPLICIT_PRECOMP_GEMM` has made before, two additions for an address of 64 bits, the test whether it lies in the padding, a zero for where it does, its load, its store.
const PER_MAP_ELEMENT: f64 = 7.0;
/// The same of the filter tile, whose addresses follow one another and which has no padding: two additions, the test whether the tile has ended, its load, its store.
const PER_FILTER_ELEMENT: f64 = 5.0;

/// Eq. 13, t_CS: blk_M·blk_N·blk_K / BW_MAC of one SM. With all instructions
///
/// ```text
/// t_CS = max(MAC, (MAC + (7 blk_M + 5 blk_N) blk_K) / slots) / BW_MAC
/// ```
///
/// where `slots` are instructions that an SM issues in the time of one multiplication on all of its lanes ([`Machine::issue_slots`]): one where a scheduler has a lane for
/// each thread of a warp, so that whatever is issued beside multiplications delays them, and two where it has half as many, so that it does not. Loads from shared memory are issued
/// together with multiplications.
pub fn cs(work: &Work, machine: &Machine) -> Seconds {
    let t = &work.tile;
    let macs = t.blk_m * t.blk_n * t.blk_k;
    let slots = match work.instructions {
        Instructions::Multiplications => macs,
        Instructions::All => {
            let others = (PER_MAP_ELEMENT * t.blk_m + PER_FILTER_ELEMENT * t.blk_n) * t.blk_k;
            macs.max((macs + others) / machine.issue_slots)
        }
    };
    Seconds(slots / machine.mac_per_s_per_sm)
}

/// Time from one input tile to the next of a single CTA: it stores the next tile, waits until all warps have, loads the first operands of it and multiplies.
///
/// ```text
/// chain = t_CS + (blk_M + blk_N) blk_K / BW_SMEM_ST + 2 LAT_SMEM
/// ```
///
/// Other CTAs of the SM multiply meanwhile, so it shows only where there is none: no case of the paper covers that. Loads of later operands are under way while
/// earlier ones are multiplied.
pub fn chain(work: &Work, machine: &Machine) -> Seconds {
    cs(work, machine) + input_tile(work) / machine.smem_store + machine.lat_smem * 2.0
}

/// Eq. 16 for arithmetic. Where the chain shows, rounds of CTAs count instead of CTAs: all active ones, and the rest in the last round, each as long as its arithmetic and
/// no shorter than one CTA's chain.
fn arithmetic(work: &Work, machine: &Machine, epilogue: Seconds, on: &OnSm) -> Seconds {
    let (start, cs) = (prologue(work, machine), cs(work, machine));
    match work.lone_cta {
        LoneCta::Hidden => serial(start, cs, on.loops, epilogue, on.ctas),
        LoneCta::Exposed => {
            let chain = chain(work, machine);
            let last = on.ctas - (on.rounds - 1.0) * on.active;
            let round = |ctas: f64| (cs * ctas).max(chain);
            start + (round(on.active) * (on.rounds - 1.0) + round(last)) * on.loops + epilogue * on.ctas
        }
    }
}

/// What the SM with most CTAs does.
struct OnSm {
    /// Main-loop iterations of a CTA.
    loops: f64,
    /// CTAs.
    ctas: f64,
    /// Num_ACT_CTA.
    active: f64,
    /// Rounds of active CTAs.
    rounds: f64,
}

/// Eq. 14, t_Prologue: the first input tile from DRAM to SMEM to registers, once per SM.
///
/// Reading: the volume is the input tile; the paper prints blk_M·blk_N, which changes times by under 1 %.
pub fn prologue(work: &Work, machine: &Machine) -> Seconds {
    let tile = input_tile(work);
    (machine.lat_dram + tile / machine.dram_per_sm())
        + (machine.lat_smem + tile / machine.smem_store)
        + smem_loads(work, machine)
}

/// Eq. 15: bytes of one CTA's output. Reading: valid columns only, and a bandwidth shared by all SMs counts
/// with the share of one.
pub fn epilogue_bytes(work: &Work) -> Bytes {
    let columns = (work.gemm.n / work.tile.blk_n).ceil();
    Bytes(work.tile.blk_m * work.gemm.n / columns * work.element_bytes)
}

/// Eq. 16 and 18: prologue, then every CTA of the fullest SM one after the other.
fn serial(prologue: Seconds, per_loop: Seconds, loops: f64, epilogue: Seconds, ctas: f64) -> Seconds {
    prologue + (per_loop * loops + epilogue) * ctas
}

/// Eq. 17: the active CTAs of an SM wait together, so rounds count instead of CTAs.
///
/// Reading: while the load is in flight a blk_K-th of the arithmetic or SMEM work of one iteration stays
/// exposed.
fn latency(prologue: Seconds, exposed: Seconds, loops: f64, epilogue: Seconds, rounds: f64) -> Seconds {
    prologue + (exposed * loops + epilogue) * rounds
}

/// Time and bottleneck: the largest of Eq. 16, 17 and 18 on the SM with most CTAs.
pub fn report(work: &Work, machine: &Machine) -> LayerReport {
    let tile = &work.tile;
    let loops = (work.gemm.k / tile.blk_k).ceil();
    let ctas = (work.num_cta / f64::from(machine.num_sm)).ceil();
    let active_ctas = tile.active_ctas(machine, work.element_bytes);
    let rounds = (ctas / active_ctas).ceil();

    let transfers = transfers(work, machine);
    let (cs, sas, gls) = (cs(work, machine), sas(work, machine), gls(transfers, machine));
    let start = prologue(work, machine);
    let output = epilogue_bytes(work);
    let [out_l1, out_l2, out_dram] =
        [output / machine.l1_per_sm, output / machine.l2_per_sm(), output / machine.dram_per_sm()];

    let bounds = [
        arithmetic(work, machine, out_dram, &OnSm { loops, ctas, active: active_ctas, rounds }),
        serial(start, sas, loops, out_dram, ctas),
        serial(start, transfers[0], loops, out_l1, ctas),
        serial(start, transfers[1], loops, out_l2, ctas),
        serial(start, transfers[2], loops, out_dram, ctas),
        latency(start, gls + cs.max(sas) / tile.blk_k, loops, out_dram, rounds),
    ];
    let (first, second) = two_largest(&bounds);
    LayerReport {
        tile: *tile,
        num_cta: work.num_cta,
        active_ctas,
        traffic: work.traffic,
        cs,
        sas,
        gls,
        bounds,
        time: bounds[first],
        bottleneck: Bottleneck::ALL[first],
        next: Bottleneck::ALL[second],
    }
}

/// Positions of the largest and the second largest.
fn two_largest(bounds: &[Seconds; 6]) -> (usize, usize) {
    let (mut first, mut second) = if bounds[1] > bounds[0] { (1, 0) } else { (0, 1) };
    for i in 2..bounds.len() {
        if bounds[i] > bounds[first] {
            (first, second) = (i, first);
        } else if bounds[i] > bounds[second] {
            second = i;
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fig6, Layer, Readings, evaluate, plan};
    use preflop_gpu::catalog;
    use preflop_units::dtype::Dtype;

    fn titan_xp() -> Machine {
        Machine::of(&catalog::find("titan-xp").unwrap(), Dtype::Fp32)
    }

    #[test]
    fn streams_of_a_wide_tile_by_hand() {
        let m = titan_xp();
        let w = plan(&Layer::square(256, 96, 27, 256, 5, 1, 2), &m, &Fig6, Readings::default()).unwrap();
        let ns = |t: Seconds| t.0 * 1e9;
        // 128*128*8 / (128 lanes * 1.58 GHz) = 648.1 ns
        assert!((ns(cs(&w, &m)) - 648.10).abs() < 0.01);
        // 256*8*4 B / (128 B * 1.58 GHz) + 96*8*8*4 B / (96 B * 1.58 GHz) = 40.51 + 162.03 = 202.53 ns
        assert!((ns(sas(&w, &m)) - 202.53).abs() < 0.01);
        // output: 128 * 256/2 * 4 B
        assert_eq!(epilogue_bytes(&w).0, 65_536.0);
    }

    #[test]
    fn instructions_beside_multiplications_delay_them_where_no_slot_is_free() {
        let layer = Layer::square(256, 96, 27, 256, 5, 1, 2);
        let all = Readings { instructions: Instructions::All, ..Readings::default() };
        let ratio = |gpu: &str| {
            let m = Machine::of(&catalog::find(gpu).unwrap(), Dtype::Fp32);
            let of = |readings| cs(&plan(&layer, &m, &Fig6, readings).unwrap(), &m).0;
            of(all) / of(Readings::default())
        };
        // 128 lanes on 4 schedulers: 1 + (7 * 128 + 5 * 128) / (128 * 128); 64 lanes on 4: every other slot is free.
        assert!((ratio("titan-xp") - 1.093_75).abs() < 1e-9);
        assert!((ratio("v100-pcie-16gb") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_cta_without_company_shows_its_way_through_shared_memory() {
        let m = titan_xp();
        let exposed = Readings { lone_cta: LoneCta::Exposed, ..Readings::default() };
        let mac = |batch, readings| {
            // 7x7 maps of 512 channels: 49 rows an image, four columns of CTAs, 64 main loops.
            let layer = Layer::square(batch, 512, 7, 512, 1, 1, 0);
            evaluate(&layer, &m, &Fig6, readings).unwrap()
        };
        // 16 images: 7 x 4 = 28 CTAs on 30 SMs, one each. The chain adds 256 * 8 * 4 B / (128 B * 1.58 GHz) + 2 * 24 / 1.58 GHz = 40.51 + 30.38 ns to each loop.
        let more = mac(16, exposed).bounds[0].0 - mac(16, Readings::default()).bounds[0].0;
        assert!((more * 1e9 - 64.0 * 70.886).abs() < 0.1, "{more}");
        // 32 images: 13 x 4 = 52 CTAs, two on the fullest SM: 2 * 648.1 ns are longer than the chain of one.
        assert_eq!(mac(32, exposed).bounds[0], mac(32, Readings::default()).bounds[0]);
        // 40 images: 16 x 4 = 64 CTAs, three on the fullest: two together, then one alone.
        let more = mac(40, exposed).bounds[0].0 - mac(40, Readings::default()).bounds[0].0;
        assert!((more * 1e9 - 64.0 * 70.886).abs() < 0.1, "{more}");
    }

    #[test]
    fn alexnet_conv1_is_bound_by_l1() {
        let layer = Layer::square(256, 3, 227, 96, 11, 4, 0);
        let r = evaluate(&layer, &titan_xp(), &Fig6, Readings::default()).unwrap();
        assert_eq!(r.bottleneck, Bottleneck::L1Bw);
        assert_eq!(r.next, Bottleneck::Mac);
        // L1: 605 CTAs x (11648 B x 91/90.75 loops.. ) = 7.08 ms over arithmetic's 5.12 ms
        assert!((r.time.ms() - 7.08).abs() < 0.01, "{} ms", r.time.ms());
        assert!((r.headroom() - 7.0787 / 5.1217).abs() < 0.001);
    }

    #[test]
    fn the_two_largest_are_found() {
        let s = |v: [f64; 6]| two_largest(&v.map(Seconds));
        assert_eq!(s([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), (5, 4));
        assert_eq!(s([6.0, 5.0, 4.0, 3.0, 2.0, 1.0]), (0, 1));
        assert_eq!(s([1.0, 6.0, 2.0, 5.0, 3.0, 4.0]), (1, 3));
        assert_eq!(s([2.0, 2.0, 2.0, 2.0, 2.0, 2.0]), (0, 1));
    }
}
