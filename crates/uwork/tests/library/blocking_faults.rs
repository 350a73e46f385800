//! The system refuses the means to detect blocked workers, at the start or later: the next best
//! tier is used, reported once, and no item is lost. Each scene is a process of its own.

use std::ffi::CString;
use std::fs::File;
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use perf_event_open_sys::bindings::{PERF_COUNT_SW_DUMMY, PERF_TYPE_SOFTWARE, perf_event_attr};
use perf_event_open_sys::perf_event_open;

use crate::support::blocks::every_kind;
use crate::support::child::{alone, alone_each, alone_with, become_nobody, limit, stderr_of};
use crate::support::descriptors::open_descriptors;
use crate::support::filter::refuse;
use crate::support::guard::{Guard, progress};
use crate::support::left_out::not_here;
use crate::support::tiers::{
    BLOCKED, VARIABLE, are_replaced, blocks, collect_reports, declare_and_are_replaced, in_events,
    perf_files, reported, scene,
};
use crate::support::{WAIT_MAX, received, until, watchdog};
use uwork::topology::Machine;
use uwork::{BlockingTier, Setup};

/// Plays scenes until the condition holds. Each scene is an opportunity for the awaited event, and
/// none on a machine that gives the workers no CPU in time.
#[track_caller]
fn scenes_until(what: &str, mut condition: impl FnMut() -> bool) {
    let mut guard = Guard::new(WAIT_MAX);
    loop {
        scene();
        if condition() {
            return;
        }
        guard.poll().unwrap_or_else(|hang| panic!("{what}: {hang}; reported: {:?}", reported()));
    }
}

/// Whether the system lets this process observe its threads; otherwise prints a note that the test
/// is skipped.
fn can_observe(test: &str) -> bool {
    let outcome = Event::open();
    if let Err(error) = &outcome {
        not_here(test, format!("perf_event_open: {error}"));
    }
    outcome.is_ok()
}

/// A perf event of the calling thread.
struct Event(OwnedFd);

