//! Items make progress although no thread can be spawned: RLIMIT_NPROC or a control group's
//! pids.max is below the process's current number of threads. Each scene is a process of its own.
//! The delay until a pool gets its worker after the limit is lifted is asserted in virtual time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{env, fs};

use crate::support::child::{alone, alone_with, become_nobody, limit};
use crate::support::gate::{Gate, Log};
use crate::support::items::{Job, Later};
use crate::support::left_out::not_here;
use crate::support::machine::{cpus, thread_id};
use crate::support::{queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Builder, ErrorKind, Queue, Report};

/// The items of each queue and round.
const ITEMS: usize = 200;

/// A limit of threads that leaves no room for another one, however many threads end.
const NO_ROOM: u64 = 1;

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

fn failures() -> usize {
    let failed = |report: &&Report| matches!(report, Report::SpawnFailed { .. });
    REPORTS.lock().unwrap().iter().filter(failed).count()
}

/// Makes a thread, which has left the process on return.
fn can_make_a_thread() -> bool {
    let Ok(thread) = std::thread::Builder::new().spawn(thread_id) else { return false };
    let task = format!("/proc/self/task/{}", thread.join().unwrap());
    until("the thread has ended", || !Path::new(&task).exists());
    true
}

/// Queues of every kind.
fn every_kind() -> Vec<Queue> {
    let scope = |scope| {
        move |builder: Builder| builder.affinity_scope(AffinityScopeChoice::Explicit(scope))
    };
    let kinds: [&dyn Fn(Builder) -> Builder; 12] = [
        &Builder::per_cpu,
        &|builder| builder.per_cpu().max_active(1),
        &|builder| builder.per_cpu().highpri(),
        &|builder| builder.per_cpu().cpu_intensive(),
        &|builder| builder.per_cpu().mem_reclaim(),
        &scope(AffinityScope::System),
        &|builder| scope(AffinityScope::Cpu)(builder).affinity_strict(true),
        &|builder| builder.max_active(2),
        &|builder| builder.mem_reclaim(),
        &|builder| builder.ordered().mem_reclaim(),
        &Builder::ordered,
        &Builder::dedicated,
    ];
    let mut queues: Vec<_> =
        kinds.iter().map(|kind| kind(queue("kind")).build().unwrap()).collect();
    queues.push(queue("kind").bh().build().unwrap());
    queues
}

/// Items that compute, that wait, that queue another one, and that are delayed. All run, those of
/// an ordered queue in order.
fn drains(queue: &Queue) {
    let log = Log::new();
    let waits = !queue.flags().contains(uwork::Flags::BH);
    let chained = Job::counting();
    let later = Later::counting();
    assert!(queue.enqueue_delayed(later.clone(), Duration::from_millis(1)).is_queued());
    for number in 0..ITEMS {
        let (log, own, chained) = (log.clone(), queue.clone(), chained.clone());
        let item = Job::new(move |_| {
            if waits && number % 10 == 0 {
                uwork::blocking(std::thread::yield_now);
            }
            if number == ITEMS / 2 {
                assert!(own.enqueue(chained.clone()).is_queued());
            }
            log.push(number);
        });
        assert!(queue.enqueue(item).is_queued());
    }
    queue.flush().unwrap();
    later.work.flush();
    queue.drain().unwrap();
    assert_eq!((chained.tally.finished(), later.tally.finished()), (1, 1), "{}", queue.name());
    let mut ran = log.events();
    if !queue.is_ordered() {
        ran.sort_unstable();
    }
    assert_eq!(ran, (0..ITEMS).collect::<Vec<_>>(), "{}", queue.name());
}

/// A process that cannot get another thread until the limit is lifted.
struct Starved<'a> {
    lift: &'a dyn Fn(),
}

impl<'a> Starved<'a> {
    /// `set` sets the limit; `lift` removes it.
    fn new(set: &dyn Fn(u64), lift: &'a dyn Fn()) -> Starved<'a> {
        let _ = uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.clone()));
        // Not the number of threads: the library's threads that deliver a report end by themselves.
        set(NO_ROOM);
        assert!(!can_make_a_thread());
        Starved { lift }
    }

    fn end(&self) {
        (self.lift)();
        assert!(can_make_a_thread());
    }
}

/// Occupies the first CPU's only worker of plain per-CPU queues until the gate is opened. No
/// further worker can be spawned.
fn stuck(plain: &Queue) -> (Arc<Job>, Gate) {
    let (started, may_end) = (Gate::new(), Gate::new());
    let held = Job::held(&started, &may_end);
    assert!(plain.enqueue_on(cpus()[0], held.clone()).unwrap().is_queued());
    started.wait();
    (held, may_end)
}

