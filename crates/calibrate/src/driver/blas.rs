//! cuBLAS, if it is on the machine: matrix products as the frameworks run them.

use super::library::{function, open_first, places};
use super::{Buffer, DriverError, Stream};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

type Handle = *mut c_void;

/// A number format of a product; both factors have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 64-bit floats.
    Fp64,
    /// 32-bit floats, all bits kept.
    Fp32,
    /// 32-bit floats, multiplied with 10 bits of mantissa.
    Tf32,
    /// IEEE half precision.
    Fp16,
    /// bfloat16.
    Bf16,
    /// 8-bit floats, four bits of exponent.
    Fp8,
}

impl Format {
    /// Name in GPU files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp64 => "fp64",
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of one number.
    pub fn size(self) -> u64 {
        match self {
            Self::Fp64 => 8,
            Self::Fp32 | Self::Tf32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }

    /// Value of `cudaDataType_t`.
    fn data_type(self) -> c_int {
        match self {
            Self::Fp64 => 1,
            Self::Fp32 | Self::Tf32 => 0,
            Self::Fp16 => 2,
            Self::Bf16 => 14,
            Self::Fp8 => 28,
        }
    }

    /// Value of `cublasComputeType_t`.
    fn compute_type(self) -> c_int {
        match self {
            Self::Fp64 => 70,
            Self::Tf32 => 77,
            Self::Fp32 | Self::Fp16 | Self::Bf16 | Self::Fp8 => 68,
        }
    }
}

fn check(call: &'static str, status: c_int) -> Result<(), DriverError> {
    if status == 0 { Ok(()) } else { Err(DriverError::Call { call, reason: format!("status {status}") }) }
}

fn names(stem: &str) -> Vec<String> {
    let versions = [13, 12, 11, 10];
    if cfg!(windows) {
        versions.iter().map(|v| format!("{stem}64_{v}.dll")).collect()
    } else {
        let own = versions.iter().map(|v| format!("lib{stem}.so.{v}"));
        own.chain([format!("lib{stem}.so")]).collect()
    }
}

fn fits(n: u64, format: Format, buffers: [&Buffer; 3], out_size: u64) -> Result<c_int, DriverError> {
    let [a, b, c] = buffers;
    let input = n * n * format.size();
    if n == 0 || a.bytes() < input || b.bytes() < input || c.bytes() < n * n * out_size {
        return Err(DriverError::Misuse("matrix larger than its buffer"));
    }
    c_int::try_from(n).map_err(|_| DriverError::Misuse("matrix too large"))
}

type GemmEx = unsafe extern "C" fn(
    Handle,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    u64,
    c_int,
    c_int,
    *const c_void,
    u64,
    c_int,
    c_int,
    c_int,
    c_int,
) -> c_int;

/// cuBLAS with a handle.
pub struct Blas {
    handle: Handle,
    gemm: GemmEx,
}

impl std::fmt::Debug for Blas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blas").finish_non_exhaustive()
    }
}

impl Blas {
    /// Loads cuBLAS for work in that stream. `hint` is a folder or file to look in first.
    pub fn open(hint: Option<&Path>, stream: &Stream) -> Result<Self, DriverError> {
        type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
        type SetStream = unsafe extern "C" fn(Handle, Handle) -> c_int;
        let library = open_first(&places(&names("cublas"), hint)).map_err(DriverError::NoDriver)?;
        let name = "cuBLAS";
        // SAFETY: the types are those of `cublas_api.h`; out-pointers are to live locals; the stream lives as long
        // as its context, which is never destroyed.
        unsafe {
            let create: Create = function(library, name, "cublasCreate_v2")?;
            let set_stream: SetStream = function(library, name, "cublasSetStream_v2")?;
            let gemm: GemmEx = function(library, name, "cublasGemmEx")?;
            let mut handle = null_mut();
            check("cublasCreate", create(&raw mut handle))?;
            check("cublasSetStream", set_stream(handle, stream.raw()))?;
            Ok(Self { handle, gemm })
        }
    }

    /// Queues the product of two square matrices of `n` rows: c = a b. The result has the format of the factors.
    pub fn product(&self, format: Format, n: u64, buffers: [&Buffer; 3]) -> Result<(), DriverError> {
        let side = fits(n, format, buffers, format.size())?;
        let (one, zero) = ([1.0f32, 0.0], [0.0f32, 0.0]);
        let (one64, zero64) = (1.0f64, 0.0f64);
        let (alpha, beta): (*const c_void, *const c_void) = if format == Format::Fp64 {
            ((&raw const one64).cast(), (&raw const zero64).cast())
        } else {
            (one.as_ptr().cast(), zero.as_ptr().cast())
        };
        let [a, b, c] = buffers.map(Buffer::address);
        let kind = format.data_type();
        // SAFETY: the buffers hold the matrices; scalars are read before the call returns. -1: default algorithm.
        let status = unsafe {
            (self.gemm)(
                self.handle,
                0,
                0,
                side,
                side,
                side,
                alpha,
                a,
                kind,
                side,
                b,
                kind,
                side,
                beta,
                c,
                kind,
                side,
                format.compute_type(),
                -1,
            )
        };
        check("cublasGemmEx", status)
    }
}

/// What cuBLASLt answers when asked how to multiply: `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct Heuristic {
    algorithm: [u64; 8],
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

type LtMatmul = unsafe extern "C" fn(
    Handle,
    Handle,
    *const c_void,
    u64,
    Handle,
    u64,
    Handle,
    *const c_void,
    u64,
    Handle,
    u64,
    Handle,
    *const c_void,
    u64,
    usize,
    Handle,
) -> c_int;

