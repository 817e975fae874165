//! The kernels, as PTX that the driver compiles for the GPU at hand.
//!
//! Written out by small functions, since a loop body must be unrolled far enough that counting and branching do not
//! show. Only instructions that old GPUs and old drivers know, except where a module says what it needs.
//! `cargo run -p preflop-calibrate --example ptx -- FOLDER` writes them as files for `ptxas`.

mod text;

use std::fmt::Write as _;
use text::{END, PROBE_TEXT, chase, chase_shared, fill, fma, header, mma, read};

/// PTX text and the kernels in it.
#[derive(Debug, Clone)]
pub struct Ptx {
    /// What the module holds, for messages.
    pub name: &'static str,
    /// The text.
    pub text: String,
}

/// A kernel: its name and how many parameters it takes.
pub type Kernel = (&'static str, usize);

/// Nothing.
pub const EMPTY: Kernel = ("empty", 0);
/// Multiply-adds: (records, iterations, factor bits, summand bits).
pub const FMA_F32: Kernel = ("fma_f32", 4);
/// The same in fp64.
pub const FMA_F64: Kernel = ("fma_f64", 4);
/// The same in pairs of fp16.
pub const FMA_F16: Kernel = ("fma_f16", 4);
/// Reads: (records, start, bytes of one block's region, loads per thread, 0). Served by the L1.
pub const READ_L1: Kernel = ("read_l1", 5);
/// The same past the L1.
pub const READ_L2: Kernel = ("read_l2", 5);
/// The same from shared memory; the start is not used.
pub const READ_SHARED: Kernel = ("read_shared", 5);
/// Dependent loads: (records, start, steps before the clock, steps on the clock). Served by the L1.
pub const CHASE_L1: Kernel = ("chase_l1", 4);
/// The same past the L1.
pub const CHASE_L2: Kernel = ("chase_l2", 4);
/// The same in shared memory; the start is not used.
pub const CHASE_SHARED: Kernel = ("chase_shared", 4);
/// Runs for some nanoseconds: (records, nanoseconds).
pub const PROBE: Kernel = ("probe", 2);
/// Random numbers with mean 0 and variance 1: (start, count, seed).
pub const FILL_F32: Kernel = ("fill_f32", 3);
/// The same in fp64.
pub const FILL_F64: Kernel = ("fill_f64", 3);
/// The same in fp16.
pub const FILL_F16: Kernel = ("fill_f16", 3);
/// The same in bf16.
pub const FILL_BF16: Kernel = ("fill_bf16", 3);
/// Random 8-bit floats (e4m3) of both signs from 1/8 to 2.
pub const FILL_FP8: Kernel = ("fill_fp8", 3);
/// Tensor-core products: (records, iterations).
pub const MMA_F16: Kernel = ("mma_f16", 2);
/// The same in bf16.
pub const MMA_BF16: Kernel = ("mma_bf16", 2);
/// The same in tf32.
pub const MMA_TF32: Kernel = ("mma_tf32", 2);
/// The same in 8-bit floats.
pub const MMA_FP8: Kernel = ("mma_fp8", 2);

/// Multiply-adds of one thread in one iteration of an FMA kernel (fp16: pairs of them).
pub const FMA_PER_ITERATION: u64 = (FMA_CHAINS * FMA_UNROLL) as u64;
const FMA_CHAINS: usize = 8;
const FMA_UNROLL: usize = 32;
/// Loads of one thread between two tests of the loop counter.
pub const READ_UNROLL: u64 = 8;
/// Dependent loads between two tests of the loop counter.
pub const CHASE_UNROLL: u64 = 32;
/// Products of one warp in one iteration of a tensor-core kernel.
pub const MMA_PER_ITERATION: u64 = (MMA_TILES * MMA_UNROLL) as u64;
const MMA_TILES: usize = 8;
const MMA_UNROLL: usize = 4;
/// Shared memory of the kernels that use it.
pub const SHARED_BYTES: u64 = 16384;
/// Distance of the elements of the chain in shared memory.
const SHARED_STRIDE: u64 = 64;

/// Kernels that every GPU runs.
pub fn base(capability: u32) -> Ptx {
    let mut text = header(capability.min(75));
    text.push_str(".visible .entry empty()\n{\n    ret;\n}\n\n");
    text.push_str(&fma("fma_f32", "f32"));
    text.push_str(&fma("fma_f64", "f64"));
    text.push_str(&read("read_l1", "ld.global.ca.v4.u32", false));
    text.push_str(&read("read_l2", "ld.global.cg.v4.u32", false));
    text.push_str(&read("read_shared", "ld.shared.v4.u32", true));
    text.push_str(&chase("chase_l1", "ld.global.ca.u64"));
    text.push_str(&chase("chase_l2", "ld.global.cg.u64"));
    text.push_str(&chase_shared());
    let _ = writeln!(
        text,
        "{PROBE_TEXT}{}",
        END.replace("    bar.sync 0;\n", "").replace("    mov.u64 %g1, %globaltimer;\n", "")
    );
    text.push_str(&fill("fill_f32", 4, "    st.global.f32 [%addr], %f;\n"));
    text.push_str(&fill("fill_f64", 8, "    cvt.f64.f32 %d, %f;\n    st.global.f64 [%addr], %d;\n"));
    text.push_str(&fill("fill_f16", 2, "    cvt.rn.f16.f32 %half, %f;\n    st.global.b16 [%addr], %half;\n"));
    // bfloat16 is the upper half of a float, rounded.
    text.push_str(&fill(
        "fill_bf16",
        2,
        "    mov.b32 %s, %f;\n    add.u32 %s, %s, 0x8000;\n    shr.u32 %s, %s, 16;\n    cvt.u16.u32 %half, %s;\n    st.global.b16 [%addr], %half;\n",
    ));
    // Sign and mantissa at random, exponent field 4 to 7 (bias 7).
    text.push_str(&fill(
        "fill_fp8",
        1,
        "    shr.u32 %t, %s, 9;\n    and.b32 %t, %t, 0x18;\n    and.b32 %s, %s, 0x87;\n    or.b32 %s, %s, %t;\n    or.b32 %s, %s, 0x20;\n    st.global.u8 [%addr], %s;\n",
    ));
    Ptx { name: "basic kernels", text }
}

/// fp16 arithmetic: compute capability 5.3.
pub fn half(capability: u32) -> Ptx {
    let mut text = header(capability.min(75)).replace("sm_50", "sm_53");
    text.push_str(&fma("fma_f16", "f16x2"));
    Ptx { name: "fp16 arithmetic", text }
}

/// Masks of sign and mantissa, and the pattern of one, for each format: random numbers from 1 to 2 of both signs.
const F16_BITS: (u32, u32) = (0x83ff_83ff, 0x3c00_3c00);
const BF16_BITS: (u32, u32) = (0x807f_807f, 0x3f80_3f80);
const TF32_BITS: (u32, u32) = (0x807f_e000, 0x3f80_0000);
const FP8_BITS: (u32, u32) = (0x8787_8787, 0x3838_3838);

/// A kernel, FLOPs of one of its instructions, name of the number format.
pub type TensorKernel = (Kernel, u64, &'static str);

/// Tensor cores, as far as this GPU has them, one module per generation.
pub fn tensor(capability: u32) -> Vec<(Ptx, Vec<TensorKernel>)> {
    let mut all = Vec::new();
    if capability >= 80 {
        let mut text = header(80);
        for (name, kind, k, bits) in [
            ("mma_f16", "f16", 16, F16_BITS),
            ("mma_bf16", "bf16", 16, BF16_BITS),
            ("mma_tf32", "tf32", 8, TF32_BITS),
        ] {
            let instruction = format!("mma.sync.aligned.m16n8k{k}.row.col.f32.{kind}.{kind}.f32");
            text.push_str(&mma(name, &instruction, [4, 2, 4], bits.0, bits.1));
        }
        let kernels = vec![
            (MMA_F16, 2 * 16 * 8 * 16, "fp16"),
            (MMA_BF16, 2 * 16 * 8 * 16, "bf16"),
            (MMA_TF32, 2 * 16 * 8 * 8, "tf32"),
        ];
        all.push((Ptx { name: "tensor cores", text }, kernels));
    } else if capability >= 70 {
        let mut text = header(75).replace("sm_75", "sm_70");
        let instruction = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32";
        text.push_str(&mma("mma_f16", instruction, [8, 8, 8], F16_BITS.0, F16_BITS.1));
        all.push((Ptx { name: "tensor cores", text }, vec![(MMA_F16, 2 * 16 * 16 * 16, "fp16")]));
    }
    // Hopper takes this instruction apart into fp16 ones; its own way to 8 bits is another.
    if capability == 89 || capability >= 100 {
        let mut text = ".version 8.4\n.target sm_89\n.address_size 64\n\n".to_string();
        let instruction = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32";
        text.push_str(&mma("mma_fp8", instruction, [4, 2, 4], FP8_BITS.0, FP8_BITS.1));
        all.push((Ptx { name: "8-bit tensor cores", text }, vec![(MMA_FP8, 2 * 16 * 8 * 32, "fp8")]));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kernel that we name is in its module with as many parameters as we pass.
    #[test]
    fn kernels_take_what_they_are_given() {
        let module = base(90).text;
        let check = |text: &str, (name, parameters): Kernel| {
            let head =
                text.split(&format!(".entry {name}(")).nth(1).unwrap_or_else(|| panic!("{name} is missing"));
            let head = head.split(')').next().unwrap();
            assert_eq!(head.matches(".param").count(), parameters, "{name}");
        };
        for kernel in [
            EMPTY,
            FMA_F32,
            FMA_F64,
            READ_L1,
            READ_L2,
            READ_SHARED,
            CHASE_L1,
            CHASE_L2,
            CHASE_SHARED,
            PROBE,
            FILL_F32,
            FILL_F64,
            FILL_F16,
            FILL_BF16,
            FILL_FP8,
        ] {
            check(&module, kernel);
        }
        check(&half(90).text, FMA_F16);
        for (ptx, kernels) in tensor(90) {
            for (kernel, _, _) in kernels {
                check(&ptx.text, kernel);
            }
        }
    }

    #[test]
    fn loops_are_unrolled_as_the_rates_assume() {
        let text = fma("fma_f32", "f32");
        assert_eq!(text.matches("fma.rn.f32").count() as u64, FMA_PER_ITERATION);
        let text = mma("mma_f16", "mma.sync", [4, 2, 4], F16_BITS.0, F16_BITS.1);
        assert_eq!(text.matches("mma.sync").count() as u64, MMA_PER_ITERATION);
        assert_eq!(read("r", "ld.global", false).matches("ld.global").count() as u64, READ_UNROLL);
        assert_eq!(chase("c", "ld.global").matches("ld.global").count() as u64, 2 * CHASE_UNROLL);
    }

    #[test]
    fn old_gpus_get_what_they_know() {
        assert!(base(50).text.starts_with(".version 6.0\n.target sm_50"));
        assert!(base(120).text.contains("sm_75"));
        assert!(tensor(61).is_empty());
        assert_eq!(tensor(75).len(), 1);
        assert_eq!(tensor(86).len(), 1);
        assert_eq!(tensor(89).len(), 2);
        assert_eq!(tensor(90).len(), 1);
        assert_eq!(tensor(100).len(), 2);
    }
}