/// The whole scene.
fn goes_on(set: &dyn Fn(u64), lift: &dyn Fn()) {
    let queues = every_kind();
    let reclaim = queue("reclaim").per_cpu().mem_reclaim().build().unwrap();
    let plain = queue("plain").per_cpu().build().unwrap();
    let cpu = cpus()[0];
    let starved = Starved::new(set, lift);
    for _ in 0..3 {
        queues.iter().for_each(drains);
    }
    // A queue that needs threads is refused; a queue whose threads all exist is not.
    let refused = queue("refused").dedicated().build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoThread, "{refused}");
    let refused = queue("refused").per_cpu().mem_reclaim().build().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoThread, "{refused}");
    drains(&queue("shares").per_cpu().build().unwrap());

    // In a pool whose only worker is stuck, the rescuer runs its queue's items, in order.
    let (held, may_end) = stuck(&plain);
    let log = Log::new();
    for number in 0..ITEMS {
        let log = log.clone();
        let item = Job::new(move |_| log.push((number, uwork::current_is_rescuer())));
        assert!(reclaim.enqueue_on(cpu, item).unwrap().is_queued());
    }
    reclaim.flush().unwrap();
    assert_eq!(log.events(), (0..ITEMS).map(|number| (number, true)).collect::<Vec<_>>());
    assert!(failures() > 0, "it was tried and reported");

    // Items of a queue without a rescuer wait. They run without another submission once a thread
    // can be spawned.
    let waits = Job::counting();
    assert!(plain.enqueue_on(cpu, waits.clone()).unwrap().is_queued());
    reclaim.flush().unwrap();
    assert_eq!(waits.tally.started(), 0);
    starved.end();
    until("the pool got a worker", || waits.tally.finished() == 1);
    // A gate that waited too long panics.
    let stuck = (held.tally.started(), held.tally.finished(), uwork::panics());
    assert_eq!(stuck, (1, 0, 0), "the first worker is still stuck");
    let log = Log::new();
    let theirs = log.clone();
    let item = Job::new(move |_| theirs.push(uwork::current_is_rescuer()));
    assert!(reclaim.enqueue_on(cpu, item).unwrap().is_queued());
    log.wait_for(&false);
    may_end.open();
    plain.flush().unwrap();
    queues.iter().for_each(drains);
    queues.iter().for_each(|queue| queue.destroy().unwrap());
}

/// RLIMIT_NPROC counts the threads of a user, and does not limit privileged users.
fn with_nproc(scene: impl FnOnce(&dyn Fn(u64), &dyn Fn())) {
    let _watchdog = watchdog();
    become_nobody();
    scene(&|threads| limit(libc::RLIMIT_NPROC, threads), &|| limit(libc::RLIMIT_NPROC, u64::MAX));
}

// Catches: an item that is lost, delayed or out of order because a thread could not be spawned; a
// pool that stays without a worker when threads can be spawned again.
#[test]
fn every_queue_drains_at_the_limit_of_rlimit_nproc() {
    alone("every_queue_drains_at_the_limit_of_rlimit_nproc", || with_nproc(goes_on));
}

/// The path of the control group, for the process in it.
const GROUP: &str = "UWORK_TEST_GROUP";

/// A control group that counts threads, removed on drop. If its creation fails, the test is
/// skipped.
struct Group(PathBuf);

