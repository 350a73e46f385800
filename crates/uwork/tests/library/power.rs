//! Queues that save power: on which CPUs their items run, and input that is probably a mistake. Each
//! test runs in a process of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::flag::SetOnDrop;
use crate::support::gate::Log;
use crate::support::items::Later;
use crate::support::left_out::not_here;
use crate::support::machine::{cpus, current_cpu, mask, pin_first_thread, two_cpus};
use crate::support::{queue, until, watchdog};
use uwork::topology::Machine;
use uwork::{CpuSet, DelayedWork, Queue, Report, housekeeping};

const MS: Duration = Duration::from_millis(1);
/// Runs in a row that show a rule. A scheduler that places the worker freely does not do the same by
/// chance.
const IN_A_ROW: usize = 20;

static REPORTS: LazyLock<Log<Report>> = LazyLock::new(Log::new);

fn save_power_and_note_reports() {
    housekeeping::set_power_efficient(true);
    uwork::set_reporter(|report| REPORTS.push(report.clone())).expect("the first");
}

/// How many reports so far match.
fn count(matches: impl Fn(&Report) -> bool) -> usize {
    REPORTS.events().iter().filter(|report| matches(report)).count()
}

/// The CPUs that the calling thread may use.
fn allowed_to_this_thread() -> CpuSet {
    let mut words = [0_u64; 128];
    // SAFETY: the mask is live and has the given length.
    let outcome =
        unsafe { libc::sched_getaffinity(0, size_of_val(&words), words.as_mut_ptr().cast()) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    (0..64 * 128).filter(|cpu| words[*cpu as usize / 64] >> (cpu % 64) & 1 == 1).collect()
}

/// An item that notes where it runs and what else its thread may use, and arms itself again.
fn periodic(queue: &Queue, period: Duration, slack: Duration) -> (Arc<Later>, Log<(u32, CpuSet)>) {
    let runs = Log::new();
    let item = Later::of(DelayedWork::new().with_slack(slack), {
        let (queue, runs) = (queue.clone(), runs.clone());
        move |this| {
            runs.push((current_cpu(), allowed_to_this_thread()));
            let _ = queue.enqueue_delayed(this.clone(), period);
        }
    });
    assert!(queue.enqueue_delayed(item.clone(), period).is_queued());
    (item, runs)
}

fn end(item: &Arc<Later>) {
    item.work.disable_sync().expect("the first disable");
}

/// Waits for that many further runs in a row of which each has the property.
fn until_runs_in_a_row(
    runs: &Log<(u32, CpuSet)>,
    what: &str,
    has: impl Fn(&(u32, CpuSet)) -> bool,
) {
    let known = runs.events().len();
    until(what, || {
        let new = &runs.events()[known..];
        new.len() >= IN_A_ROW && new[new.len() - IN_A_ROW..].iter().all(&has)
    });
}

// Catches: a periodic item that wakes the CPU on which it was armed, although another is awake; a
// worker that stays on the CPU that was awake once.
#[test]
fn a_periodic_item_stays_on_the_cpu_that_is_awake() {
    let _watchdog = watchdog();
    let Some((first, second)) = two_cpus() else { return };
    alone("a_periodic_item_stays_on_the_cpu_that_is_awake", || {
        save_power_and_note_reports();
        let saving = queue("saving").power_efficient().build().unwrap();
        let bound = queue("bound").per_cpu().build().unwrap();
        let (item, runs) = periodic(&saving, 10 * MS, 5 * MS / 2);
        // Twice, so that the item cannot be on that CPU by chance.
        for awake in [first, second, first] {
            let is_over = Arc::new(AtomicBool::new(false));
            let hog = {
                let is_over = is_over.clone();
                Later::new(move |_| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            };
            let over = SetOnDrop(&is_over);
            assert!(bound.enqueue_on(awake, hog).unwrap().is_queued());
            let what = format!("runs in a row on CPU {awake}");
            until_runs_in_a_row(&runs, &what, |&(cpu, _)| cpu == awake);
            drop(over);
            bound.flush().unwrap();
            let all = mask(&cpus());
            until_runs_in_a_row(&runs, "runs without a pinned worker", |(_, may)| *may == all);
        }
        end(&item);
    });
}

// Catches: a saving pool that uses CPUs which the administrator has isolated. The machines of
// `ci/vm.sh` have such CPUs, and let this test use them.
#[test]
fn isolated_cpus_are_excluded_at_the_start() {
    let _watchdog = watchdog();
    let test = "isolated_cpus_are_excluded_at_the_start";
    let machine = Machine::read().expect("a machine");
    let isolated = machine.isolated.and(&machine.allowed);
    if isolated.is_empty() {
        return not_here(test, "no CPU is isolated and allowed");
    }
    alone(test, || {
        save_power_and_note_reports();
        assert!(!housekeeping::cpumask().intersects(&isolated), "{}", housekeeping::cpumask());
        let saving = queue("saving").power_efficient().build().unwrap();
        let (item, runs) = periodic(&saving, MS, MS);
        let what = "runs outside of the isolated CPUs";
        until_runs_in_a_row(&runs, what, |(_, may)| !may.intersects(&isolated));
        end(&item);
        assert!(runs.events().iter().all(|&(cpu, _)| !isolated.contains(cpu)));
    });
}

// Catches: a slack that stays unused, or that the item's own replaces although it is shorter.
#[test]
fn the_builders_slack_is_that_of_the_queue() {
    let _watchdog = watchdog();
    let lax = queue("lax").timer_slack(50 * MS).build().unwrap();
    assert_eq!(lax.timer_slack(), 50 * MS);
    lax.set_timer_slack(Duration::MAX);
    assert!(lax.timer_slack() > Duration::from_secs(1 << 30), "cut to the clock's range");
    assert_eq!(queue("strict").build().unwrap().timer_slack(), Duration::ZERO);
}

// Catches: a period that doubles without a word; a report for each run; one for a delay that is no
// period.
#[test]
fn a_slack_beyond_the_period_is_reported_once() {
    let _watchdog = watchdog();
    alone("a_slack_beyond_the_period_is_reported_once", || {
        save_power_and_note_reports();
        let lax = queue("lax").power_efficient().timer_slack(5 * MS).build().unwrap();
        let once = Later::counting();
        assert!(lax.enqueue_delayed(once.clone(), MS).is_queued());
        until("a run", || once.tally.finished() == 1);
        let is_it = |report: &Report| matches!(report, Report::SlackBeyondPeriod { .. });
        assert_eq!(count(is_it), 0, "one delay is no period");
        let (item, runs) = periodic(&lax, MS, Duration::ZERO);
        REPORTS.wait_for(&Report::SlackBeyondPeriod {
            queue: lax.name().to_owned(),
            period_ns: 1_000_000,
            slack_ns: 5_000_000,
        });
        runs.wait_for_count(IN_A_ROW);
        end(&item);
        assert_eq!(count(is_it), 1);
    });
}

// Catches: items that wait for ever, because no CPU of the chosen mask is left.
#[test]
fn items_of_a_mask_without_a_cpu_run_on_the_others() {
    let _watchdog = watchdog();
    let Some((first, second)) = two_cpus() else { return };
    alone("items_of_a_mask_without_a_cpu_run_on_the_others", || {
        save_power_and_note_reports();
        let saving = queue("saving").power_efficient().build().unwrap();
        housekeeping::set_cpumask(CpuSet::single(second)).unwrap();
        let cpus_of_late = Log::new();
        let late = Later::new({
            let cpus = cpus_of_late.clone();
            move |_| cpus.push(current_cpu())
        });
        assert!(saving.enqueue_delayed(late.clone(), Duration::MAX).is_queued());
        // A change of the CPUs is detected while a worker is busy now and then.
        let (item, _) = periodic(&saving, 10 * MS, MS);
        pin_first_thread(first);
        REPORTS.wait_for(&Report::CpumaskWithoutCpu {
            cpumask: CpuSet::single(second),
            used: CpuSet::single(first),
        });
        assert!(late.work.flush());
        assert_eq!(cpus_of_late.events(), [first]);
        end(&item);
    });
}
