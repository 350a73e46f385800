//! The CPUs of a process change while its items run: no item is lost, and none runs on a CPU that
//! it must not use.
//!
//! The process whose CPUs change is this test binary again, started by the tests, with one test
//! that floods its queues and answers questions. Whether it follows within a second is asserted in
//! virtual time, not here.

mod support;

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use support::cgroup::Group;
use support::guard::KnownChild;
use support::items::Job;
use support::left_out::not_here;
use support::machine::{current_cpu, mask, two_cpus};
use support::offline::Offline;
use support::{queue, watchdog};
use uwork::topology::Machine;
use uwork::{CpuSet, Queue, Report};

/// Set in the process that floods.
const FLOODS: &str = "UWORK_TEST_FLOODS";
/// The prefix of the flooding process's answers.
const SAYS: &str = "flood: ";
/// Items of each queue and round.
const ITEMS: u32 = 64;

/// The flooding process, with its input and output.
struct Flood {
    child: Child,
    _known: KnownChild,
    questions: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Flood {
    fn start() -> Flood {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "floods_in_the_child_process", "--nocapture", "--test-threads=1"])
            .env(FLOODS, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let questions = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let _known = KnownChild::new(child.id() as libc::pid_t);
        let mut flood = Flood { child, _known, questions, answers };
        flood.expect("ready");
        flood
    }

    /// Expects this as the next answer of the process.
    #[track_caller]
    fn expect(&mut self, what: &str) {
        let said = self.answers.by_ref().map(|line| line.expect("text")).find_map(|line| {
            // The output of the test harness is in between.
            line.split_once(SAYS).map(|(_, said)| said.to_owned())
        });
        support::guard::progress();
        assert_eq!(said.as_deref(), Some(what));
    }

    /// Expects that items queued from now on run on exactly these CPUs, and that the CPUs can be
    /// named.
    #[track_caller]
    fn expect_on(&mut self, cpus: &CpuSet) {
        writeln!(self.questions, "where").expect("it listens");
        self.expect(&format!("ran on {cpus}, may use {cpus}"));
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(what: &str) {
    println!("{SAYS}{what}");
}

fn report(report: &Report) {
    if let Report::CpusChanged { allowed, limit } = report {
        let limit = limit.map_or(String::new(), |limit| format!(", time of {limit}"));
        say(&format!("changed to {allowed}{limit}"));
    }
}

/// One round of items on every kind of queue. All must run, the ordered ones in order. Returns the
/// CPUs on which they were at the start and at the end of each.
fn round(queues: &[Queue; 4], cpus: u32) -> CpuSet {
    let seen = Arc::new(Mutex::new(CpuSet::new()));
    let ran = Arc::new(AtomicU32::new(0));
    let order = Arc::new(AtomicU32::new(0));
    let mut queued = 0;
    for queue in queues {
        for index in 0..ITEMS {
            let (seen, ran, order) = (seen.clone(), ran.clone(), order.clone());
            let ordered = queue.is_ordered();
            let item = Job::new(move |_| {
                let began_on = current_cpu();
                if ordered {
                    assert!(order.swap(index + 1, Ordering::Relaxed) <= index, "out of order");
                }
                (0..2_000).for_each(|_| std::hint::spin_loop());
                let mut seen = seen.lock().expect("no panic under this lock");
                seen.insert(began_on);
                seen.insert(current_cpu());
                ran.fetch_add(1, Ordering::Relaxed);
            });
            let outcome = match index % 2 {
                0 => Ok(queue.enqueue(item)),
                // An error if the CPU is not allowed.
                _ => queue.enqueue_on((index / 2) % cpus, item),
            };
            if let Ok(outcome) = outcome {
                assert!(outcome.is_queued());
                queued += 1;
            }
        }
        queue.flush().expect("not from an item");
    }
    assert_eq!(ran.load(Ordering::Relaxed), queued);
    seen.lock().expect("no panic under this lock").clone()
}

/// Does nothing unless the process was started by one of the other tests.
#[test]
fn floods_in_the_child_process() {
    if std::env::var_os(FLOODS).is_none() {
        return;
    }
    uwork::set_reporter(report).expect("the first reporter");
    let possible = Machine::read().expect("a machine").topology.possible().clone();
    let cpus = possible.last().map_or(1, |last| last + 1);
    let queues = [
        queue("flood").per_cpu().build().unwrap(),
        queue("flood").affinity_strict(true).build().unwrap(),
        queue("flood").build().unwrap(),
        queue("flood").ordered().build().unwrap(),
    ];
    let (questions, asked) = channel();
    thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).all(|line| questions.send(line).is_ok())
    });
    say("ready");
    loop {
        match asked.try_recv() {
            Ok(_) => {
                let mut seen = CpuSet::new();
                (0..20).for_each(|_| seen = seen.or(&round(&queues, cpus)));
                let may = (0..cpus).filter(|&cpu| queues[0].check_cpu(cpu).is_ok());
                say(&format!("ran on {seen}, may use {}", may.collect::<CpuSet>()));
            }
            Err(std::sync::mpsc::TryRecvError::Empty) => drop(round(&queues, cpus)),
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
    }
}

