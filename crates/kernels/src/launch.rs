//! A launch: what a profiler would show of one kernel.

/// What a kernel does within its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The work that the call is named after.
    Main,
    /// A tensor brought into another layout, before or after.
    Convert,
    /// Parts of sums added up.
    Reduce,
    /// Results or counters set to zero first.
    Clear,
}

impl Part {
    /// The name used in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Convert => "convert",
            Self::Reduce => "reduce",
            Self::Clear => "clear",
        }
    }
}

/// The pipes that a kernel's arithmetic runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pipe {
    /// Matrix units.
    Tensor,
    /// Ordinary arithmetic.
    Plain,
}

impl Pipe {
    /// The name used in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Plain => "plain",
        }
    }
}

/// Kernels of one kind that a call launches one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Launch {
    /// Kernel family.
    pub family: &'static str,
    /// What it does within its call.
    pub part: Part,
    /// Rows and columns of a CTA's tile, where it has one.
    pub tile: Option<[u32; 2]>,
    /// CTAs of its grid, where the form knows them.
    pub ctas: Option<f64>,
    /// How many of them in a row.
    pub count: u32,
    /// Useful FLOPs of all of them, and on which pipes.
    pub flops: f64,
    /// See `flops`.
    pub pipe: Pipe,
    /// Bytes of all of them through the L1s, from the L2, to and from DRAM.
    pub bytes: [f64; 3],
    /// Streams over which they are spread.
    pub streams: u32,
    /// Seconds of all of them.
    pub seconds: f64,
}
