//! A profile ready for questions: its window, its GPU work grouped by operator call, and the work each asks for.

use super::attribution::{self, Attribution, Link, NONE};
use super::kernel_name::{self, KernelClass};
use super::operators::{self, Work};
use super::timeline;
use super::window::{self, Choice, Window, WindowError};
use super::{GpuEvent, HostOp, KernelFamily, NameId, Profile};
use preflop_graph::Phase;
use preflop_units::Seconds;
use preflop_units::dtype::Dtype;
use std::collections::HashMap;

/// The GPU work of one operator call, or all of one kind of launch without an operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Where it comes from.
    pub link: Link,
    /// Name: the operator's, or the kernel's where there is no operator.
    pub name: NameId,
    /// How many GPU events it has.
    launches: u32,
    /// Sum of their times.
    pub time: Seconds,
    /// Pass; `None` for unattributed work.
    pub phase: Option<Phase>,
    /// Innermost module.
    pub module: NameId,
    /// Index into [`Analysis::works`], where shapes are known.
    pub work: Option<u32>,
    /// Family.
    pub family: KernelFamily,
    /// Number format.
    pub dtype: Option<Dtype>,
    /// Does any of its kernels run on tensor cores?
    pub tensor_core: bool,
}

impl Group {
    /// Nothing of it is known yet but where it comes from.
    fn new(link: Link, name: NameId) -> Self {
        Self {
            link,
            name,
            launches: 0,
            time: Seconds::ZERO,
            phase: None,
            module: NameId::EMPTY,
            work: None,
            family: KernelFamily::Other,
            dtype: None,
            tensor_core: false,
        }
    }

    /// How many GPU events it has.
    pub fn launches(&self) -> u32 {
        self.launches
    }

    /// How many calls it stands for: a launch without an operator is one of its own.
    pub fn calls(&self) -> u32 {
        if self.is_unattributed() { self.launches } else { 1 }
    }

    /// Is no operator known for it?
    pub fn is_unattributed(&self) -> bool {
        !matches!(self.link, Link::Operator(_))
    }
}

/// A profile with everything that its questions need.
#[derive(Debug)]
pub struct Analysis<'a> {
    /// The profile.
    pub profile: &'a Profile,
    /// Links.
    pub links: Attribution,
    /// Window.
    pub window: Window,
    /// What each GPU event's name tells, by name.
    pub classes: HashMap<NameId, KernelClass>,
    /// Groups, by their first event.
    pub groups: Vec<Group>,
    /// The group of each GPU event of the window.
    places: Vec<u32>,
    /// Distinct works.
    pub works: Vec<Work>,
    /// Time of one iteration in which anything runs on the GPU.
    gpu_wall: Seconds,
    /// Host time of one iteration, without waits.
    host: Seconds,
}

/// How far up an operator with known work is looked for: `aten::linear` -> `aten::addmm` and the like.
const LEVELS: usize = 6;

/// An operator's name and inputs: all that its work depends on.
type WorkKey = (NameId, NameId, NameId, NameId, NameId, bool);

fn key(op: &HostOp) -> WorkKey {
    (op.name, op.dims, op.types, op.strides, op.concrete, op.backward)
}

/// Marks the borders at which looking up stops: a node of the backward graph is no operator.
fn is_border(name: &str) -> bool {
    name.starts_with("autograd::engine") || name.starts_with("Optimizer.")
}

impl<'a> Analysis<'a> {
    /// Analyses the chosen window.
    pub fn new(profile: &'a Profile, choice: &Choice) -> Result<Self, WindowError> {
        let links = attribution::attribute(profile);
        let window = window::take(profile, &links, choice)?;
        let mut classes = HashMap::new();
        let mut records = profile.gpu_events.iter();
        for i in window.events.iter() {
            let name = records.at(i as usize).name;
            classes.entry(name).or_insert_with(|| kernel_name::classify(profile.names.text(name)));
        }
        let busy = timeline::length(timeline::busy(profile, &window));
        let gpu_wall = Seconds(busy as f64 / 1e9 / f64::from(window.iterations.max(1)));
        let host = timeline::host_time(profile, &window);
        let (groups, places, works) = Default::default();
        let mut analysis = Self { profile, links, window, classes, groups, places, works, gpu_wall, host };
        analysis.group();
        Ok(analysis)
    }

    /// GPU events of the window by start, each with its group.
    pub fn events(&self) -> impl Iterator<Item = (GpuEvent, &Group)> {
        self.placed().map(|(event, place)| (event, &self.groups[place]))
    }