/// cuBLASLt, set up for 8-bit products of one size.
pub struct BlasLt {
    handle: Handle,
    matmul: LtMatmul,
    plan: Handle,
    input: Handle,
    output: Handle,
    heuristic: Heuristic,
    workspace: Buffer,
    n: u64,
}

impl std::fmt::Debug for BlasLt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlasLt").field("n", &self.n).finish_non_exhaustive()
    }
}

/// Workspace that the frameworks give cuBLASLt on Hopper.
const WORKSPACE: u64 = 32 << 20;

impl BlasLt {
    /// Loads cuBLASLt and asks it how to multiply 8-bit matrices of `n` rows into bfloat16.
    pub fn open(hint: Option<&Path>, stream: &Stream, n: u64) -> Result<Self, DriverError> {
        type Create = unsafe extern "C" fn(*mut Handle) -> c_int;
        type DescCreate = unsafe extern "C" fn(*mut Handle, c_int, c_int) -> c_int;
        type Set = unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> c_int;
        type LayoutCreate = unsafe extern "C" fn(*mut Handle, c_int, u64, u64, i64) -> c_int;
        type Ask = unsafe extern "C" fn(
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            Handle,
            c_int,
            *mut Heuristic,
            *mut c_int,
        ) -> c_int;
        let library = open_first(&places(&names("cublasLt"), hint)).map_err(DriverError::NoDriver)?;
        let name = "cuBLASLt";
        let workspace = Buffer::new(stream.cuda(), WORKSPACE)?;
        let rows = c_int::try_from(n).map_err(|_| DriverError::Misuse("matrix too large"))?;
        // SAFETY: the types are those of `cublasLt.h`; out-pointers are to live locals; attributes are passed with
        // their size and copied by the library.
        unsafe {
            let create: Create = function(library, name, "cublasLtCreate")?;
            let desc_create: DescCreate = function(library, name, "cublasLtMatmulDescCreate")?;
            let desc_set: Set = function(library, name, "cublasLtMatmulDescSetAttribute")?;
            let layout_create: LayoutCreate = function(library, name, "cublasLtMatrixLayoutCreate")?;
            let pref_create: Create = function(library, name, "cublasLtMatmulPreferenceCreate")?;
            let pref_set: Set = function(library, name, "cublasLtMatmulPreferenceSetAttribute")?;
            let ask: Ask = function(library, name, "cublasLtMatmulAlgoGetHeuristic")?;
            let matmul: LtMatmul = function(library, name, "cublasLtMatmul")?;
            let (mut handle, mut plan, mut preference) = (null_mut(), null_mut(), null_mut());
            let (mut input, mut output) = (null_mut(), null_mut());
            check("cublasLtCreate", create(&raw mut handle))?;
            // CUBLAS_COMPUTE_32F, scale in CUDA_R_32F.
            check("cublasLtMatmulDescCreate", desc_create(&raw mut plan, 68, 0))?;
            // CUBLASLT_MATMUL_DESC_TRANSA = CUBLAS_OP_T: 8-bit products exist in this layout only.
            let transpose: c_int = 1;
            check("cublasLtMatmulDescSetAttribute", desc_set(plan, 3, (&raw const transpose).cast(), 4))?;
            // CUBLASLT_MATMUL_DESC_FAST_ACCUM, as inference runs them. Older libraries lack it: no matter.
            let fast: i8 = 1;
            desc_set(plan, 25, (&raw const fast).cast(), 1);
            let side = i64::from(rows);
            let create = |layout: *mut Handle, format: Format| {
                check("cublasLtMatrixLayoutCreate", layout_create(layout, format.data_type(), n, n, side))
            };
            create(&raw mut input, Format::Fp8)?;
            create(&raw mut output, Format::Bf16)?;
            check("cublasLtMatmulPreferenceCreate", pref_create(&raw mut preference))?;
            let limit = WORKSPACE;
            let code = pref_set(preference, 1, (&raw const limit).cast(), 8);
            check("cublasLtMatmulPreferenceSetAttribute", code)?;
            let mut heuristic =
                Heuristic { algorithm: [0; 8], workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
            let mut found = 0;
            let code = ask(
                handle,
                plan,
                input,
                input,
                output,
                output,
                preference,
                1,
                &raw mut heuristic,
                &raw mut found,
            );
            check("cublasLtMatmulAlgoGetHeuristic", code)?;
            check("cublasLtMatmulAlgoGetHeuristic", heuristic.state)?;
            if found < 1 || heuristic.workspace as u64 > WORKSPACE {
                return Err(DriverError::Call {
                    call: "cublasLtMatmulAlgoGetHeuristic",
                    reason: "no 8-bit product".to_string(),
                });
            }
            Ok(Self { handle, matmul, plan, input, output, heuristic, workspace, n })
        }
    }

    /// Queues the product of two 8-bit matrices into a bfloat16 one.
    pub fn product(&self, stream: &Stream, buffers: [&Buffer; 3]) -> Result<(), DriverError> {
        fits(self.n, Format::Fp8, buffers, Format::Bf16.size())?;
        let (alpha, beta) = (1.0f32, 0.0f32);
        let [a, b, c] = buffers.map(Buffer::address);
        // SAFETY: the buffers hold the matrices; layouts, plan and workspace live in self; scalars are read before
        // the call returns.
        let status = unsafe {
            (self.matmul)(
                self.handle,
                self.plan,
                (&raw const alpha).cast(),
                a,
                self.input,
                b,
                self.input,
                (&raw const beta).cast(),
                c,
                self.output,
                c,
                self.output,
                self.heuristic.algorithm.as_ptr().cast(),
                self.workspace.address(),
                self.heuristic.workspace,
                stream.raw(),
            )
        };
        check("cublasLtMatmul", status)
    }
}
