//! The texts of the kernels.

use super::{
    CHASE_UNROLL, FMA_CHAINS, FMA_UNROLL, MMA_TILES, MMA_UNROLL, READ_UNROLL, SHARED_BYTES, SHARED_STRIDE,
};

/// Start of a module. PTX for an old GPU runs on all newer ones; drivers of new GPUs need not know the oldest.
pub(super) fn header(capability: u32) -> String {
    let (version, target) = match capability {
        90.. => ("7.8", 90),
        80.. => ("7.0", 80),
        75.. => ("6.3", 75),
        _ => ("6.0", 50),
    };
    format!(".version {version}\n.target sm_{target}\n.address_size 64\n\n")
}

/// Writes `body(i)` for i from 0 to n.
pub(super) fn repeat(n: usize, body: impl Fn(usize) -> String) -> String {
    (0..n).map(body).collect()
}

/// What timed kernels begin and end with: thread 0 of every block stores clock and nanoseconds of start and end at
/// `records + 32 block`.
const START: &str = "    bar.sync 0;
    mov.u64 %c0, %clock64;
    mov.u64 %g0, %globaltimer;
";
pub(super) const END: &str = "    bar.sync 0;
    mov.u64 %c1, %clock64;
    mov.u64 %g1, %globaltimer;
    mov.u32 %thread, %tid.x;
    setp.ne.u32 %p, %thread, 0;
    @%p bra DONE;
    mov.u32 %cta, %ctaid.x;
    mul.wide.u32 %rd0, %cta, 32;
    add.u64 %rd0, %rd0, %records;
    st.global.u64 [%rd0], %c0;
    st.global.u64 [%rd0+8], %c1;
    st.global.u64 [%rd0+16], %g0;
    st.global.u64 [%rd0+24], %g1;
DONE:
    ret;
}
";
const REGISTERS: &str = "    .reg .pred %p, %q;
    .reg .u32 %thread, %cta, %n, %h, %off, %limit, %step, %toggle;
    .reg .u64 %records, %rd<4>, %c0, %c1, %g0, %g1, %base, %addr;
";

/// Sums words into `%h` and stores it where no caller can see, if it has a value that it never has: keeps results alive.
const KEEP: &str = "    setp.eq.u32 %q, %h, 0x7fedcba9;
    @%q st.global.u32 [%records], %h;
";

pub(super) fn fma(name: &str, kind: &str) -> String {
    let (register, constant) = match kind {
        "f64" => ("f64", "f64"),
        "f16x2" => ("b32", "b32"),
        _ => ("f32", "f32"),
    };
    // Constants come as 32-bit patterns; fp64 widens them.
    let widen = |to: &str, from: &str| match kind {
        "f64" => format!("    ld.param.f32 %single, [{from}];\n    cvt.f64.f32 {to}, %single;\n"),
        _ => format!("    ld.param.{constant} {to}, [{from}];\n"),
    };
    let param = if kind == "f16x2" { "b32" } else { "f32" };
    let starts = repeat(FMA_CHAINS, |i| match kind {
        "f16x2" => format!(
            "    add.u32 %h, %thread, {i};\n    and.b32 %h, %h, 0x03ff03ff;\n    or.b32 %x{i}, %h, 0x38003800;\n"
        ),
        "f64" => format!("    add.u32 %h, %thread, {i};\n    cvt.rn.f64.u32 %x{i}, %h;\n"),
        _ => format!("    add.u32 %h, %thread, {i};\n    cvt.rn.f32.u32 %x{i}, %h;\n"),
    });
    let body =
        repeat(FMA_UNROLL, |_| repeat(FMA_CHAINS, |i| format!("    fma.rn.{kind} %x{i}, %x{i}, %a, %b;\n")));
    let keep = repeat(FMA_CHAINS, |i| match kind {
        "f64" => {
            format!("    cvt.rn.f32.f64 %single, %x{i};\n    mov.b32 %n, %single;\n    add.u32 %h, %h, %n;\n")
        }
        _ => format!("    mov.b32 %n, %x{i};\n    add.u32 %h, %h, %n;\n"),
    });
    format!(
        ".visible .entry {name}(.param .u64 records, .param .u32 iterations, .param .{param} a, .param .{param} b)\n{{\n\
         {REGISTERS}    .reg .{register} %x<{FMA_CHAINS}>, %a, %b;\n    .reg .f32 %single;\n\
         \x20   ld.param.u64 %records, [records];\n    ld.param.u32 %n, [iterations];\n{}{}\
         \x20   mov.u32 %thread, %tid.x;\n{starts}{START}LOOP:\n{body}\
         \x20   sub.u32 %n, %n, 1;\n    setp.ne.u32 %p, %n, 0;\n    @%p bra LOOP;\n\
         \x20   mov.u32 %h, 0;\n{keep}{KEEP}{END}\n",
        widen("%a", "a"),
        widen("%b", "b"),
    )
}