impl Event {
    fn open() -> Result<Event, Error> {
        let mut attr = perf_event_attr {
            size: size_of::<perf_event_attr>() as u32,
            type_: PERF_TYPE_SOFTWARE,
            config: u64::from(PERF_COUNT_SW_DUMMY),
            ..perf_event_attr::default()
        };
        attr.set_exclude_kernel(1);
        // SAFETY: the attributes are live and their size is in them.
        let file = unsafe { perf_event_open(&raw mut attr, 0, -1, -1, 0) };
        if file < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: a file that was just opened, and that no other owner has.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// Maps `pages` pages of records permanently, which locks them in memory.
    fn map(&self, pages: usize) -> Result<(), Error> {
        // SAFETY: no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let (null, protection) = (std::ptr::null_mut(), libc::PROT_READ | libc::PROT_WRITE);
        let (bytes, file) = ((1 + pages) * page, self.0.as_raw_fd());
        // SAFETY: a new mapping of an open file; the kernel chooses where.
        let at = unsafe { libc::mmap(null, bytes, protection, libc::MAP_SHARED, file, 0) };
        if at == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
    }
}

/// Asserts that one tier was reported, with a reason that contains these words.
#[track_caller]
fn assert_reported(tier: &str, words: &[&str]) {
    until("the report is delivered", || !reported().is_empty());
    let reported = reported();
    assert_eq!(reported.len(), 1, "{reported:?}");
    let (told, reason) = &reported[0];
    assert_eq!(told, tier, "{reason}");
    words.iter().for_each(|word| assert!(reason.contains(word), "{word:?} is not in {reason:?}"));
}

// Catches: a refusal that leads to declared waits only, to an error, to no report or to several
// lines.
#[test]
fn a_filter_of_system_calls_leads_to_sampling() {
    let test = "a_filter_of_system_calls_leads_to_sampling";
    let errors = ["EPERM", "EACCES", "ENOSYS"];
    alone_each(test, "UWORK_TEST_ERRNO", &errors, VARIABLE, |errno| {
        let _watchdog = watchdog();
        collect_reports();
        Setup::new().blocking_tier(BlockingTier::Events).install().unwrap();
        let number = match errno {
            "EPERM" => libc::EPERM,
            "EACCES" => libc::EACCES,
            _ => libc::ENOSYS,
        };
        refuse(libc::SYS_perf_event_open, number);
        let queue = blocks();
        for (_, obstacle) in every_kind(BLOCKED) {
            are_replaced(&queue, obstacle, BLOCKED);
        }
        let error = Error::from_raw_os_error(number).to_string();
        assert_reported("sampling", &["events is refused: perf_event_open", &error]);
        assert_eq!(perf_files(), 0);
    });
}

/// Moves the process into the folder of this program, where it sees no `/proc`.
fn change_root() -> Result<(), Error> {
    let program = std::env::current_exe().unwrap();
    let path = CString::new(program.parent().unwrap().as_os_str().as_bytes()).unwrap();
    // SAFETY: the paths are live.
    let done = unsafe { libc::chroot(path.as_ptr()) | libc::chdir(c"/".as_ptr()) } == 0;
    if done { Ok(()) } else { Err(Error::last_os_error()) }
}

// Catches: a tier that detects nothing, and says otherwise; no report, or several.
#[test]
fn a_proc_that_is_out_of_sight_later_leads_to_declared() {
    let test = "a_proc_that_is_out_of_sight_later_leads_to_declared";
    proc_is_lost_later(test, || Ok(()), change_root);
}

// Catches: the same, where the folder is found and is empty.
#[test]
fn a_file_system_over_proc_leads_to_declared() {
    let test = "a_file_system_over_proc_leads_to_declared";
    proc_is_lost_later(test, own_mounts, || mount_over_proc("tmpfs", ""));
}

#[track_caller]
fn proc_is_lost_later(
    test: &str,
    before_the_start: fn() -> Result<(), Error>,
    lose: fn() -> Result<(), Error>,
) {
    let tiers = ["standby", "events", "sampling"];
    alone_each(test, VARIABLE, &tiers, VARIABLE, |_| {
        let _watchdog = watchdog();
        let skip = |error: Error| not_here(test, error);
        if let Err(error) = before_the_start() {
            return skip(error);
        }
        collect_reports();
        scene();
        let before = reported().len();
        let machine = || format!("{:?}", uwork::dump().machine);
        let known = machine();
        if let Err(error) = lose() {
            return skip(error);
        }
        until("the loss is reported", || {
            declare_and_are_replaced(&blocks(), BLOCKED);
            reported().len() > before
        });
        (0..20).for_each(|_| declare_and_are_replaced(&blocks(), BLOCKED));
        assert_eq!(reported().len(), before + 1, "{:?}", reported());
        let (tier, reason) = reported().pop().unwrap();
        assert_eq!((&tier[..], uwork::dump().blocking.tier), ("declared", BlockingTier::Declared));
        assert!(reason.contains("/proc/self/task/TID/stat cannot be read"), "{reason}");
        assert_eq!(machine(), known, "the machine that it knew");
    });
}

// Catches: workers that are awaited through records that no longer arrive, or reported at each
// scan.
#[test]
fn records_that_are_refused_later_are_replaced_by_sampling() {
    let test = "records_that_are_refused_later_are_replaced_by_sampling";
    alone_with(test, in_events, || {
        let _watchdog = watchdog();
        if !can_observe(test) {
            return;
        }
        collect_reports();
        // One file keeps the tier usable; the next one belongs to a worker.
        scenes_until("a worker is observed", || perf_files() >= 2);
        assert_eq!(reported(), []);
        refuse(libc::SYS_perf_event_open, libc::EPERM);
        scenes_until("the refusal is noticed", || !reported().is_empty());
        (0..20).for_each(|_| scene());
        for (_, obstacle) in every_kind(BLOCKED) {
            are_replaced(&blocks(), obstacle, BLOCKED);
        }
        assert_reported("sampling", &["was allowed, and is refused now", "not permitted"]);
    });
}

/// The lines that a process reports about its tier, run with this environment.
fn lines_of(test: &str, value: Option<&str>, prepare: fn()) -> Option<Vec<String>> {
    let environment = |command: &mut std::process::Command| match value {
        Some(value) => _ = command.env(VARIABLE, value),
        None => _ = command.env_remove(VARIABLE),
    };
    let said = stderr_of(test, environment, || {
        let _watchdog = watchdog();
        prepare();
        let queue = blocks();
        (0..20).for_each(|_| declare_and_are_replaced(&queue, BLOCKED));
    })?;
    // A slow machine has other reports: of items that run for long, for example.
    let is_of_tier =
        |report: &str| report.contains(VARIABLE) || report.starts_with("workers that block ");
    let own = said
        .lines()
        .filter(|line| line.split_once("uwork: ").is_some_and(|(_, report)| is_of_tier(report)));
    Some(own.map(str::to_owned).collect())
}

/// As [`lines_of`], for a process that reports its tier. It can end before the thread that delivers
/// the report gets a CPU: then another process is started.
fn lines_of_one_that_reports(test: &str, value: &str, prepare: fn()) -> Option<Vec<String>> {
    let mut lines = None;
    until("a process reports its tier", || {
        lines = lines_of(test, Some(value), prepare);
        lines.as_ref().is_none_or(|lines| !lines.is_empty())
    });
    lines
}

// Catches: an invalid value that is accepted, is an error, or is reported more than once; a report
// of a tier that is the requested one.
#[test]
fn an_invalid_value_is_reported_with_the_valid_ones() {
    let test = "an_invalid_value_is_reported_with_the_valid_ones";
    for value in ["Events", "events ", "off", "events,sampling", "Standby"] {
        let Some(lines) = lines_of_one_that_reports(test, value, || {}) else { return };
        assert_eq!(lines.len(), 1, "{lines:?}");
        let wanted = format!(
            "uwork: UWORK_BLOCKING={value:?} is ignored: allowed are declared, standby, events, sampling; in use: "
        );
        assert!(lines[0].starts_with(&wanted), "{lines:?}");
    }
    for value in ["declared", "standby", "sampling"] {
        assert_eq!(lines_of(test, Some(value), || {}), Some(Vec::new()), "{value}");
    }
}

// Catches: a fallback that is reported more than once, or not at all where no reporter is set.
#[test]
fn a_refusal_is_one_line_on_standard_error() {
    let test = "a_refusal_is_one_line_on_standard_error";
    let refuses = || refuse(libc::SYS_perf_event_open, libc::EPERM);
    let Some(lines) = lines_of_one_that_reports(test, "events", refuses) else { return };
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("uwork: workers that block are noticed by way of sampling"));
    assert!(lines[0].contains("perf_event_paranoid is "), "{lines:?}");
    // The default does without records.
    for value in [None, Some("standby")] {
        assert_eq!(lines_of(test, value, refuses), Some(Vec::new()), "{value:?}");
    }
}

