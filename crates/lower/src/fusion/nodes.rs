//! Operators as walks over places and reductions.

use super::kernels::padded;
use super::reductions::{rows_of_both, splits};
use super::{Dear, Node, Walk, makers};
use crate::eager::{Access, Flow};
use foldhash::fast::FixedState;
use preflop_graph::{Phase, Step};
use preflop_ops::{
    Elementwise, ElementwiseKind as E, Gemm, Movement, MovementKind, Op, Pass, Rowwise, RowwiseKind, Spatial,
    SpatialKind,
};
use std::collections::HashMap;

/// Inputs of a concatenation that is one walk; of more, each is copied to its place (`max_pointwise_cat_inputs`).
const WALKED_PIECES: usize = 8;
/// Bytes of a sum or a statistic.
const FULL: f64 = 4.0;

/// The nodes of an iteration, and values that are written for their own sake.
pub(super) struct Program {
    pub nodes: Vec<Node>,
    pub outputs: Vec<u32>,
    /// How many values there are.
    pub values: usize,
}

pub(super) fn program(steps: &[Step], flows: &[Flow]) -> Program {
    let known = flows.iter().flat_map(|f| f.reads.iter().chain(&f.writes)).map(|a| a.value + 1).max();
    let mut made = Maker {
        nodes: Vec::with_capacity(steps.len() * 2),
        outputs: Vec::new(),
        next: known.unwrap_or(0),
        pieces: HashMap::default(),
        scores: None,
        step: 0,
        phase: Phase::Forward,
    };
    let nothing = Flow::default();
    for (i, step) in steps.iter().enumerate() {
        (made.step, made.phase) = (i, step.phase);
        made.add(step, flows.get(i).unwrap_or(&nothing));
    }
    // What the last operator of an inference made is its result.
    if let Some(last) = made.nodes.last() {
        made.outputs.extend(last.writes.iter().map(|w| w.value));
    }
    let values = made.next as usize;
    layouts(&mut made.nodes, steps, values);
    Program { nodes: made.nodes, outputs: made.outputs, values }
}

struct Maker {
    nodes: Vec<Node>,
    outputs: Vec<u32>,
    next: u32,
    /// The copies that a concatenation of many tensors consists of.
    pieces: HashMap<u32, Vec<Access>, FixedState>,
    /// Row statistics of the loss.
    scores: Option<Access>,
    step: usize,
    phase: Phase,
}

impl Maker {
    fn value(&mut self, bytes: f64) -> Access {
        self.next += 1;
        Access { value: self.next - 1, bytes }
    }

