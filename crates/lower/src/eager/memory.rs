//! Device memory over one iteration: which storage lives when, and the peak.
//!
//! PyTorch's caching allocator rounds each request up to 512 bytes, and `max_memory_allocated` is the largest
//! sum of live requests. A storage lives while something refers to it: a variable of the forward, a tensor
//! saved for backward, a gradient, the autocast cache.

use preflop_graph::MemoryUse;
use preflop_units::Bytes;
use preflop_units::dtype::Dtype;

/// What a storage is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Weights = 0,
    Gradients = 1,
    Optimizer = 2,
    Activations = 3,
    Cache = 4,
}

/// Requests are rounded up to this many bytes (`kMinBlockSize` of PyTorch's CUDA allocator).
const ROUNDING: f64 = 512.0;

/// Library workspaces that live through a whole run, measured on 64 iterations of an H200: what
/// `max_memory_allocated` shows above the sum of tensors when no convolution is involved (cuBLAS and cuBLASLt
/// handles; the autograd thread has its own).
const INFERENCE_WORKSPACE: f64 = 66.0 * 1024.0 * 1024.0;
/// As [`INFERENCE_WORKSPACE`], in training.
const TRAINING_WORKSPACE: f64 = 85.0 * 1024.0 * 1024.0;
/// What each stream beside the default one adds: cuBLAS has a workspace for every handle and stream that ran a product, and PyTorch keeps it ("cuBLAS workspaces"
/// in its notes on CUDA semantics; 32 MiB on Hopper).
const STREAM_WORKSPACE: f64 = 32.0 * 1024.0 * 1024.0;

/// From this size on a request gets a segment of its own (`kMinLargeAlloc`), rounded up to [`SEGMENT`]
/// (`kRoundLarge`); what is left over is split off only above [`UNSPLIT`] (`kSmallSize`), else it counts as allocated.
const OWN_SEGMENT: f64 = 10.0 * 1024.0 * 1024.0;
const SEGMENT: f64 = 2.0 * 1024.0 * 1024.0;
const UNSPLIT: f64 = 1024.0 * 1024.0;

/// The block that PyTorch's allocator counts for a request.
fn block(bytes: f64) -> f64 {
    let segment = (bytes / SEGMENT).ceil() * SEGMENT;
    if bytes >= OWN_SEGMENT && segment - bytes <= UNSPLIT { segment } else { bytes }
}

/// What PyTorch's allocator counts for a request of so many bytes.
pub(crate) fn counted(bytes: f64) -> f64 {
    block((bytes / ROUNDING).ceil() * ROUNDING)
}

/// Bytes of a compiled program at their peak.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Peak {
    pub activations: f64,
    pub gradients: f64,
    pub workspace: f64,
}

#[derive(Debug)]
struct Storage {
    bytes: f64,
    refs: u32,
    class: Class,
    /// Does it count?
    counted: bool,
}

/// Live storages, counted by reference, and the peak so far.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    storages: Vec<Storage>,
    live: [f64; 5],
    peak: f64,
    at_peak: [f64; 5],
    peak_workspace: f64,
    /// Are activations left out? What a compiler fuses is counted by its kernels ([`Memory::compiled`]).
    pub uncounted: bool,
}

impl Memory {
    /// A new storage of `elements`, with one reference.
    pub fn alloc(&mut self, elements: u64, dtype: Dtype, class: Class) -> u32 {
        self.request(elements as f64 * dtype.size(), class)
    }

    /// A new storage for a request of so many bytes, as the allocator counts it, with one reference.
    pub fn request(&mut self, bytes: f64, class: Class) -> u32 {
        let bytes = counted(bytes);
        let counted = !(self.uncounted && class == Class::Activations);
        self.storages.push(Storage { bytes, refs: 1, class, counted });
        if counted {
            self.live[class as usize] += bytes;
            self.note_peak(0.0);
        }
        self.storages.len() as u32 - 1
    }

    /// A storage counts from now on.
    pub fn write(&mut self, id: u32) {
        let s = &mut self.storages[id as usize];
        if !std::mem::replace(&mut s.counted, true) && s.refs > 0 {
            self.live[s.class as usize] += s.bytes;
            self.note_peak(0.0);
        }
    }

    /// Size of a storage.
    pub fn bytes(&self, id: u32) -> f64 {
        self.storages[id as usize].bytes
    }

    /// One more reference.
    pub fn retain(&mut self, id: u32) {
        self.storages[id as usize].refs += 1;
    }

    /// One reference less; the last one frees.
    pub fn release(&mut self, id: u32) {
        let s = &mut self.storages[id as usize];
        debug_assert!(s.refs > 0, "storage released twice");
        s.refs = s.refs.saturating_sub(1);
        if s.refs == 0 && s.counted {
            self.live[s.class as usize] -= s.bytes;
        }
    }

    /// References to a storage.
    pub fn refs(&self, id: u32) -> u32 {
        self.storages[id as usize].refs
    }

    /// The storage becomes something else (an activation gradient turns out to be a parameter's).
    pub fn reclass(&mut self, id: u32, class: Class) {
        self.write(id);
        let s = &mut self.storages[id as usize];
        self.live[s.class as usize] -= s.bytes;
        self.live[class as usize] += s.bytes;
        s.class = class;
    }

    /// A workspace that lives only during the present call.
    pub fn workspace(&mut self, bytes: f64) {
        self.note_peak(bytes);
    }

    /// The values of a compiled forward and backward at their peak, beside what lives through the whole run.
    pub fn compiled(&mut self, peak: Peak) {
        let mut live = self.live;
        live[Class::Gradients as usize] = peak.gradients;
        live[Class::Activations as usize] += peak.activations;
        let total = live.iter().sum::<f64>() + peak.workspace;
        if total > self.peak {
            (self.peak, self.at_peak, self.peak_workspace) = (total, live, peak.workspace);
        }
    }

    fn note_peak(&mut self, workspace: f64) {
        let total = self.live.iter().sum::<f64>() + workspace;
        if total > self.peak {
            self.peak = total;
            self.at_peak = self.live;
            self.peak_workspace = workspace;
        }
    }

    /// The peak so far is forgotten: what lives now is the least that it can be (`torch.cuda.reset_peak_memory_stats`).
    pub fn reset_peak(&mut self) {
        self.peak = 0.0;
        self.note_peak(0.0);
    }

    /// The parts at the peak, with products on so many streams beside the default one.
    pub fn finish(&self, training: bool, side_streams: u64) -> MemoryUse {
        let fixed = if training { TRAINING_WORKSPACE } else { INFERENCE_WORKSPACE };
        let fixed = fixed + STREAM_WORKSPACE * side_streams as f64;
        let [weights, gradients, optimizer, activations, cache] = self.at_peak;
        MemoryUse {
            weights: Bytes(weights),
            gradients: Bytes(gradients),
            optimizer: Bytes(optimizer),
            cache: Bytes(cache),
            activations: Bytes(activations),
            workspace: Bytes(self.peak_workspace + fixed),
            peak: Bytes(self.peak + fixed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_as_the_allocator_counts_them() {
        let mib = 1024.0 * 1024.0;
        // 1280 x 5120 in fp32: 25 MiB in a segment of 26, and 1 MiB is not split off.
        assert_eq!(block(25.0 * mib), 26.0 * mib);
        // 1280 x 3840 in fp32: 18.75 MiB in a segment of 20, and 1.25 MiB is split off.
        assert_eq!(block(18.75 * mib), 18.75 * mib);
        assert_eq!(block(9.5 * mib), 9.5 * mib);
        assert_eq!(block(64.0 * mib), 64.0 * mib);
    }
}
