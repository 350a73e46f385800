//! A thread of its own, `uw/report`, delivers the reports of the watcher and of new threads.
//!
//! A reporter is user code. It may wait for an item whose worker only the watcher can create. And
//! collecting threads' stacks takes tenths of a second, while the watcher has sleepers to replace.
//! So the watcher only collects the snapshot of a stall, which holds no lock for longer than a
//! copy. The report thread does the rest. It also delivers the other reports of threads that must
//! not wait: of the watcher, and of a worker that has not arrived at its pool. It is created when
//! there is something to report, and ends afterwards. At most one exists: it also delivers the
//! reports that are added meanwhile, up to a bound. If the thread cannot be created, the reporting
//! thread delivers the reports itself.
//!
//! **The end.** The thread holds a reference to the engine, so everything that it uses stays alive
//! until the user's reporter returns. Neither retiring nor dropping the engine waits for it: a
//! reporter that never returns delays later stall reports, and nothing else.
//!
//! **Forks.** The shared state is under the lock that a fork takes. In the child this thread does
//! not exist, and no report is pending: the stalls are the parent's. If the reporter forks, its
//! thread finds no more reports in the child, and ends.

use super::Watch;
use crate::engine::Engine;
use crate::words::dump::{NoCalls, Stall, StalledWorker, WorkerState};
use crate::words::host::{Activity, Frame, Host, Observer, Report};
use uwork_policy::blocking::Tier;

/// How many stacks are collected at a time, at most: each thread is disturbed.
const STACKS_AT_ONCE: usize = 8;
/// The most reports that wait for delivery; further ones are dropped.
const UNTOLD_MAX: usize = 64;

impl<H: Host> Engine<H> {
    /// Delivers a report on a thread of its own. For the host, on threads that must not wait for
    /// user code: the watcher, and a worker that has not arrived at its pool.
    pub fn report_apart(&self, report: Report) {
        self.watch.report_on_own_thread(self, vec![report]);
    }
}

impl<H: Host> Watch<H> {
    /// Reports these stalls. The caller holds no locks.
    pub(super) fn report_stalls(&self, engine: &Engine<H>, stalls: Vec<Stall>) {
        if stalls.is_empty() {
            return;
        }
        self.report_on_own_thread(
            engine,
            stalls.into_iter().map(|stall| Report::Stalled(Box::new(stall))).collect(),
        );
    }

    /// Has the report thread deliver these reports. The caller holds no locks.
    pub(crate) fn report_on_own_thread(&self, engine: &Engine<H>, reports: Vec<Report>) {
        let mut shared = self.hold();
        let room = UNTOLD_MAX.saturating_sub(shared.pending_reports.len());
        shared.pending_reports.extend(reports.into_iter().take(room));
        let exists = std::mem::replace(&mut shared.reporter, true);
        drop(shared);
        if exists {
            return;
        }
        let cpus = engine.cpus().allowed.clone();
        let spec = engine.service("uw/report", cpus);
        let main = engine.me().map(|engine| Box::new(move || engine.watch.report_all(&engine)));
        if main.is_none_or(|main| engine.host().spawn(&spec, main).is_err()) {
            self.report_all(engine);
        }
    }

    fn report_all(&self, engine: &Engine<H>) {
        while let Some(reports) = self.take_reports() {
            let mut stacks_left = STACKS_AT_ONCE;
            for mut report in reports {
                if let Report::Stalled(stall) = &mut report {
                    self.inspect_some(engine, std::slice::from_mut(stall), &mut stacks_left, true);
                }
                engine.host().report(report);
            }
        }
    }

    /// Takes the reports that are due. `None` if there are none; then the thread must end.
    fn take_reports(&self) -> Option<Vec<Report>> {
        let mut shared = self.hold();
        let reports = std::mem::take(&mut shared.pending_reports);
        shared.reporter = !reports.is_empty();
        shared.reporter.then_some(reports)
    }

    /// As [`Watch::inspect_some`], with as many stacks as are possible.
    pub(super) fn inspect_blockers(&self, engine: &Engine<H>, stalls: &mut [Stall], named: bool) {
        self.inspect_some(engine, stalls, &mut { STACKS_AT_ONCE }, named);
    }