    /// The same with the groups' numbers.
    fn placed(&self) -> impl Iterator<Item = (GpuEvent, usize)> {
        let mut records = self.profile.gpu_events.iter();
        let places = self.window.events.iter().zip(&self.places);
        places.map(move |(i, &place)| (records.at(i as usize), place as usize))
    }

    /// For each group what its events add up to, by start; each comes with the number of its group.
    pub fn by_group<T: Clone>(&self, start: T, mut add: impl FnMut(&mut T, &GpuEvent, usize)) -> Vec<T> {
        let mut sums = vec![start; self.groups.len()];
        for (event, place) in self.placed() {
            add(&mut sums[place], &event, place);
        }
        sums
    }

    /// What an event's name and kind tell.
    pub fn class(&self, event: &GpuEvent) -> KernelClass {
        let class = self.classes.get(&event.name).copied().unwrap_or(KernelClass {
            family: KernelFamily::Other,
            dtype: None,
            tensor_core: false,
        });
        match timeline::engine_family(event.kind) {
            Some(family) => KernelClass { family, tensor_core: false, ..class },
            None => class,
        }
    }

    /// The known work of a group.
    pub fn work(&self, group: &Group) -> Option<&Work> {
        group.work.map(|i| &self.works[i as usize])
    }

    /// Iterations of the window.
    pub fn iterations(&self) -> f64 {
        f64::from(self.window.iterations.max(1))
    }

    /// Time of one iteration, as recorded.
    pub fn measured(&self) -> Seconds {
        Seconds(self.window.span_ns() as f64 / 1e9 / self.iterations())
    }

    /// Sum of GPU event times of one iteration.
    pub fn gpu_busy(&self) -> Seconds {
        self.groups.iter().map(|g| g.time).sum::<Seconds>() / self.iterations()
    }

    /// Time of one iteration in which anything runs on the GPU.
    pub fn gpu_wall(&self) -> Seconds {
        self.gpu_wall
    }

    /// Host time of one iteration, without waits.
    pub fn host(&self) -> Seconds {
        self.host
    }

    /// GPU time of one iteration that no operator is known for.
    pub fn unattributed(&self) -> Seconds {
        // An empty sum of floats is -0, which reads badly.
        let sum: Seconds = self.groups.iter().filter(|g| g.is_unattributed()).map(|g| g.time).sum();
        (Seconds::ZERO + sum) / self.iterations()
    }

    /// Share of the kernels' time that no operator is known for; copies and memsets aside.
    pub fn unattributed_kernel_share(&self) -> f64 {
        let (mut unattributed, mut all) = (0.0, 0.0);
        for (event, group) in self.events() {
            if event.kind == super::GpuKind::Kernel {
                all += event.dur_ns as f64;
                if group.is_unattributed() {
                    unattributed += event.dur_ns as f64;
                }
            }
        }
        if all > 0.0 { unattributed / all } else { 0.0 }
    }

    /// Builds groups and works.
    fn group(&mut self) {
        let mut known: HashMap<WorkKey, Option<u32>> = HashMap::new();
        let operators = self.profile.ops.len();
        // An operator with its owner and the work that is known of it: its events mostly come one after the other.
        let mut owned = (NONE, NONE, None);
        // By operator the group of which it is the owner.
        let mut group_of = vec![NONE; operators];
        // Launches without an operator are alike where their kinds are.
        let mut alike: HashMap<(Link, usize), u32> = HashMap::new();
        let mut places: Vec<u32> = Vec::with_capacity(self.window.events.len());
        let mut records = self.profile.gpu_events.iter();
        for i in self.window.events.iter() {
            let link = self.links.links.at(i);
            let event = records.at(i as usize);
            let place = match link {
                Link::Operator(op) => {
                    if owned.0 != op {
                        let (owner, work) =
                            Self::owner(self.profile, &self.links, op, &mut known, &mut self.works);
                        owned = (op, owner, work);
                    }
                    let (_, op, work) = owned;
                    if group_of[op as usize] == NONE {
                        group_of[op as usize] = self.groups.len() as u32;
                        let at = op as usize;
                        self.groups.push(Group {
                            phase: Some(self.links.phases[at]),
                            module: self.links.modules[at],
                            work,
                            ..Group::new(Link::Operator(op), self.profile.ops.at(at).name)
                        });
                    }
                    group_of[op as usize]
                }
                _ => *alike.entry((link, records.kind())).or_insert_with(|| {
                    self.groups.push(Group::new(link, event.name));
                    self.groups.len() as u32 - 1
                }),
            };
            let group = &mut self.groups[place as usize];
            group.launches += 1;
            group.time += Seconds(event.dur_ns as f64 / 1e9);
            places.push(place);
        }
        self.places = places;
        // Only owners are looked for by them, and there may be millions.
        drop(group_of);
        self.links.parents = Vec::new();
        self.classify_groups();
    }