/// Opens files until their numbers reach `end`, or no more can be opened.
fn take_files(end: u64) -> Vec<File> {
    let open = || File::open("/dev/null").ok().filter(|file| (file.as_raw_fd() as u64) < end);
    std::iter::from_fn(open).collect()
}

/// The guards of waits read how long threads wait for a CPU, and cannot while no file is left. So a
/// thread opens its own file before, and notes such waits of its own as progress until the process
/// ends.
fn note_waits_for_a_cpu() {
    const NOTED_MIN_NS: u64 = 100_000_000;
    let (opened, is_open) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let times = File::open("/proc/thread-self/schedstat");
        opened.send(times.is_ok()).unwrap();
        let Ok(times) = times else { return };
        let mut noted = ns_without_a_cpu(&times);
        loop {
            std::thread::park_timeout(Duration::from_millis(100));
            let now = ns_without_a_cpu(&times);
            if now - noted >= NOTED_MIN_NS {
                noted = now;
                progress();
            }
        }
    });
    // A kernel that does not count has no such file.
    let _ = received(&is_open).unwrap();
}

/// The second number of a thread's `schedstat`.
fn ns_without_a_cpu(times: &File) -> u64 {
    let mut text = [0; 80];
    let length = times.read_at(&mut text, 0).expect("an open file of /proc");
    let text = std::str::from_utf8(&text[..length]).expect("numbers");
    text.split_whitespace().nth(1).expect("three numbers").parse().expect("a number")
}