/// Reads a region over and over: 16 bytes a thread, the threads of a block side by side, one region per block.
/// `toggle` is 0, which the compiler cannot know: the loads must stay in the loop.
pub(super) fn read(name: &str, load: &str, shared: bool) -> String {
    let body = repeat(READ_UNROLL as usize, |i| {
        let address = if shared {
            "    add.u32 %at, %window, %off;\n".to_string()
        } else {
            "    cvt.u64.u32 %addr, %off;\n    add.u64 %addr, %addr, %base;\n".to_string()
        };
        let from = if shared { "%at" } else { "%addr" };
        let v = i % 4 * 4;
        format!(
            "{address}    {load} {{%v{}, %v{}, %v{}, %v{}}}, [{from}];\n\
             \x20   add.u32 %off, %off, %step;\n    setp.ge.u32 %q, %off, %limit;\n    @%q sub.u32 %off, %off, %limit;\n\
             \x20   xor.b32 %off, %off, %toggle;\n{}",
            v,
            v + 1,
            v + 2,
            v + 3,
            // Add up what was loaded four loads at a time, so that four are under way.
            if i % 4 == 3 { repeat(16, |j| format!("    xor.b32 %h, %h, %v{j};\n")) } else { String::new() }
        )
    });
    let (declare, window) = if shared {
        (
            format!("    .shared .align 16 .b8 room[{SHARED_BYTES}];\n    .reg .u32 %window, %at;\n"),
            "    mov.u32 %window, room;\n".to_string(),
        )
    } else {
        (String::new(), "    mul.wide.u32 %rd1, %cta, %limit;\n    add.u64 %base, %base, %rd1;\n".to_string())
    };
    format!(
        ".visible .entry {name}(.param .u64 records, .param .u64 start, .param .u32 region, .param .u32 loads, .param .u32 toggle)\n{{\n\
         {REGISTERS}{declare}    .reg .b32 %v<16>;\n\
         \x20   ld.param.u64 %records, [records];\n    ld.param.u64 %base, [start];\n    ld.param.u32 %limit, [region];\n\
         \x20   ld.param.u32 %n, [loads];\n    ld.param.u32 %toggle, [toggle];\n\
         \x20   mov.u32 %cta, %ctaid.x;\n    mov.u32 %thread, %tid.x;\n{window}\
         \x20   shl.b32 %off, %thread, 4;\n    mov.u32 %step, %ntid.x;\n    shl.b32 %step, %step, 4;\n    mov.u32 %h, 0;\n\
         {START}LOOP:\n{body}    sub.u32 %n, %n, {READ_UNROLL};\n    setp.ne.u32 %p, %n, 0;\n    @%p bra LOOP;\n{KEEP}{END}\n"
    )
}