    /// Queries the system for the state of the workers in the way, and collects the stacks of some
    /// of them, `named` or as addresses. All are asked at the same time: first one of each stall, then
    /// the second of each, and so on.
    fn inspect_some(
        &self,
        engine: &Engine<H>,
        stalls: &mut [Stall],
        stacks_left: &mut usize,
        named: bool,
    ) {
        let is_asked_of = |worker: &StalledWorker| worker.blocks && worker.thread != 0;
        let mut asked = Vec::new();
        let workers = stalls.iter_mut().flat_map(|stall| stall.workers.iter_mut().enumerate());
        for (turn, worker) in workers.filter(|(_, worker)| is_asked_of(worker)) {
            if !self.is_in_same_run(engine, worker) {
                worker.stack = Err(NoCalls::WentOn);
                continue;
            }
            let state = &mut worker.worker.state;
            *state = match (*state, engine.observer().activity(worker.thread)) {
                (WorkerState::Waiting, Some(Activity::Sleeps { .. })) => WorkerState::Waiting,
                (_, Some(Activity::Sleeps { .. })) => WorkerState::Asleep,
                (_, Some(Activity::Stopped)) => WorkerState::Stopped,
                (WorkerState::Asleep, Some(Activity::Runs)) => WorkerState::Running,
                (known, _) => known,
            };
            asked.push((turn, worker));
        }
        asked.sort_by_key(|&(turn, _)| turn);
        asked.truncate(*stacks_left);
        *stacks_left -= asked.len();
        let threads: Vec<u64> = asked.iter().map(|(_, worker)| worker.thread).collect();
        let stacks = engine.observer().stacks_of(&threads, named);
        for ((_, worker), stack) in asked.into_iter().zip(stacks) {
            worker.stack = stack.map(cut_engine_frames).map_err(NoCalls::from);
        }
        let sleeps =
            |worker: &StalledWorker| worker.blocks && worker.worker.state == WorkerState::Asleep;
        for stall in stalls {
            for worker in stall.workers.iter_mut().filter(|worker| is_asked_of(worker)) {
                if !self.is_in_same_run(engine, worker) {
                    worker.stack = Err(NoCalls::WentOn);
                }
            }
            if engine.observer().tier() == Tier::Declared && stall.workers.iter().any(sleeps) {
                stall.undeclared = Some(engine.observer().detection().reason);
            }
        }
    }

    /// Whether a worker is still in the run that it was listed for.
    fn is_in_same_run(&self, engine: &Engine<H>, worker: &StalledWorker) -> bool {
        let run = worker.worker.running.as_ref().map(|running| running.run);
        run.is_none() || run == engine.slot(worker.worker.slot).present_run()
    }
}

/// The frames of an item, without those of the function that runs items and of its callers. Where
/// an item runs another that it waits for, the outermost such function counts.
fn cut_engine_frames(mut frames: Vec<Frame>) -> Vec<Frame> {
    if let Some(at) = frames.iter().rposition(runs_items) {
        frames.truncate(at);
    }
    frames
}

/// Whether this is [`run_item`](crate::worker::run::run_item). Builds with line tables only name functions
/// without their paths; there the file decides.
fn runs_items(frame: &Frame) -> bool {
    let Some(name) = frame.symbol.as_deref() else { return false };
    let file = || frame.location.as_deref().unwrap_or_default();
    name == "uwork_engine::worker::run::run_item"
        || name == "run_item" && file().contains("engine/src/worker/run.rs:")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn cut(frames: &[(&str, &str)]) -> usize {
        let frame = |&(symbol, location): &(&str, &str)| {
            let location = Some(location.to_owned());
            Frame { address: 0, symbol: Some(symbol.to_owned()), location }
        };
        cut_engine_frames(frames.iter().map(frame).collect()).len()
    }

    #[test]
    fn a_stack_ends_at_the_engine_s_frames() {
        let (run, main) =
            (("uwork_engine::worker::run::run_item", ""), ("uwork_engine::worker::main", ""));
        assert_eq!(cut(&[("app::a", ""), run, main]), 1);
        assert_eq!(cut(&[("app::a", ""), run, ("app::b", ""), run, main]), 3);
        assert_eq!(cut(&[("run_item", "src/a.rs:1"), ("main", "")]), 2);
        let short = ("run_item", "crates/engine/src/worker/run.rs:30");
        assert_eq!(cut(&[("a", "src/a.rs:1"), short, ("main", "")]), 1);
    }
}