// Catches: a tier that uses up the program's last files; one that detects no blocked worker when no
// file is left.
#[test]
fn without_files_sampling_takes_over() {
    let test = "without_files_sampling_takes_over";
    const FILES: u64 = 32;
    alone_with(test, in_events, || {
        let _watchdog = watchdog();
        if !can_observe(test) {
            return;
        }
        collect_reports();
        note_waits_for_a_cpu();
        limit(libc::RLIMIT_NOFILE, FILES);
        let theirs = take_files(FILES / 2);
        scenes_until("a file is refused", || !reported().is_empty());
        assert_reported("events", &["some workers are sampled", "Too many open files"]);
        let left = take_files(FILES);
        assert!(!left.is_empty(), "some files are left to the program");
        (0..20).for_each(|_| scene());
        drop((theirs, left));
        (0..20).for_each(|_| scene());
        assert_eq!(reported().len(), 1, "{:?}", reported());
    });
}

// Catches: a lack of files at the start that counts as a refusal by the system: a tier that detects
// nothing for the rest of the process's life.
#[test]
fn a_start_without_files_lowers_no_tier() {
    let test = "a_start_without_files_lowers_no_tier";
    const FILES: u64 = 64;
    let tiers = ["standby", "events", "sampling"];
    alone_each(test, VARIABLE, &tiers, VARIABLE, |tier| {
        let _watchdog = watchdog();
        if tier == "events" && !can_observe(test) {
            return;
        }
        collect_reports();
        limit(libc::RLIMIT_NOFILE, FILES);
        let all = take_files(FILES);
        let detection = uwork::dump().blocking;
        assert_eq!(detection.tier.to_string(), tier, "{}", detection.reason);
        drop(all);
        for (_, obstacle) in every_kind(BLOCKED) {
            are_replaced(&blocks(), obstacle, BLOCKED);
        }
        // A worker that began without a file may be sampled.
        let lower: Vec<_> = reported().into_iter().filter(|(named, _)| named != tier).collect();
        assert_eq!(lower, []);
    });
}

// Catches: a lack of files at the start that counts as a machine without pods, quota and limits.
#[test]
fn the_machine_is_known_without_a_free_descriptor() {
    alone("the_machine_is_known_without_a_free_descriptor", || {
        const FILES: u64 = 64;
        let known = Machine::read().unwrap();
        limit(libc::RLIMIT_NOFILE, FILES);
        let all = take_files(FILES);
        let found = Machine::read().unwrap();
        // As before Linux 5.9: no call makes an empty table of descriptors.
        refuse(libc::SYS_close_range, libc::ENOSYS);
        let found_in_a_copy = Machine::read().unwrap();
        drop(all);
        assert_eq!((&found, &found_in_a_copy), (&known, &known));
    });
}

/// Locks as much memory in ring buffers as this user may.
fn take_all_locked_memory() -> Vec<Event> {
    let mut events = Vec::new();
    for pages in [64, 16, 4, 1] {
        loop {
            let event = Event::open().expect("an event");
            match event.map(pages) {
                Ok(()) => events.push(event),
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => break,
                Err(error) => panic!("a ring of {pages} pages: {error}"),
            }
        }
    }
    events
}

// Catches: the limit of locked memory taken for a general refusal of records.
#[test]
fn without_locked_memory_sampling_takes_over() {
    let test = "without_locked_memory_sampling_takes_over";
    alone_with(test, in_events, || {
        let _watchdog = watchdog();
        become_nobody();
        limit(libc::RLIMIT_MEMLOCK, 0);
        if !can_observe(test) {
            return;
        }
        collect_reports();
        let taken = take_all_locked_memory();
        scenes_until("a ring is refused", || !reported().is_empty());
        assert_reported("events", &["some workers are sampled", "not permitted"]);
        (0..20).for_each(|_| scene());
        drop(taken);
        (0..20).for_each(|_| scene());
        assert_eq!(reported().len(), 1, "{:?}", reported());
    });
}

