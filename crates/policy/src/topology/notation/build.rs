//! Builds the CPUs from a sum of levels.

use super::syntax::{Level, Product, Sum};
use crate::topology::{Cpu, FULL_CAPACITY};

/// Lays out the CPUs of a sum, whose total has been checked. With `threads_last` the first
/// threads of all cores are numbered before all second ones, as most x86 firmware does.
pub(super) fn cpus(sum: &Sum, threads_last: bool) -> Vec<Cpu> {
    let mut builder = Builder { opened: [0; 5], cpus: Vec::new() };
    builder.sum(sum, Place { groups: [None; 5], capacity: FULL_CAPACITY });
    let mut cpus = builder.cpus;
    if threads_last {
        let mut threads_of = vec![0u32; builder.opened[Level::Core as usize] as usize];
        let mut by_thread: Vec<(u32, Cpu)> = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let thread = &mut threads_of[cpu.core as usize];
            by_thread.push((*thread, cpu));
            *thread += 1;
        }
        // The sort is stable: among the CPUs with the same index in their core, the cores keep
        // their order.
        by_thread.sort_by_key(|&(thread, _)| thread);
        cpus = by_thread.into_iter().map(|(_, cpu)| cpu).collect();
    }
    for (cpu, id) in cpus.iter_mut().zip(0..) {
        cpu.id = id;
    }
    cpus
}

/// Where the next CPU goes: the group of each level above `smt` that has been opened for it.
#[derive(Clone, Copy)]
struct Place {
    groups: [Option<u32>; 5],
    capacity: u32,
}

struct Builder {
    /// How many groups of each level exist so far.
    opened: [u32; 5],
    cpus: Vec<Cpu>,
}

impl Builder {
    fn sum(&mut self, sum: &Sum, mut place: Place) {
        // Open these groups before the parts: the parts share every level that they do not name.
        self.open_above(sum.parts[0].levels[0].0, &mut place);
        for part in &sum.parts {
            let capacity = part.capacity.unwrap_or(place.capacity);
            self.product(part, 0, Place { capacity, ..place });
        }
    }

    fn product(&mut self, product: &Product, depth: usize, mut place: Place) {
        let Some(&(level, count)) = product.levels.get(depth) else {
            match &product.inner {
                Some(sum) => self.sum(sum, place),
                None => self.cpu(place),
            }
            return;
        };
        self.open_above(level, &mut place);
        for _ in 0..count {
            let mut place = place;
            if level < Level::Smt {
                self.open(level, &mut place);
            }
            self.product(product, depth + 1, place);
        }
    }

    /// Opens the groups of the levels that the text omits above `level`, one of each. An omitted
    /// cluster is the exception: it is no group of several cores, so each core gets its own.
    fn open_above(&mut self, level: Level, place: &mut Place) {
        for missing in Level::ALL.into_iter().take_while(|above| *above < level) {
            let with_core = missing == Level::Cluster && level == Level::Core;
            if place.groups[missing as usize].is_none() && !with_core {
                self.open(missing, place);
            }
        }
    }

    fn open(&mut self, level: Level, place: &mut Place) {
        if level == Level::Core && place.groups[Level::Cluster as usize].is_none() {
            self.open(Level::Cluster, place);
        }
        let counter = &mut self.opened[level as usize];
        place.groups[level as usize] = Some(*counter);
        *counter += 1;
    }

    fn cpu(&mut self, mut place: Place) {
        self.open_above(Level::Smt, &mut place);
        let [package, node, llc, cluster, core] =
            place.groups.map(|group| group.unwrap_or_default());
        let id = self.cpus.len() as u32;
        let cpu =
            Cpu { core, cluster, llc, node, package, capacity: place.capacity, ..Cpu::alone(id) };
        self.cpus.push(cpu);
    }
}