/// One thread follows a chain of addresses; the clock runs over the second part of the way.
pub(super) fn chase(name: &str, load: &str) -> String {
    let lap = |label: &str| {
        format!(
            "{label}:\n{}    sub.u32 %n, %n, {CHASE_UNROLL};\n    setp.ne.u32 %p, %n, 0;\n    @%p bra {label};\n",
            repeat(CHASE_UNROLL as usize, |_| format!("    {load} %addr, [%addr];\n"))
        )
    };
    format!(
        ".visible .entry {name}(.param .u64 records, .param .u64 start, .param .u32 warm, .param .u32 steps)\n{{\n\
         {REGISTERS}    ld.param.u64 %records, [records];\n    ld.param.u64 %addr, [start];\n    ld.param.u32 %n, [warm];\n\
         \x20   setp.eq.u32 %p, %n, 0;\n    @%p bra COLD;\n{}COLD:\n    ld.param.u32 %n, [steps];\n{START}{}\
         \x20   cvt.u32.u64 %h, %addr;\n{KEEP}{END}\n",
        lap("WARM"),
        lap("CHASE"),
    )
}

pub(super) fn chase_shared() -> String {
    let (entries, lap) = (
        SHARED_BYTES / SHARED_STRIDE,
        repeat(CHASE_UNROLL as usize, |_| "    ld.shared.u32 %off, [%off];\n".to_string()),
    );
    format!(
        ".visible .entry chase_shared(.param .u64 records, .param .u64 start, .param .u32 warm, .param .u32 steps)\n{{\n\
         {REGISTERS}    .shared .align 16 .b8 room[{SHARED_BYTES}];\n    .reg .u32 %window;\n\
         \x20   ld.param.u64 %records, [records];\n    mov.u32 %window, room;\n    mov.u32 %n, 0;\n\
         FILL:\n    mul.lo.u32 %off, %n, {SHARED_STRIDE};\n    add.u32 %off, %off, %window;\n    add.u32 %n, %n, 1;\n\
         \x20   mul.lo.u32 %h, %n, {SHARED_STRIDE};\n    and.b32 %h, %h, {};\n    add.u32 %h, %h, %window;\n\
         \x20   st.shared.u32 [%off], %h;\n    setp.lt.u32 %p, %n, {entries};\n    @%p bra FILL;\n\
         \x20   mov.u32 %off, %window;\n    ld.param.u32 %n, [steps];\n{START}CHASE:\n{lap}\
         \x20   sub.u32 %n, %n, {CHASE_UNROLL};\n    setp.ne.u32 %p, %n, 0;\n    @%p bra CHASE;\n\
         \x20   mov.u32 %h, %off;\n{KEEP}{END}\n",
        SHARED_BYTES - 1,
    )
}

