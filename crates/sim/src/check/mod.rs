//! The checkers: each knows a run only from its script and its tape.
//!
//! | checker | what it asserts |
//! |---|---|
//! | `balance` | each submission that was accepted is run once, cancelled once, or pending |
//! | `exclusion` | no two runs of an item at once |
//! | `dedup` | an item that is pending is not accepted again |
//! | `order` | items of ordered and BH queues start in the order of their submission |
//! | `limit` | no more runs of a queue at once than `max_active` permits, in all and on a node |
//! | `affinity` | no run on a CPU that the queue, the submission or the process forbids |
//! | `flush` | a flush returns after every run that was submitted before it |
//! | `cancel` | after `cancel_sync` no run remains that was submitted before it |
//! | `liveness` | the history ends, and the watcher's backstop is not needed |
//! | `wakes` | a worker is woken only if an item of its pool's queues is pending |
//!
//! A call lies between its two entries on the tape. Where calls of several threads overlap, a
//! checker permits every order of their effects.

mod calls;
mod limits;
mod placement;
mod wakes;

use std::fmt;

use uwork_policy::topology::Topology;

use crate::play::{Ending, Run};
use crate::script::Script;
use crate::tape::{Call, What};

/// A promise that a run has broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The checker.
    pub checker: &'static str,
    /// What was wrong, and when.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.message)
    }
}

/// A run, with what all checkers need.
pub(crate) struct Case<'a> {
    pub(crate) script: &'a Script,
    pub(crate) machine: &'a Topology,
    pub(crate) run: &'a Run,
    /// The line of each item and each copy.
    pub(crate) lines: Vec<usize>,
    /// What happened to each item.
    pub(crate) items: Vec<History>,
    /// Whether the CPUs of the process change.
    pub(crate) restricts: bool,
}

/// A call for an item: the positions of its entries on the tape. The second is `usize::MAX` for a call
/// that has not returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) call: Call,
    pub(crate) begin: usize,
    pub(crate) end: usize,
    pub(crate) outcome: bool,
    pub(crate) thread: usize,
}

impl Made {
    /// Whether it has queued or armed the item.
    pub(crate) fn is_accepted(&self) -> bool {
        self.outcome && matches!(self.call, Call::Queue(_) | Call::Arm)
    }

    /// Whether it has cancelled the item.
    pub(crate) fn has_cancelled(&self) -> bool {
        self.outcome && matches!(self.call, Call::Cancel | Call::CancelSync)
    }
}

/// A run of an item: the positions of its entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) start: usize,
    pub(crate) finish: usize,
}

#[derive(Default)]
pub(crate) struct History {
    pub(crate) calls: Vec<Made>,
    pub(crate) runs: Vec<Ran>,
}

impl<'a> Case<'a> {
    fn new(script: &'a Script, machine: &'a Topology, run: &'a Run) -> Case<'a> {
        let mut lines: Vec<usize> = (0..script.items.len()).collect();
        let mut items: Vec<History> = Vec::new();
        items.resize_with(lines.len(), History::default);
        let mut restricts = false;
        for (at, entry) in run.tape.entries().iter().enumerate() {
            match entry.what {
                What::Copies(no, line) => {
                    assert_eq!(no, lines.len(), "copies are numbered in their order");
                    lines.push(line);
                    items.push(History::default());
                }
                What::Begins(call, no) => items[no].calls.push(Made {
                    call,
                    begin: at,
                    end: usize::MAX,
                    outcome: false,
                    thread: entry.thread,
                }),
                What::Ends(call, no, outcome) => {
                    let own = |made: &&mut Made| made.call == call && made.thread == entry.thread;
                    let made = items[no].calls.iter_mut().rev().find(own).expect("it has begun");
                    (made.end, made.outcome) = (at, outcome);
                }
                What::Starts(no) => items[no].runs.push(Ran { start: at, finish: usize::MAX }),
                What::Finishes(no) => {
                    let open = |ran: &&mut Ran| ran.finish == usize::MAX;
                    items[no].runs.iter_mut().find(open).expect("it has started").finish = at;
                }
                What::Restricts(_) => restricts = true,
                _ => {}
            }
        }
        Case { script, machine, run, lines, items, restricts }
    }

    /// The queue of an item, by index.
    pub(crate) fn queue_of(&self, no: usize) -> usize {
        self.script.items[self.lines[no]].queue
    }

    /// The item's name.
    pub(crate) fn name(&self, no: usize) -> String {
        let name = &self.script.items[self.lines[no]].name;
        if no < self.script.items.len() { name.clone() } else { format!("copy {no} of {name}") }
    }

    /// The time of an entry, for messages.
    pub(crate) fn at(&self, position: usize) -> String {
        let entry = self.run.tape.entries().get(position);
        entry.map_or_else(|| "the end".to_owned(), |entry| format!("{} ns", entry.at))
    }

    fn liveness(&self) -> Option<String> {
        match &self.run.ending {
            Ending::Complete if self.run.rescues == 0 => None,
            Ending::Complete => Some(format!("{} workers were missing", self.run.rescues)),
            other => Some(format!("{other}; at {} ns", self.run.ended_at)),
        }
    }
}

/// The first violation of each checker.
#[must_use]
pub fn check(script: &Script, machine: &Topology, run: &Run) -> Vec<Violation> {
    let case = Case::new(script, machine, run);
    let is_complete = run.ending == Ending::Complete;
    let found = [
        ("liveness", case.liveness()),
        ("exclusion", case.exclusion()),
        ("dedup", case.dedup()),
        ("order", case.order()),
        ("limit", case.limit()),
        ("affinity", case.affinity()),
        ("flush", case.flush()),
        ("cancel", case.cancel()),
        ("wakes", case.wakes()),
        ("balance", case.balance().filter(|_| is_complete)),
    ];
    found
        .into_iter()
        .filter_map(|(checker, message)| Some(Violation { checker, message: message? }))
        .collect()
}