    fn node(&mut self, walk: Walk, places: u64, reads: &[Access], writes: &[Access]) -> &mut Node {
        self.nodes.push(Node {
            walk,
            places: places.max(1),
            reads: reads.to_vec(),
            writes: writes.to_vec(),
            step: self.step,
            phase: self.phase,
            more_loads: 0,
            order: 0,
            written: false,
            anew: true,
            pieces: 1,
            sum: None,
            dear: Dear::default(),
        });
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    fn walk(&mut self, places: u64, reads: &[Access], writes: &[Access]) -> &mut Node {
        self.node(Walk::Pointwise, places, reads, writes)
    }

    fn reduce(
        &mut self,
        results: u64,
        reduced: u64,
        outer: bool,
        reads: &[Access],
        writes: &[Access],
    ) -> &mut Node {
        self.node(Walk::Reduction { reduced: reduced.max(1), outer }, results, reads, writes)
    }

    /// A reduction, in two steps where it is split.
    fn reduce_split(
        &mut self,
        results: u64,
        reduced: u64,
        outer: bool,
        reads: &[Access],
        writes: &[Access],
    ) -> &mut Node {
        let parts = splits(reduced, results, outer);
        if parts <= 1 {
            return self.reduce(results, reduced, outer, reads, writes);
        }
        let partial = self.value((results * parts) as f64 * FULL);
        self.reduce(results * parts, reduced.div_ceil(parts), outer, reads, &[partial]);
        self.reduce(results, parts, outer, &[partial], writes)
    }

    fn add(&mut self, step: &Step, flow: &Flow) {
        if step.phase == Phase::Optimizer {
            return;
        }
        let mut reads: Vec<Access> = Vec::with_capacity(flow.reads.len());
        for read in &flow.reads {
            match self.pieces.get(&read.value) {
                Some(pieces) => reads.extend(pieces),
                None => reads.push(*read),
            }
        }
        let writes = &flow.writes;
        let size = step.call.dtype.size();
        let backward = step.call.pass != Pass::Fwd;
        match &step.call.op {
            Op::Elementwise(e) if writes.is_empty() => self.alone(e.n, size),
            Op::Elementwise(e) => self.elementwise(*e, flow.moved, &reads, writes),
            Op::Movement(m) => self.movement(*m, size, &reads, writes),
            Op::Rowwise(r) if !writes.is_empty() => self.rowwise(*r, backward, &reads, writes),
            Op::Spatial(s) if !writes.is_empty() => self.spatial(s, size, backward, &reads, writes),
            Op::Embedding(e) if !writes.is_empty() => {
                let places = e.tokens.saturating_mul(e.dim);
                if backward {
                    let zeros = self.value(writes[0].bytes);
                    self.walk(e.vocab.saturating_mul(e.dim), &[], &[zeros]).written = true;
                    let rows = Access { bytes: reads[0].bytes, ..zeros };
                    let read: Vec<Access> = reads.iter().copied().chain([rows]).collect();
                    let added = Access { bytes: reads[0].bytes, ..writes[0] };
                    let node = self.walk(places, &read, &[added]);
                    (node.written, node.dear.atomics) = (true, true);
                } else {
                    self.walk(places, &reads, writes);
                }
            }
            Op::CrossEntropy(c) if !writes.is_empty() && !reads.is_empty() => {
                if backward {
                    let total = self.value(c.rows as f64 * FULL);
                    let read: Vec<Access> = reads.iter().copied().chain(self.scores).chain([total]).collect();
                    self.reduce(c.rows, c.classes, false, &reads[reads.len() - 1..], &[total]);
                    self.walk(c.rows.saturating_mul(c.classes), &read, writes).dear.function = true;
                } else {
                    let scores = self.value(2.0 * c.rows as f64 * FULL);
                    self.scores = Some(scores);
                    let dear = Dear { function: true, online_softmax: true, ..Dear::default() };
                    self.reduce(c.rows, c.classes, false, &reads[..1], &[scores]).dear = dear;
                    let read: Vec<Access> = reads[1..].iter().copied().chain([scores]).collect();
                    self.reduce_split(1, c.rows, false, &read, &writes[..1]);
                }
            }
            Op::Interpolate(_) if !writes.is_empty() => {
                self.walk((writes[0].bytes / size) as u64, &reads, writes);
            }
            Op::Gemm(g) => {
                let reads = self.aligned(*g, step, reads);
                self.node(Walk::Library, 1, &reads, writes);
            }
            _ => {
                self.node(Walk::Library, 1, &reads, writes);
            }
        }
    }

    /// What a product reads, where it is padded to sizes that 16-byte loads can take: copies.
    fn aligned(&mut self, g: Gemm, step: &Step, mut reads: Vec<Access>) -> Vec<Access> {
        let p = padded(g, step.call.dtype);
        let inner = p.k as f64 / g.k.max(1) as f64;
        // Rows and columns of an even number are left as they are: a product of 30522 columns was not padded along them, one of 50257 was.
        let odd = |size: u64, padded: u64| if size % 2 == 1 { padded as f64 / size as f64 } else { 1.0 };
        let outer = [odd(g.m, p.m), odd(g.n, p.n)];
        for (read, outer) in reads.iter_mut().zip(outer).filter(|(_, o)| o * inner > 1.0) {
            let copy = self.value(read.bytes * outer * inner);
            let places = (copy.bytes / step.call.dtype.size()) as u64;
            self.walk(places, &[*read], &[copy]).written = true;
            *read = copy;
        }
        reads
    }

    /// A kernel of which nothing is known but its size.
    fn alone(&mut self, places: u64, size: f64) {
        let out = self.value(places as f64 * size);
        self.outputs.push(out.value);
        self.walk(places, &[], &[out]);
    }

    fn elementwise(&mut self, e: Elementwise, moved: bool, reads: &[Access], writes: &[Access]) {
        let order = if moved { self.step as u32 + 1 } else { 0 };
        let random = e.kind == E::Dropout;
        // A mask of dropout is a byte for each place.
        let mask =
            |(i, w): (usize, &Access)| if random && i == 1 { Access { bytes: e.n as f64, ..*w } } else { *w };
        let writes: Vec<Access> = writes.iter().enumerate().map(mask).collect();
        let node = self.walk(e.n, reads, &writes);
        (node.order, node.written, node.anew) = (order, random, !random);
        (node.dear.function, node.dear.random) = (e.kind.arity().2 >= 5.0, random);
    }

    fn movement(&mut self, m: Movement, size: f64, reads: &[Access], writes: &[Access]) {
        let Some(out) = writes.first() else {
            return self.alone(m.rows.saturating_mul(m.cols), size);
        };
        let cat = matches!(m.kind, MovementKind::Cat | MovementKind::CatStrided);
        if cat && reads.len() > WALKED_PIECES {
            let mut copies = Vec::with_capacity(reads.len());
            for read in reads {
                let copy = self.value(read.bytes);
                let node = self.walk((read.bytes / size) as u64, &[*read], &[copy]);
                (node.written, node.anew) = (true, false);
                copies.push(copy);
            }
            self.pieces.insert(out.value, copies);
            return;
        }
        let order = if cat && reads.len() > 1 { 0 } else { self.step as u32 + 1 };
        let node = self.walk((out.bytes / size) as u64, reads, writes);
        (node.order, node.anew) = (order, !cat);
    }

    fn rowwise(&mut self, r: Rowwise, backward: bool, reads: &[Access], writes: &[Access]) {
        let places = r.rows.saturating_mul(r.cols);
        let with = |more: &[Access]| reads.iter().chain(more).copied().collect::<Vec<_>>();
        match r.kind {
            RowwiseKind::SumCols | RowwiseKind::SumChannels => {
                self.reduce_split(r.cols, r.rows, true, reads, writes);
            }
            RowwiseKind::Sum => {
                self.reduce_split(r.rows, r.cols, false, reads, writes);
            }
            RowwiseKind::Softmax | RowwiseKind::LogSoftmax => {
                let row = self.value(r.rows as f64 * FULL);
                if backward {
                    self.reduce_split(r.rows, r.cols, false, &reads[..1], &[row]);
                    self.walk(places, &with(&[row]), writes);
                } else {
                    let dear = Dear { function: true, online_softmax: true, ..Dear::default() };
                    self.reduce_split(r.rows, r.cols, false, reads, &[row]).dear = dear;
                    self.walk(places, &with(&[row]), writes).dear.function = true;
                }
            }
            RowwiseKind::LayerNorm | RowwiseKind::RmsNorm if !backward => {
                let statistics = if writes.len() > 1 {
                    writes[1..].to_vec()
                } else {
                    vec![self.value(r.rows as f64 * FULL)]
                };
                self.reduce_split(r.rows, r.cols, false, &reads[..1], &statistics);
                self.walk(places, &with(&statistics), &writes[..1]);
            }
            RowwiseKind::LayerNorm | RowwiseKind::RmsNorm => self.norm_backward(r, reads, writes),
        }
    }

    /// Sums along rows and the gradient of what went in; sums across rows for those of the weights, which ride along where Inductor lets them and are
    /// then added up by PyTorch's own kernels.
    fn norm_backward(&mut self, r: Rowwise, reads: &[Access], writes: &[Access]) {
        let places = r.rows.saturating_mul(r.cols);
        let row = self.value(2.0 * r.rows as f64 * FULL);
        let read: Vec<Access> = reads.iter().copied().chain([row]).collect();
        let Some(block) = rows_of_both(r.rows, r.cols) else {
            self.reduce(r.rows, r.cols, false, reads, &[row]);
            self.walk(places, &read, &writes[..1]);
            for (i, &w) in writes[1..].iter().enumerate() {
                // The bias needs the gradient alone.
                self.reduce_split(r.cols, r.rows, true, if i == 0 { reads } else { &reads[..1] }, &[w]);
            }
            return;
        };
        let rows = r.rows.div_ceil(block);
        let partial: Vec<Access> =
            writes[1..].iter().map(|_| self.value((rows * r.cols) as f64 * FULL)).collect();
        let made: Vec<Access> = partial.iter().copied().chain([row]).collect();
        self.reduce(r.rows, r.cols, false, reads, &made);
        self.walk(places, &read, &writes[..1]);
        for (p, w) in partial.iter().zip(&writes[1..]) {
            self.node(Walk::Library, 1, &[*p], &[*w]).sum = Some((rows, r.cols));
        }
    }

    fn spatial(&mut self, s: &Spatial, size: f64, backward: bool, reads: &[Access], writes: &[Access]) {
        let pixels = [s.h, s.w].into_iter().fold(s.batch, u64::saturating_mul);
        let places = pixels.saturating_mul(s.channels);
        let with = |more: &[Access]| reads.iter().chain(more).copied().collect::<Vec<_>>();
        match s.kind {
            // The stored mean and variance are two loads more.
            SpatialKind::BatchNormEval => self.walk(places, reads, writes).more_loads = 2,
            SpatialKind::GlobalAvgPool => {
                // Channels lie innermost.
                self.reduce(s.batch.saturating_mul(s.channels), s.h.saturating_mul(s.w), true, reads, writes);
            }
            SpatialKind::BatchNorm | SpatialKind::BatchNormNative => {
                let sums = &writes[1..];
                if backward {
                    self.two_sums(s.channels, pixels, reads, sums);
                } else {
                    self.moments(s.channels, pixels, &reads[..1], sums);
                }
                self.walk(places, &with(sums), &writes[..1]);
            }
            SpatialKind::GroupNorm => {
                let groups = s.batch.saturating_mul(s.groups).max(1);
                if backward {
                    let rows = s.batch.saturating_mul(s.channels);
                    let sums = self.value(2.0 * rows as f64 * FULL);
                    self.reduce_split(rows, places / rows.max(1), false, reads, &[sums]);
                    self.walk(places, &with(&[sums]), &writes[..1]);
                    self.reduce_split(s.channels, s.batch, true, &[sums], &writes[1..]);
                } else {
                    self.reduce_split(groups, places / groups, false, &reads[..1], &writes[1..]);
                    self.walk(places, &with(&writes[1..]), &writes[..1]);
                }
            }
            SpatialKind::MaxPool | SpatialKind::AvgPool | SpatialKind::AdaptiveAvgPool => {
                let max = s.kind == SpatialKind::MaxPool;
                let window = (s.window * s.window).clamp(1, 16) as u32;
                if backward {
                    let read = if max && reads.len() > 1 {
                        vec![reads[0], reads[reads.len() - 1]]
                    } else {
                        vec![reads[0]]
                    };
                    let node = self.walk(places, &read, writes);
                    (node.written, node.more_loads, node.dear.pooling_gradient) = (true, 3, max);
                    return;
                }
                let results = writes[0].bytes / size;
                // Places of maxima are bytes: offsets in the window.
                let places_of =
                    |(i, w): (usize, &Access)| if i == 0 { *w } else { Access { bytes: results, ..*w } };
                let writes: Vec<Access> = writes.iter().enumerate().map(places_of).collect();
                let node = self.walk(results as u64, reads, &writes);
                (node.written, node.more_loads) = (true, window - 1);
            }
        }
    }

    /// The two sums of a batch norm's gradient: one walk over the maps, then each sum by itself.
    fn two_sums(&mut self, channels: u64, pixels: u64, reads: &[Access], writes: &[Access]) {
        let parts = splits(pixels, channels, true);
        if parts <= 1 {
            self.reduce(channels, pixels, true, reads, writes);
            return;
        }
        let partial: Vec<Access> =
            writes.iter().map(|_| self.value((channels * parts) as f64 * FULL)).collect();
        self.reduce(channels * parts, pixels.div_ceil(parts), true, reads, &partial);
        for (p, w) in partial.iter().zip(writes) {
            self.reduce(channels, parts, true, &[*p], &[*w]);
        }
    }

    /// Mean and deviation by Welford's method, whose partial results (three each) are split again.
    fn moments(&mut self, channels: u64, pixels: u64, reads: &[Access], writes: &[Access]) {
        let (mut reads, mut left) = (reads.to_vec(), pixels);
        loop {
            let parts = splits(left, channels, true);
            if parts <= 1 {
                break;
            }
            let partial = self.value(3.0 * (channels * parts) as f64 * FULL);
            self.reduce(channels * parts, left.div_ceil(parts), true, &reads, &[partial]);
            (reads, left) = (vec![partial], parts);
        }
        self.reduce(channels, left, true, &reads, writes);
    }
}

/// Images wider than this are read in rows of a few values when they are turned channels-last.
const WIDE_MAPS: u64 = 1000;

/// What a convolution reads from outside is cast and turned channels-last at once.
fn layouts(nodes: &mut [Node], steps: &[Step], values: usize) {
    let makers = makers(nodes, values);
    let maker = |read: &Access| Some(makers[read.value as usize] as usize).filter(|m| *m < nodes.len());
    let outside = |n: &Node| n.reads.iter().all(|r| maker(r).is_none());
    let mut turned: Vec<(usize, bool)> = Vec::new();
    for node in nodes.iter().filter(|n| n.walk == Walk::Library) {
        let call = &steps[node.step].call;
        let (Op::Conv(c), Pass::Fwd) = (&call.op, call.pass) else { continue };
        for (at, read) in node.reads.iter().enumerate() {
            let flat = at > 0 && c.r * c.s == 1;
            let cast = |m: &usize| !flat && nodes[*m].walk == Walk::Pointwise && outside(&nodes[*m]);
            if let Some(maker) = maker(read).filter(cast) {
                turned.push((maker, at == 0 && c.h.saturating_mul(c.w) > WIDE_MAPS));
            }
        }
    }
    for (at, narrow) in turned {
        nodes[at].dear.tiled = true;
        nodes[at].dear.narrow |= narrow;
    }
}