/// The calling thread, and those that it starts, have mounts of their own from here on.
fn own_mounts() -> Result<(), Error> {
    let (null, private) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: strings that end with a zero byte; the mounts belong to this thread after the first
    // call.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(null, c"/".as_ptr(), null, private, null.cast()) == 0
    };
    if done { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Mounts a file system over `/proc`, for threads with mounts of their own.
fn mount_over_proc(kind: &str, options: &str) -> Result<(), Error> {
    let [kind, options] = [kind, options].map(|text| CString::new(text).unwrap());
    let (fs, data) = (kind.as_ptr(), options.as_ptr().cast());
    // SAFETY: strings that end with a zero byte.
    let done = unsafe { libc::mount(fs, c"/proc".as_ptr(), fs, 0, data) } == 0;
    if done { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Mounts an empty directory over `/proc`, for the calling thread and those that it starts.
fn hide_proc() -> Result<(), Error> {
    own_mounts()?;
    mount_over_proc("tmpfs", "")
}

// Catches: a process that is taken for one without `/proc` because it sees no other processes there.
#[test]
fn a_proc_that_hides_other_processes_changes_nothing() {
    let test = "a_proc_that_hides_other_processes_changes_nothing";
    alone_each(test, "UWORK_TEST_WHEN", &["before", "later"], VARIABLE, |when| {
        let _watchdog = watchdog();
        collect_reports();
        let hide = || own_mounts().and_then(|()| mount_over_proc("proc", "hidepid=2"));
        // The library's threads have the mounts of their creator.
        if let Err(error) = hide() {
            return not_here(test, format!("no second /proc: {error}"));
        }
        let mut before = None;
        if when == "later" {
            scene();
            before = Some(uwork::dump().blocking.tier);
        }
        become_nobody();
        assert!(!std::fs::exists("/proc/1").unwrap(), "hidden");
        scene();
        for (_, obstacle) in every_kind(BLOCKED) {
            are_replaced(&blocks(), obstacle, BLOCKED);
        }
        assert!(before.is_none_or(|tier| tier == uwork::dump().blocking.tier));
        assert_ne!(uwork::dump().blocking.tier, BlockingTier::Declared);
        assert_eq!(reported(), []);
    });
}

// Catches: a number that stays open with each new `/proc`; a file on its device that is taken for the
// program's, so that workers are not replaced.
#[test]
fn a_new_proc_is_read_as_the_one_before() {
    let test = "a_new_proc_is_read_as_the_one_before";
    let tiers = ["standby", "events", "sampling"];
    alone_each(test, VARIABLE, &tiers, VARIABLE, |_| {
        let _watchdog = watchdog();
        if let Err(error) = own_mounts().and_then(|()| mount_over_proc("proc", "")) {
            return not_here(test, format!("no second /proc: {error}"));
        }
        collect_reports();
        scene();
        // Those that stay open have high numbers.
        let are_low = |numbers: Vec<i32>| numbers.iter().filter(|&&number| number < 256).count();
        let before = are_low(open_descriptors());
        for _ in 0..8 {
            mount_over_proc("proc", "").unwrap();
            scene();
        }
        until("no more numbers are open", || are_low(open_descriptors()) <= before);
        assert!(reported().is_empty(), "{:?}", reported());
    });
}

// Catches: a tier that is used although it cannot work, because the states of threads are
// unreadable.
#[test]
fn without_proc_the_tier_is_declared() {
    let test = "without_proc_the_tier_is_declared";
    alone_each(test, "UWORK_TEST_RECORDS", &["allowed", "refused"], VARIABLE, |records| {
        let _watchdog = watchdog();
        if let Err(error) = hide_proc() {
            return not_here(test, format!("no /proc without a /proc: {error}"));
        }
        assert!(!std::fs::exists("/proc/self").unwrap());
        collect_reports();
        if records == "refused" {
            refuse(libc::SYS_perf_event_open, libc::EPERM);
        }
        declare_and_are_replaced(&blocks(), BLOCKED);
        let refusals =
            ["standby is refused: /proc/self/task", "events is refused", "sampling is refused"];
        assert_reported("declared", &refusals);
    });
}