/// As `taskset -p` does.
fn set_affinity(pid: u32, cpus: &CpuSet) {
    let mut words = vec![0_u64; cpus.last().expect("a CPU") as usize / 64 + 1];
    cpus.iter().for_each(|cpu| words[cpu as usize / 64] |= 1 << (cpu % 64));
    let pid = libc::pid_t::try_from(pid).expect("a process id");
    // SAFETY: the mask is live and has the given length.
    let outcome =
        unsafe { libc::sched_setaffinity(pid, size_of_val(&words[..]), words.as_ptr().cast()) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// The CPUs of this process, and one of them. Prints a note and returns `None` if it has only one.
fn all_and_one() -> Option<(CpuSet, CpuSet)> {
    let (first, _) = two_cpus()?;
    Some((mask(&support::machine::cpus()), mask(&[first])))
}

#[test]
fn the_affinity_mask_changes() {
    let _watchdog = watchdog();
    let Some((all, one)) = all_and_one() else { return };
    let mut flood = Flood::start();
    flood.expect_on(&all);
    for _ in 0..3 {
        set_affinity(flood.pid(), &one);
        flood.expect(&format!("changed to {one}"));
        flood.expect_on(&one);
        set_affinity(flood.pid(), &all);
        flood.expect(&format!("changed to {all}"));
        flood.expect_on(&all);
    }
}

/// A process that starts with one CPU is not limited to it.
#[test]
fn cpus_that_were_offline_at_the_start_are_used() {
    let _watchdog = watchdog();
    let Some((all, one)) = all_and_one() else { return };
    let narrow = one.clone();
    let mut flood = thread::spawn(move || {
        set_affinity(0, &narrow);
        Flood::start()
    })
    .join()
    .expect("a process");
    flood.expect_on(&one);
    set_affinity(flood.pid(), &all);
    flood.expect(&format!("changed to {all}"));
    flood.expect_on(&all);
}

#[test]
fn the_cpuset_changes() {
    let _watchdog = watchdog();
    let Some((all, one)) = all_and_one() else { return };
    let cpus = |group: &Group, cpus: &CpuSet| group.set(&["cpuset.cpus"], &cpus.to_string());
    let prepare = || {
        let group = Group::new("cpuset")?;
        cpus(&group, &all)?;
        let memory = group.0.with_file_name("cpuset.mems");
        let memory = fs::read_to_string(memory).unwrap_or_else(|_| "0".to_owned());
        group.set(&["cpuset.mems"], memory.trim()).map(|()| group)
    };
    let group = match prepare() {
        Ok(group) => group,
        Err(why) => return not_here("the_cpuset_changes", &why),
    };
    let mut flood = Flood::start();
    if let Err(why) = group.add(flood.pid()) {
        return not_here("the_cpuset_changes", &why);
    }
    for _ in 0..2 {
        cpus(&group, &one).unwrap();
        flood.expect(&format!("changed to {one}"));
        flood.expect_on(&one);
        cpus(&group, &all).unwrap();
        flood.expect(&format!("changed to {all}"));
        flood.expect_on(&all);
    }
    drop(flood);
}

#[test]
fn the_quota_changes() {
    let _watchdog = watchdog();
    let Some((all, _)) = all_and_one() else { return };
    let quota = |group: &Group, quota: Option<u32>| match group.0.join("cpu.max").exists() {
        true => {
            let value = quota.map_or("max".to_owned(), |us| us.to_string());
            group.set(&["cpu.max"], &format!("{value} 100000"))
        }
        false => {
            let value = quota.map_or("-1".to_owned(), |us| us.to_string());
            group.set(&["cpu.cfs_quota_us"], &value)
        }
    };
    let group = match Group::new("cpu").and_then(|group| quota(&group, None).map(|()| group)) {
        Ok(group) => group,
        Err(why) => return not_here("the_quota_changes", &why),
    };
    let mut flood = Flood::start();
    if let Err(why) = group.add(flood.pid()) {
        return not_here("the_quota_changes", &why);
    }
    for us in [100_000, 150_000, 90_000] {
        quota(&group, Some(us)).unwrap();
        flood.expect(&format!("changed to {all}, time of {}", us.div_ceil(100_000)));
        flood.expect_on(&all);
        quota(&group, None).unwrap();
        flood.expect(&format!("changed to {all}"));
    }
    drop(flood);
}

/// Takes a CPU of the whole machine offline for a moment, so it runs only on request.
#[test]
fn a_cpu_goes_offline() {
    let _watchdog = watchdog();
    if std::env::var_os("UWORK_TEST_OFFLINE").is_none() {
        return not_here(
            "a_cpu_goes_offline",
            "UWORK_TEST_OFFLINE is not set; all processes feel it",
        );
    }
    let Some((first, second)) = two_cpus() else { return };
    let all = mask(&support::machine::cpus());
    let left = all.and_not(&mask(&[second]));
    assert!(left.contains(first));
    let mut flood = Flood::start();
    flood.expect_on(&all);
    let offline = match Offline::take(second) {
        Ok(offline) => offline,
        Err(why) => return not_here("a_cpu_goes_offline", why.to_string()),
    };
    flood.expect(&format!("changed to {left}"));
    flood.expect_on(&left);
    drop(offline);
    // The cgroup file system may return the CPU to the group later than it comes online.
    flood.expect(&format!("changed to {all}"));
    flood.expect_on(&all);
}
