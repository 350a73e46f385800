//! What the watch has to report is told by a thread of its own, `uw/report`.
//!
//! A reporter is user code. It may wait for an item whose worker only the watch can make. And asking threads for
//! their calls takes tenths of a second, while the watch has sleepers to replace. So the watch collects what a stall
//! looks like, which takes no lock for longer than a copy, and leaves the rest to that thread, which is made when there
//! is something to tell, and ends after it. There is one at most: it tells what is found meanwhile as well, up to a
//! bound. Should no thread be had, the watch tells by itself.
//!
//! **The end.** The thread has a reference to the engine: nothing that it uses goes away, whenever the user's
//! reporter returns. Nobody waits for it, neither who retires the engine nor who drops it: a reporter that never
//! returns holds up further stalls, and nothing else.
//!
//! **Forks.** What is shared is under the lock that a fork takes. In the child there is no such thread, and
//! nothing to tell: the stalls are the parent's. If the reporter forks, its thread finds nothing more to tell in the
//! child, and ends.

use crate::dump::{NoCalls, Stall, StalledWorker, WorkerState};
use crate::engine::Engine;
use crate::host::{Activity, Frame, Host, Report, WorkerSpec};
use uwork_policy::blocking::Tier;

/// Stacks that are asked for at a time, at most: each thread may take its time to answer, and notices.
const STACKS_AT_ONCE: usize = 8;
/// Reports that wait to be told, at most; what comes on top is dropped.
const UNTOLD_MAX: usize = 64;

impl<H: Host> Engine<H> {
    /// Has these told. Without locks held.
    pub(super) fn tell(&self, stalls: Vec<Stall>) {
        if stalls.is_empty() {
            return;
        }
        self.tell_elsewhere(
            stalls.into_iter().map(|stall| Report::Stalled(Box::new(stall))).collect(),
        );
    }

    /// Has these told by the thread that tells reports. Without locks held.
    pub(crate) fn tell_elsewhere(&self, reports: Vec<Report>) {
        let mut shared = self.watch_state().hold();
        let room = UNTOLD_MAX.saturating_sub(shared.untold.len());
        shared.untold.extend(reports.into_iter().take(room));
        let exists = std::mem::replace(&mut shared.reporter, true);
        drop(shared);
        if exists {
            return;
        }
        let cpus = self.cpus().allowed.clone();
        let spec = WorkerSpec { name: "uw/report".to_owned(), cpus, nice: 0 };
        let main = self.me().map(|engine| Box::new(move || engine.tell_all()));
        if main.is_none_or(|main| self.host().spawn(&spec, main).is_err()) {
            self.tell_all();
        }
    }

    fn tell_all(&self) {
        while let Some(reports) = self.take_untold() {
            let mut stacks_left = STACKS_AT_ONCE;
            for mut report in reports {
                if let Report::Stalled(stall) = &mut report {
                    self.look_at_blockers(stall, &mut stacks_left);
                }
                self.host().report(report);
            }
        }
    }

    /// What is to be told next; the thread is to end if there is nothing.
    fn take_untold(&self) -> Option<Vec<Report>> {
        let mut shared = self.watch_state().hold();
        let reports = std::mem::take(&mut shared.untold);
        shared.reporter = !reports.is_empty();
        shared.reporter.then_some(reports)
    }

    /// Asks the system what those in the way are at, and some of them for their calls.
    fn look_at_blockers(&self, stall: &mut Stall, stacks_left: &mut usize) {
        let blocking = stall.workers.iter_mut().filter(|worker| worker.blocks);
        for worker in blocking.filter(|worker| worker.thread != 0) {
            if !self.is_in_same_run(worker) {
                worker.stack = Err(NoCalls::WentOn);
                continue;
            }
            let state = &mut worker.worker.state;
            *state = match (*state, self.host().activity(worker.thread)) {
                (WorkerState::Waiting, Some(Activity::Sleeps { .. })) => WorkerState::Waiting,
                (_, Some(Activity::Sleeps { .. })) => WorkerState::Asleep,
                (_, Some(Activity::Stopped)) => WorkerState::Stopped,
                (WorkerState::Asleep, Some(Activity::Runs)) => WorkerState::Running,
                (known, _) => known,
            };
            if *stacks_left > 0 {
                *stacks_left -= 1;
                let stack = self.host().stack_of(worker.thread);
                worker.stack = stack.map(without_engine).map_err(NoCalls::from);
            }
            if !self.is_in_same_run(worker) {
                worker.stack = Err(NoCalls::WentOn);
            }
        }
        let sleeps =
            |worker: &StalledWorker| worker.blocks && worker.worker.state == WorkerState::Asleep;
        if self.host().tier() == Tier::Declared && stall.workers.iter().any(sleeps) {
            stall.undeclared = Some(self.host().detection().reason);
        }
    }

    /// Whether a worker is in the run that it was listed for.
    fn is_in_same_run(&self, worker: &StalledWorker) -> bool {
        let run = worker.worker.running.as_ref().map(|running| running.run);
        run.is_none() || run == self.slot(worker.worker.slot).present_run()
    }
}

/// The calls of an item: without those outside of the function that runs items here. The outermost, where an item
/// runs another that it waits for.
fn without_engine(mut frames: Vec<Frame>) -> Vec<Frame> {
    if let Some(at) = frames.iter().rposition(runs_items) {
        frames.truncate(at);
    }
    frames
}

/// Whether this is [`run_item`](crate::run::run_item). Builds with line tables only name functions without their
/// paths; then the file tells.
fn runs_items(frame: &Frame) -> bool {
    let Some(name) = frame.symbol.as_deref() else { return false };
    let file = || frame.location.as_deref().unwrap_or_default();
    name == "uwork_engine::run::run_item"
        || name == "run_item" && file().contains("engine/src/run.rs:")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cut(frames: &[(&str, &str)]) -> usize {
        let frame = |&(symbol, location): &(&str, &str)| {
            let location = Some(location.to_owned());
            Frame { address: 0, symbol: Some(symbol.to_owned()), location }
        };
        without_engine(frames.iter().map(frame).collect()).len()
    }

    #[test]
    fn the_calls_end_where_the_engine_begins() {
        let (run, main) = (("uwork_engine::run::run_item", ""), ("uwork_engine::worker::main", ""));
        assert_eq!(cut(&[("app::a", ""), run, main]), 1);
        assert_eq!(cut(&[("app::a", ""), run, ("app::b", ""), run, main]), 3);
        assert_eq!(cut(&[("run_item", "src/a.rs:1"), ("main", "")]), 2);
        let short = ("run_item", "crates/engine/src/run.rs:30");
        assert_eq!(cut(&[("a", "src/a.rs:1"), short, ("main", "")]), 1);
    }
}
