//! The long form: one clause per core that gives every number, for machines that no sum describes.

use super::syntax::{Clause, Level, cpu_list, number};
use super::{NotationError, too_many};
use crate::cpuset::{CpuSet, MAX_CPUS};
use crate::topology::{Cpu, FULL_CAPACITY};

const CLAUSE: &str = "cpu:LIST core:ID cluster:ID llc:ID node:ID package:ID [capacity:NUMBER]";

pub(super) fn cpus(clauses: &[Clause<'_>]) -> Result<Vec<Cpu>, NotationError> {
    let mut cpus = Vec::new();
    let mut seen = CpuSet::new();
    for clause in clauses {
        let (list, model) = read(clause)?;
        if list.intersects(&seen) {
            let message = format!("CPU {} appears twice", list.and(&seen));
            return Err(NotationError::at(clause[0], message));
        }
        seen.extend(list.iter());
        cpus.extend(list.iter().map(|id| Cpu { id, ..model }));
        if cpus.len() > MAX_CPUS as usize {
            return Err(NotationError::at(clause[0], too_many()));
        }
    }
    Ok(cpus)
}

/// The CPUs of a clause and their common attributes.
fn read(clause: &Clause<'_>) -> Result<(CpuSet, Cpu), NotationError> {
    let first = clause[0];
    let list = cpu_list(first, first.pair().1)?;
    if list.is_empty() {
        return Err(NotationError::at(first, format!("no CPU (allowed: {CLAUSE})")));
    }
    let mut ids = [None; 5];
    let mut capacity = None;
    for &word in &clause[1..] {
        let repeated = match (word.pair().0, Level::of_name(word.pair().0)) {
            ("capacity", _) => capacity.replace(number(word, 1, FULL_CAPACITY)?).is_some(),
            (_, Some(level)) if level < Level::Smt => {
                ids[level as usize].replace(number(word, 0, u32::MAX)?).is_some()
            }
            _ => {
                return Err(NotationError::at(
                    word,
                    format!("not part of a clause (allowed: {CLAUSE})"),
                ));
            }
        };
        if repeated {
            return Err(NotationError::at(word, format!("given twice (allowed: {CLAUSE})")));
        }
    }
    let [Some(package), Some(node), Some(llc), Some(cluster), Some(core)] = ids else {
        let missing = Level::ALL.into_iter().zip(ids).find(|(_, id)| id.is_none());
        let name = missing.map_or("", |(level, _)| level.name());
        return Err(NotationError::at(first, format!("{name} is missing (allowed: {CLAUSE})")));
    };
    let capacity = capacity.unwrap_or(FULL_CAPACITY);
    Ok((list, Cpu { core, cluster, llc, node, package, capacity, ..Cpu::alone(0) }))
}
