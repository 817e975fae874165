//! The recorded storages replayed: which live together, and the peak.

use super::document::{Capture, StorageKind};
use super::operators;
use crate::eager::{Class, Memory};
use preflop_graph::{MemoryUse, Mode};

fn class(kind: StorageKind) -> Class {
    match kind {
        StorageKind::Weight | StorageKind::Buffer => Class::Weights,
        StorageKind::Gradient => Class::Gradients,
        StorageKind::Optimizer => Class::Optimizer,
        StorageKind::Input | StorageKind::Activation => Class::Activations,
    }
}

/// What happens between two operators: storages end, storages begin, those that began and ended at once end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    End,
    Begin,
    EndAtOnce,
}

/// Memory at its peak, over the warm-up and the recorded iteration, from where the program reset its peak.
pub(super) fn peak(capture: &Capture) -> MemoryUse {
    let mut events: Vec<(u64, Event, usize)> = Vec::with_capacity(2 * capture.storages.len());
    for (i, s) in capture.storages.iter().enumerate() {
        // From the second iteration on, the optimizer's states are there all the time.
        let first = if s.1 == StorageKind::Optimizer && s.3.is_none() { 0 } else { s.2 };
        events.push((first, Event::Begin, i));
        if let Some(last) = s.3 {
            events.push((last, if last == first { Event::EndAtOnce } else { Event::End }, i));
        }
    }
    events.sort_unstable();
    let mut workspaces = operators::workspaces(capture).into_iter().peekable();
    let mut memory = Memory::default();
    let mut ids = vec![None; capture.storages.len()];
    let mut reset = capture.peak_from == 0;
    for (at, event, i) in events {
        // Workspaces of the operators that ran before this event.
        while let Some((_, bytes)) = workspaces.next_if(|(op, _)| *op < at) {
            memory.workspace(bytes);
        }
        if !reset && (at, event) >= (capture.peak_from, Event::Begin) {
            memory.reset_peak();
            reset = true;
        }
        let s = capture.storages[i];
        match event {
            Event::Begin => ids[i] = Some(memory.request(s.0 as f64, class(s.1))),
            Event::End | Event::EndAtOnce => {
                if let Some(id) = ids[i] {
                    memory.release(id);
                }
            }
        }
    }
    for (_, bytes) in workspaces {
        memory.workspace(bytes);
    }
    if !reset {
        memory.reset_peak();
    }
    memory.finish(capture.mode == Mode::Train, capture.side_streams)
}