impl Group {
    fn new() -> Result<Group, String> {
        let root = Path::new("/sys/fs/cgroup");
        let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        let parent = match () {
            () if root.join("pids/cgroup.procs").exists() => root.join("pids"),
            () if enabled.split_whitespace().any(|name| name == "pids") => root.to_owned(),
            () => return Err(format!("no pids controller for groups below {root:?}")),
        };
        let group = Group(parent.join(format!("uwork-test-{}-pids", std::process::id())));
        fs::create_dir(&group.0).map_err(|error| format!("{:?}: {error}", group.0))?;
        // Only the process that adds itself can tell whether that is permitted.
        match fs::write(group.0.join("pids.max"), "max") {
            Ok(()) => Ok(group),
            Err(error) => Err(format!("{:?}: {error}", group.0)),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process in the group has been waited for; its last thread may still be exiting.
        until("the group is empty", || match fs::remove_dir(&self.0) {
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
            Ok(()) => true,
        });
    }
}

// Catches: as above, for a limit that also binds privileged users.
#[test]
fn every_queue_drains_at_the_limit_of_pids_max() {
    let test = "every_queue_drains_at_the_limit_of_pids_max";
    let inside = env::var_os(GROUP).map(PathBuf::from);
    let group = match inside.is_none().then(Group::new).transpose() {
        Ok(group) => group,
        Err(why) => return not_here(test, why),
    };
    let path = group.as_ref().map(|group| group.0.clone()).or(inside).expect("one of them");
    let scene = || {
        let _watchdog = watchdog();
        if let Err(why) = fs::write(path.join("cgroup.procs"), "0") {
            return not_here(test, format!("{path:?}: {why}"));
        }
        let set = |limit: &str| fs::write(path.join("pids.max"), limit).expect("a limit");
        goes_on(&|threads| set(&threads.to_string()), &|| set("max"));
    };
    alone_with(test, |command| _ = command.env(GROUP, &path), scene);
}

// Catches: a flush, a cancel or a join that waits for its own caller, or for a worker that cannot
// come, because the caller is a rescuer.
#[test]
fn an_item_in_a_rescuer_may_call_everything() {
    alone("an_item_in_a_rescuer_may_call_everything", || with_nproc(in_a_rescuer));
}

fn in_a_rescuer(set: &dyn Fn(u64), lift: &dyn Fn()) {
    let [own, other] =
        ["own", "other"].map(|name| queue(name).per_cpu().mem_reclaim().build().unwrap());
    let plain = queue("plain").per_cpu().build().unwrap();
    let unbound = queue("unbound").build().unwrap();
    let cpu = cpus()[0];
    let starved = Starved::new(set, lift);
    let (held, may_end) = stuck(&plain);
    let log = Log::new();
    let behind = Job::counting();
    let all_are_queued = Gate::new();
    let (theirs, target, begins) = (log.clone(), behind.clone(), all_are_queued.clone());
    let queues = (own.clone(), other.clone(), plain.clone(), unbound.clone());
    let item = Job::new(move |this| {
        begins.wait();
        assert!(uwork::current_is_rescuer());
        assert_eq!(uwork::current_work(), Some(this.work.id()));
        let (own, other, plain, unbound) = &queues;
        let shown = own.dump();
        assert_eq!(shown.slots, [shown.rescuer.as_ref().unwrap().slot], "{shown}");
        assert!(shown.to_string().contains("  rescuer slot "), "{shown}");
        // An item cannot wait for its own queue.
        for call in [Queue::flush, Queue::drain, Queue::destroy] {
            assert!(call(own).unwrap_err().would_deadlock());
        }
        // The item itself: no wait is needed, and its queued instance is cancelled.
        assert!(this.work.cancel_sync().unwrap().is_none());
        assert!(own.enqueue_on(cpu, this.clone()).unwrap().is_queued());
        assert!(this.work.cancel_sync().unwrap().is_some());
        theirs.push("itself");
        // A different queue, whose rescuer is free.
        let elsewhere = Job::new(|_| assert!(uwork::current_is_rescuer()));
        assert!(other.enqueue_on(cpu, elsewhere.clone()).unwrap().is_queued());
        // The result tells whether the flush had to wait.
        let _ = elsewhere.work.flush();
        assert_eq!(elsewhere.tally.finished(), 1);
        other.flush().unwrap();
        other.drain().unwrap();
        theirs.push("another rescuer");
        // A queue whose workers exist.
        assert_eq!(unbound.spawn(|| 1).join().unwrap(), 1);
        unbound.flush().unwrap();
        theirs.push("an unbound queue");
        // Items that cannot run now can be cancelled, with `cancel` and with `cancel_sync`.
        let (one, two) = (Job::counting(), Job::counting());
        assert!(plain.enqueue_on(cpu, one.clone()).unwrap().is_queued());
        assert!(plain.enqueue_on(cpu, two.clone()).unwrap().is_queued());
        assert!(one.work.cancel().is_some());
        assert!(two.work.cancel_sync().unwrap().is_some());
        // So can the item behind it in its own queue.
        assert!(target.work.cancel_sync().unwrap().is_some());
        assert!(own.enqueue_on(cpu, target.clone()).unwrap().is_queued());
        theirs.push("cancels");
    });
    assert!(own.enqueue_on(cpu, item.clone()).unwrap().is_queued());
    assert!(own.enqueue_on(cpu, behind.clone()).unwrap().is_queued());
    all_are_queued.open();
    own.flush().unwrap();
    until("what it queued has run", || behind.tally.finished() == 1);
    assert_eq!(log.events(), ["itself", "another rescuer", "an unbound queue", "cancels"]);
    assert_eq!((item.tally.finished(), held.tally.finished()), (1, 0));
    starved.end();
    may_end.open();
    plain.flush().unwrap();
}