pub(super) const PROBE_TEXT: &str = ".visible .entry probe(.param .u64 records, .param .u32 nanoseconds)
{
    .reg .pred %p;
    .reg .u32 %thread, %cta, %ns;
    .reg .u64 %records, %rd0, %c0, %c1, %g0, %g1, %wait;
    ld.param.u64 %records, [records];
    ld.param.u32 %ns, [nanoseconds];
    cvt.u64.u32 %wait, %ns;
    mov.u64 %c0, %clock64;
    mov.u64 %g0, %globaltimer;
SPIN:
    mov.u64 %g1, %globaltimer;
    sub.u64 %rd0, %g1, %g0;
    setp.lt.u64 %p, %rd0, %wait;
    @%p bra SPIN;
";

/// Random numbers, one per turn and thread. `last` turns the float `%f` (mean 0, variance 1; a sum of four uniform
/// numbers) or the hash `%h` into `%out` and stores it.
pub(super) fn fill(name: &str, bytes: u32, last: &str) -> String {
    let uniform = repeat(4, |_| {
        "    mad.lo.u32 %h, %h, 1664525, 1013904223;\n    shr.u32 %s, %h, 15;\n    xor.b32 %s, %s, %h;\n    \
         mul.lo.u32 %s, %s, 0x2c1b3c6d;\n    shr.u32 %t, %s, 12;\n    xor.b32 %s, %s, %t;\n    \
         cvt.rn.f32.s32 %u, %s;\n    fma.rn.f32 %f, %u, %scale, %f;\n"
            .to_string()
    });
    format!(
        ".visible .entry {name}(.param .u64 start, .param .u64 count, .param .u32 seed)\n{{\n\
         \x20   .reg .pred %p;\n    .reg .u32 %h, %s, %t, %seed, %thread, %cta, %size;\n    .reg .f32 %f, %u, %scale;\n    .reg .f64 %d;\n\
         \x20   .reg .b16 %half;\n    .reg .u64 %base, %count, %i, %step, %addr;\n\
         \x20   ld.param.u64 %base, [start];\n    ld.param.u64 %count, [count];\n    ld.param.u32 %seed, [seed];\n\
         \x20   mov.u32 %thread, %tid.x;\n    mov.u32 %cta, %ctaid.x;\n    mov.u32 %size, %ntid.x;\n\
         \x20   mad.wide.u32 %i, %cta, %size, 0;\n    cvt.u64.u32 %step, %thread;\n    add.u64 %i, %i, %step;\n\
         \x20   mov.u32 %h, %nctaid.x;\n    mul.wide.u32 %step, %size, %h;\n\
         \x20   mov.f32 %scale, 0f2fddb3d7;\n\
         LOOP:\n    setp.ge.u64 %p, %i, %count;\n    @%p bra DONE;\n\
         \x20   cvt.u32.u64 %h, %i;\n    mul.lo.u32 %h, %h, 0x9e3779b1;\n    xor.b32 %h, %h, %seed;\n    mov.f32 %f, 0f00000000;\n\
         {uniform}    mad.lo.u64 %addr, %i, {bytes}, %base;\n{last}    add.u64 %i, %i, %step;\n    bra LOOP;\nDONE:\n    ret;\n}}\n\n"
    )
}

/// One `mma` or `wmma` kernel: 8 independent tiles per warp, random factors in registers.
pub(super) fn mma(name: &str, instruction: &str, sizes: [usize; 3], mask: u32, one: u32) -> String {
    let [a, b, c] = sizes;
    let list = |r: &str, from: usize, n: usize| {
        (from..from + n).map(|i| format!("%{r}{i}")).collect::<Vec<_>>().join(", ")
    };
    let random = |r: &str, n: usize| {
        repeat(n, |i| {
            format!(
                "    mad.lo.u32 %h, %h, 1664525, 1013904223;\n    shr.u32 %n, %h, 15;\n    xor.b32 %n, %n, %h;\n    \
                 and.b32 %n, %n, {mask:#x};\n    or.b32 %{r}{i}, %n, {one:#x};\n"
            )
        })
    };
    let body = repeat(MMA_UNROLL, |_| {
        repeat(MMA_TILES, |t| {
            let d = list("d", t * c, c);
            format!("    {instruction} {{{d}}}, {{{}}}, {{{}}}, {{{d}}};\n", list("a", 0, a), list("b", 0, b))
        })
    });
    let keep = repeat(MMA_TILES * c, |i| format!("    mov.b32 %n, %d{i};\n    add.u32 %h, %h, %n;\n"));
    format!(
        ".visible .entry {name}(.param .u64 records, .param .u32 iterations)\n{{\n\
         {REGISTERS}    .reg .b32 %a<{a}>, %b<{b}>;\n    .reg .f32 %d<{}>;\n    .reg .u32 %loop;\n\
         \x20   ld.param.u64 %records, [records];\n    ld.param.u32 %loop, [iterations];\n    mov.u32 %thread, %tid.x;\n\
         \x20   mul.lo.u32 %h, %thread, 0x9e3779b1;\n{}{}{}{START}LOOP:\n{body}\
         \x20   sub.u32 %loop, %loop, 1;\n    setp.ne.u32 %p, %loop, 0;\n    @%p bra LOOP;\n    mov.u32 %h, 0;\n{keep}{KEEP}{END}\n",
        MMA_TILES * c,
        random("a", a),
        random("b", b),
        // Tiles that start alike would be computed once.
        repeat(MMA_TILES * c, |i| format!("    add.u32 %n, %h, {i};\n    cvt.rn.f32.u32 %d{i}, %n;\n")),
    )
}