    /// The nearest operator, upwards, whose work is known; the innermost one otherwise.
    fn owner(
        profile: &Profile,
        links: &Attribution,
        innermost: u32,
        known: &mut HashMap<WorkKey, Option<u32>>,
        works: &mut Vec<Work>,
    ) -> (u32, Option<u32>) {
        let mut at = innermost;
        for _ in 0..LEVELS {
            let op = profile.ops.at(at as usize);
            if is_border(profile.names.text(op.name)) {
                break;
            }
            // The recorder marks only nodes of the graph as backward; the pass is inherited.
            let op = HostOp { backward: links.phases[at as usize] == Phase::Backward, ..op };
            let found = *known.entry(key(&op)).or_insert_with(|| {
                operators::work(&op, &profile.names).map(|work| {
                    works.push(work);
                    works.len() as u32 - 1
                })
            });
            if found.is_some() {
                return (at, found);
            }
            at = links.parents[at as usize];
            if at == NONE {
                break;
            }
        }
        (innermost, None)
    }

    /// Family, format and tensor-core use of every group; fp32 products on tensor cores are TF32.
    fn classify_groups(&mut self) {
        let mut tf32: HashMap<u32, u32> = HashMap::new();
        // The class of the longest event, the last of equal ones, and whether any runs on tensor cores.
        let longest = self.by_group((i64::MIN, None, false), |seen, event, _| {
            let class = self.class(event);
            seen.2 |= class.tensor_core;
            if event.dur_ns >= seen.0 {
                (seen.0, seen.1) = (event.dur_ns, Some(class));
            }
        });
        for (at, (_, class, tensor_core)) in longest.into_iter().enumerate() {
            let group = &self.groups[at];
            let by_name = class.map_or(KernelFamily::Other, |c| c.family);
            let mut family = match self.work(group) {
                Some(work) => work.family,
                None => by_name,
            };
            if by_name == KernelFamily::Communication {
                family = by_name;
            } else if group.phase == Some(Phase::Optimizer) {
                family = KernelFamily::Optimizer;
            }
            let mut dtype = self.work(group).and_then(|w| w.dtype).or(class.and_then(|c| c.dtype));
            let mut work = group.work;
            if tensor_core && dtype == Some(Dtype::Fp32) {
                dtype = Some(Dtype::Tf32);
                work = work.map(|w| {
                    *tf32.entry(w).or_insert_with(|| {
                        self.works.push(self.works[w as usize].with_tf32());
                        self.works.len() as u32 - 1
                    })
                });
            }
            let group = &mut self.groups[at];
            (group.family, group.dtype, group.tensor_core, group.work) = (family, dtype, tensor_core, work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{call, event, op, profile};

    #[test]
    fn kernels_of_one_call_make_one_group() {
        let mut p = profile();
        let mut mm = op(&mut p.names, "aten::mm", 0, 100);
        mm.dims = p.names.add("[[64, 128], [128, 256]]");
        mm.types = p.names.add(r#"["float", "float"]"#);
        p.ops = vec![mm].into();
        p.calls = vec![call(&mut p.names, 10, 5, 1), call(&mut p.names, 20, 5, 2)].into();
        p.gpu_events = vec![
            event(&mut p.names, "cutlass_80_tensorop_s1688gemm_128x128", 30, 50, 1),
            event(&mut p.names, "splitKreduce_kernel", 80, 10, 2),
            event(&mut p.names, "orphan", 200, 20, 3),
        ]
        .into();
        let a = Analysis::new(&p, &Choice::default()).unwrap();
        assert_eq!(a.groups.len(), 2);
        assert_eq!(a.places, [0, 0, 1]);
        assert_eq!((a.groups[0].launches(), a.groups[0].calls(), a.groups[1].launches()), (2, 1, 1));
        // fp32 inputs on tensor cores: TF32.
        assert_eq!((a.groups[0].family, a.groups[0].dtype), (KernelFamily::Gemm, Some(Dtype::Tf32)));
        assert_eq!(a.work(&a.groups[0]).unwrap().flops.0, 2.0 * 64.0 * 128.0 * 256.0);
        assert!((a.unattributed().us() - 0.02).abs() < 1e-12);
        assert!((a.unattributed_kernel_share() - 0.25).abs() < 1e-12);
    }
}
