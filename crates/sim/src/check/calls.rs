//! What submissions, cancels and flushes mean.

use super::{Case, History, Made};
use crate::tape::Call;

impl History {
    fn accepted(&self) -> impl Iterator<Item = &Made> {
        self.calls.iter().filter(|made| made.is_accepted())
    }

    /// How many submissions may have been consumed before this position, by a start or a cancel.
    fn consumed_before(&self, position: usize) -> usize {
        let started = self.runs.iter().filter(|ran| ran.start < position).count();
        let cancelled = self.calls.iter().filter(|made| made.has_cancelled());
        started + cancelled.filter(|made| made.begin < position).count()
    }
}

impl Case<'_> {
    fn first(&self, found: impl Fn(usize, &History) -> Option<String>) -> Option<String> {
        self.items.iter().enumerate().find_map(|(no, item)| found(no, item))
    }

    /// Each accepted submission is run once, cancelled once, or pending.
    pub(super) fn balance(&self) -> Option<String> {
        self.first(|no, item| {
            let accepted = item.accepted().count();
            let cancelled = item.calls.iter().filter(|made| made.has_cancelled()).count();
            let pending = self.run.pending.iter().filter(|&&pending| pending == no).count();
            let runs = item.runs.len();
            (accepted != runs + cancelled + pending).then(|| {
                format!(
                    "item {} was queued {accepted} times, ran {runs} times, was cancelled {cancelled} times, \
                     and is pending {pending} times",
                    self.name(no)
                )
            })
        })
    }

    /// No two runs of an item at once.
    pub(super) fn exclusion(&self) -> Option<String> {
        self.first(|no, item| {
            let overlap = item.runs.windows(2).find(|runs| runs[1].start < runs[0].finish)?;
            Some(format!("item {} runs twice at {}", self.name(no), self.at(overlap[1].start)))
        })
    }

    /// While an item is pending, no submission of it is accepted. After `n` accepted submissions
    /// have returned, at least `n - 1` of them were consumed.
    pub(super) fn dedup(&self) -> Option<String> {
        self.first(|no, item| {
            let mut ends: Vec<usize> = item.accepted().map(|made| made.end).collect();
            ends.sort_unstable();
            let twice = ends.iter().enumerate().find(|&(n, &end)| item.consumed_before(end) < n)?;
            Some(format!("item {} was queued twice, at {}", self.name(no), self.at(*twice.1)))
        })
    }

    /// Whether a run of the item is in progress on the thread that makes this call.
    fn is_in_run(&self, item: &History, made: &Made) -> bool {
        let entries = self.run.tape.entries();
        let mut around =
            item.runs.iter().filter(|ran| ran.start < made.begin && ran.finish > made.end);
        around.any(|ran| entries[ran.start].thread == made.thread)
    }

    /// A flush returns after the runs of all submissions that were accepted before it.
    pub(super) fn flush(&self) -> Option<String> {
        self.first(|no, item| {
            let mut flushes = item.calls.iter().filter(|made| {
                // From inside of the item there is nothing to wait for.
                made.call == Call::Flush && made.end != usize::MAX && !self.is_in_run(item, made)
            });
            flushes.find_map(|flush| {
                let before: Vec<&Made> =
                    item.accepted().filter(|made| made.end < flush.begin).collect();
                // The flush does not wait for a timer that may be armed, which the last submission does.
                let is_last = |made: &&Made| !before.iter().any(|other| other.begin > made.end);
                let armed = before.iter().any(|made| made.call == Call::Arm && is_last(made));
                let late = item.consumed_before(flush.end) < before.len() - usize::from(armed);
                // A cancel of the pending item ends the wait, also beside an earlier run.
                let cancels = |made: &Made| {
                    made.has_cancelled() && made.begin < flush.end && made.end > flush.begin
                };
                let mut earlier = item.runs.iter().filter(|ran| ran.start < flush.begin);
                let unfinished =
                    !item.calls.iter().any(cancels) && earlier.any(|ran| ran.finish > flush.end);
                (late || unfinished).then(|| {
                    let (from, to) = (self.at(flush.begin), self.at(flush.end));
                    format!("the flush of item {} from {from} to {to} returns early", self.name(no))
                })
            })
        })
    }

    /// When `cancel_sync` returns, no run goes on that was submitted before it.
    pub(super) fn cancel(&self) -> Option<String> {
        self.first(|no, item| {
            let is_cancel = |made: &&Made| made.call == Call::CancelSync && made.end != usize::MAX;
            item.calls.iter().filter(is_cancel).find_map(|cancel| {
                let later =
                    item.accepted().any(|made| made.end > cancel.begin && made.begin < cancel.end);
                let runs = |ran: &&super::Ran| ran.start < cancel.end && ran.finish > cancel.end;
                let goes_on = !later && item.runs.iter().any(|ran| runs(&ran));
                let queued = item.accepted().filter(|made| made.end < cancel.begin).count();
                let is_left = !later && item.consumed_before(cancel.end) < queued;
                (goes_on || is_left).then(|| {
                    let end = self.at(cancel.end);
                    let state = if goes_on { "runs" } else { "is pending" };
                    format!("item {} {state} at {end}, after cancel_sync", self.name(no))
                })
            })
        })
    }
}
