//! The limits of a process, as far as they bound what uwork does in it: threads, descriptors, locked
//! memory, pending signals.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::Finding;
use crate::peer::read_text;

/// With fewer threads, descriptors or signals than this left, a process is warned of.
const LEFT_MIN: u64 = 64;
/// The same for bytes of pinned memory.
const PINNED_LEFT_MIN: u64 = 64 << 10;

/// The most descriptors that are counted where the kernel does not say their number.
const COUNTED_MAX: usize = 64 << 10;

/// How long processes are read for the threads of their users, and how many of them in any case: a large
/// machine has tens of thousands.
const PROCESSES_TIME: Duration = Duration::from_millis(200);
const PROCESSES_MIN: usize = 4096;

/// A limit, and how much of it is used.
struct Limit {
    what: &'static str,
    used: u64,
    /// None: unlimited.
    most: Option<u64>,
    left_min: u64,
    remedy: &'static str,
}

impl Limit {
    fn is_near(&self) -> bool {
        self.most.is_some_and(|most| most.saturating_sub(self.used) < self.left_min)
    }

    fn text(&self) -> String {
        let most = self.most.map_or("unlimited".to_owned(), |most| most.to_string());
        format!("{} {} of {most}", self.what, self.used)
    }
}

/// A finding for each limit that is near, and one for all others.
pub(super) fn findings(process: u32) -> Vec<Finding> {
    let read = |file: &str| {
        let path = format!("/proc/{process}/{file}");
        read_text(&path).map_err(|error| unseen(format!("{path}: {error}")))
    };
    let both = read("limits").and_then(|limits| Ok((limits, read("status")?)));
    let (limits, status) = match both {
        Ok(both) => both,
        Err(unseen) => return vec![unseen],
    };
    let (mut all, unknown) = of_process(&limits, &status, &Used::by(process, &status));
    let of_group = read("cgroup").and_then(|groups| {
        pids_max(&groups, &in_group).map_err(|why| unseen(format!("pids.max: {why}")))
    });
    let unseen_group = match of_group {
        Ok(limit) => {
            all.extend(limit);
            None
        }
        Err(unseen) => Some(unseen),
    };
    let mut findings = judged(&all);
    findings.extend(unseen_group);
    if !unknown.is_empty() {
        let why = threads_of_users().err().map_or(String::new(), |why| format!("; {why}"));
        findings.push(unseen(format!("how much is used of {}{why}", unknown.join(", "))));
    }
    findings
}

/// Limits that could not be read, and why.
fn unseen(what: String) -> Finding {
    Finding::unseen(
        format!("limits were not read: {what}"),
        "run it as the process's user or as root, with /proc mounted",
    )
}

fn judged(all: &[Limit]) -> Vec<Finding> {
    let (near, far): (Vec<&Limit>, Vec<&Limit>) = all.iter().partition(|limit| limit.is_near());
    let bad = near
        .iter()
        .map(|limit| Finding::bad(format!("a limit is near: {}", limit.text()), limit.remedy));
    let mut findings: Vec<Finding> = bad.collect();
    if !far.is_empty() {
        let texts: Vec<String> = far.iter().map(|limit| limit.text()).collect();
        findings.push(Finding::good(texts.join(", ")));
    }
    findings
}

/// What the files about one process do not say.
struct Used {
    /// The threads of all processes of its user, which RLIMIT_NPROC counts.
    threads_of_user: Option<u64>,
    descriptors: Option<u64>,
}

impl Used {
    fn by(process: u32, status: &str) -> Used {
        let user = line(status, "Uid:");
        let threads = user.zip(threads_of_users().ok()).map(|(user, of_all)| of_all.get(user));
        Used {
            threads_of_user: threads.map(|threads| threads.copied().unwrap_or(0)),
            descriptors: entries_of(&format!("/proc/{process}/fd"), COUNTED_MAX),
        }
    }
}

/// The number of descriptors in a folder of /proc: its size since Linux 6.2. A process may have a million:
/// more than `most` are not counted.
fn entries_of(folder: &str, most: usize) -> Option<u64> {
    let entries = fs::read_dir(folder).ok()?;
    let known = fs::metadata(folder).map_or(0, |found| found.len());
    match known {
        0 => {
            Some(entries.take(most + 1).count()).filter(|&count| count <= most).map(|it| it as u64)
        }
        known => Some(known),
    }
}

/// Threads, by their users.
type Threads = HashMap<String, u64>;

/// The threads of all processes, by their users. Read once, for all processes that are looked at.
///
/// # Errors
/// Why they are not known.
fn threads_of_users() -> Result<&'static Threads, &'static str> {
    static OF_USERS: OnceLock<Result<Threads, String>> = OnceLock::new();
    let read = || threads_in("/proc", PROCESSES_MIN, Instant::now() + PROCESSES_TIME);
    OF_USERS.get_or_init(read).as_ref().map_err(String::as_str)
}

/// The same of the processes in a folder. After `until`, more than `least` are not read.
fn threads_in(folder: &str, least: usize, until: Instant) -> Result<Threads, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{folder}: {error}"))?;
    let names = entries.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    let mut of_users = HashMap::new();
    for (count, number) in numbers.enumerate() {
        if count >= least && Instant::now() >= until {
            return Err(format!("{folder} has more processes than were read in time"));
        }
        let Ok(status) = read_text(&format!("{folder}/{number}/status")) else { continue };
        if let Some(user) = line(&status, "Uid:") {
            let threads = number_in(&status, "Threads:").unwrap_or(0);
            *of_users.entry(user.to_owned()).or_default() += threads;
        }
    }
    Ok(of_users)
}

/// The first word behind a title: of `Uid:`, the real user.
fn line<'a>(text: &'a str, title: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(title))?;
    line.split_whitespace().next()
}

fn number_in(text: &str, title: &str) -> Option<u64> {
    line(text, title)?.parse().ok()
}

/// The limits in /proc/PID/limits, and those of which it is unknown how much is used.
fn of_process(limits: &str, status: &str, used: &Used) -> (Vec<Limit>, Vec<&'static str>) {
    // `SigQ: used/limit`, for all processes of the user.
    let signals = line(status, "SigQ:").and_then(|both| both.split('/').next()?.parse().ok());
    // The kernel counts the pages of the records of context switches as pinned.
    let pinned = number_in(status, "VmPin:").map(|kib| kib << 10);
    type Kind = (&'static str, &'static str, Option<u64>, u64, &'static str);
    let kinds: [Kind; 4] = [
        (
            "Max processes",
            "threads of the user (RLIMIT_NPROC)",
            used.threads_of_user,
            LEFT_MIN,
            "raise it: ulimit -u, or LimitNPROC of the service; without threads, waiting items delay others",
        ),
        (
            "Max open files",
            "descriptors (RLIMIT_NOFILE)",
            used.descriptors,
            LEFT_MIN,
            "raise it: ulimit -n, or LimitNOFILE of the service; the tier events takes one for a thread",
        ),
        (
            "Max locked memory",
            "pinned bytes (RLIMIT_MEMLOCK)",
            pinned,
            PINNED_LEFT_MIN,
            "raise it: ulimit -l, or LimitMEMLOCK of the service; the tier events locks two pages for a thread",
        ),
        (
            "Max pending signals",
            "pending signals of the user (RLIMIT_SIGPENDING)",
            signals,
            LEFT_MIN,
            "raise it: ulimit -i, or LimitSIGPENDING of the service; clients of this socket wait without them",
        ),
    ];
    let limit = |(title, what, used, left_min, remedy): Kind| {
        let soft = line(limits, title).ok_or(what)?;
        let most = if soft == "unlimited" { None } else { Some(soft.parse().map_err(|_| what)?) };
        Ok(Limit { what, used: used.ok_or(what)?, most, left_min, remedy })
    };
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for kind in kinds {
        match limit(kind) {
            Ok(limit) => known.push(limit),
            Err(what) => unknown.push(what),
        }
    }
    (known, unknown)
}

/// A file of a control group. None: the group has no such file, which limits nothing.
fn in_group(folder: &str, name: &str) -> Result<Option<String>, String> {
    match read_text(&format!("{folder}/{name}")) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new(folder).is_dir() => {
            Ok(None)
        }
        Err(error) => Err(format!("{folder}/{name}: {error}")),
    }
}

/// Reads a file of a folder.
type Read = dyn Fn(&str, &str) -> Result<Option<String>, String>;

/// The tightest `pids.max` of the process's control groups, from /proc/PID/cgroup. None: there is no
/// limit, and it is not known how many threads there are. An error: why it is not known.
fn pids_max(groups: &str, read: &Read) -> Result<Option<Limit>, String> {
    // `NUMBER:CONTROLLERS:PATH`. Version 2 has no controllers here.
    let folder = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next()?, fields.next()?) {
            ("", path) => Some(("/sys/fs/cgroup", path)),
            (names, path) if names.split(',').any(|name| name == "pids") => {
                Some(("/sys/fs/cgroup/pids", path))
            }
            _ => None,
        }
    });
    let Some((root, path)) = folder else { return Ok(None) };
    if path.split('/').any(|name| name == "..") {
        return Err(format!("{path} is a control group outside of this namespace"));
    }
    let above = std::iter::successors(Some(path.trim_end_matches('/')), |path| {
        path.rfind('/').map(|end| &path[..end])
    });
    let mut tightest: Option<(Option<u64>, u64)> = None;
    for path in above {
        let folder = format!("{root}{path}");
        let both = (read(&folder, "pids.max")?, read(&folder, "pids.current")?);
        let (Some(most), Some(used)) = both else { continue };
        let number = |text: &str| {
            text.trim().parse::<u64>().map_err(|_| format!("{folder}: '{}'", text.trim()))
        };
        let most = if most.trim() == "max" { None } else { Some(number(&most)?) };
        let limit = (most, number(&used)?);
        let left =
            |(most, used): (Option<u64>, u64)| most.map_or(u64::MAX, |it| it.saturating_sub(used));
        if tightest.is_none_or(|tightest| left(limit) < left(tightest)) {
            tightest = Some(limit);
        }
    }
    Ok(tightest.map(|(most, used)| Limit {
        what: "threads of the control group (pids.max)",
        used,
        most,
        left_min: LEFT_MIN,
        remedy: "raise pids.max of the group, or TasksMax of the service",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process::doctor::Seen;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max processes             100                  200                  processes
Max open files            unlimited            unlimited            files
Max locked memory         65536                65536                bytes
Max pending signals       500                  500                  signals
";
    const STATUS: &str =
        "Uid:\t7\t8\t7\t7\nVmLck:\t      64 kB\nVmPin:\t       4 kB\nThreads:\t3\nSigQ:\t12/500\n";

    #[test]
    fn each_limit_is_compared_with_what_it_counts() {
        let used = Used { threads_of_user: Some(30), descriptors: Some(9) };
        let texts = |used| {
            let findings = judged(&of_process(LIMITS, STATUS, used).0);
            findings.into_iter().map(|it| (it.seen == Seen::Good, it.what)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(&used),
            [
                (false, "a limit is near: pinned bytes (RLIMIT_MEMLOCK) 4096 of 65536".to_owned()),
                (
                    true,
                    "threads of the user (RLIMIT_NPROC) 30 of 100, \
                     descriptors (RLIMIT_NOFILE) 9 of unlimited, \
                     pending signals of the user (RLIMIT_SIGPENDING) 12 of 500"
                        .to_owned()
                ),
            ]
        );
        let many = texts(&Used { threads_of_user: Some(37), descriptors: None });
        assert!(many[0].1.contains("RLIMIT_NPROC) 37 of 100") && !many[0].0, "{many:?}");
        assert!(!many.iter().any(|(_, text)| text.contains("NOFILE")), "unknown");
        let none = Used { threads_of_user: Some(37), descriptors: None };
        assert_eq!(of_process(LIMITS, STATUS, &none).1, ["descriptors (RLIMIT_NOFILE)"]);
    }

    #[test]
    fn the_tightest_group_counts() {
        let read = |folder: &str, name: &str| {
            let text = match &*format!("{folder}/{name}") {
                "/sys/fs/cgroup/a/b/pids.max" | "/sys/fs/cgroup/pids/pids.max" => "max",
                "/sys/fs/cgroup/a/pids.max" | "/sys/fs/cgroup/pids/x/pids.max" => "50",
                "/sys/fs/cgroup/pids.max" => "1000",
                "/sys/fs/cgroup/a/pids.current" => "20",
                _ => "30",
            };
            Ok(Some(format!("{text}\n")))
        };
        let of = |groups| pids_max(groups, &read).unwrap().map(|limit| (limit.used, limit.most));
        assert_eq!(of("0::/a/b\n"), Some((20, Some(50))));
        assert_eq!(of("9:cpu,pids:/x\n"), Some((30, Some(50))));
        assert_eq!(of("9:cpu:/x\n"), None);
    }

    // Catches: a limit that could not be read, and of which nothing is said.
    #[test]
    fn a_group_that_cannot_be_read_is_said() {
        let of = |groups, read: &Read| pids_max(groups, read).map(|limit| limit.map(|it| it.most));
        let error = |groups, read: &Read| of(groups, read).unwrap_err();
        assert_eq!(of("0::/\n", &|_, _| Ok(None)), Ok(None), "the first group has no limit");
        let unlimited =
            |_: &str, name: &str| Ok(Some(name.replace("pids.current", "7").replace("pids.", "")));
        assert_eq!(of("0::/a\n", &unlimited), Ok(Some(None)));
        assert_eq!(
            error("0::/a\n", &|folder, _| Err(format!("{folder}: refused"))),
            "/sys/fs/cgroup/a: refused"
        );
        assert!(error("0::/../b\n", &unlimited).contains("/../b is a control group outside"));
        assert!(error("0::/a\n", &|_, _| Ok(Some("many".to_owned()))).contains("'many'"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        assert_eq!(in_group(path, "pids.max"), Ok(None));
        assert!(
            in_group(&format!("{path}/none"), "pids.max").unwrap_err().contains("none/pids.max: ")
        );
    }

    // Catches: a look that ends late, as the machine has tens of thousands of processes.
    #[test]
    fn threads_are_counted_as_far_as_it_takes_little_time() {
        let folder = tempfile::tempdir().unwrap();
        for (number, user) in [("1", "7"), ("2", "8"), ("30", "7"), ("self", "7")] {
            let process = folder.path().join(number);
            fs::create_dir(&process).unwrap();
            fs::write(process.join("status"), format!("Uid:\t{user}\t9\nThreads:\t5\n")).unwrap();
        }
        let path = folder.path().to_str().unwrap();
        let past = Instant::now();
        let all = threads_in(path, 3, past).unwrap();
        assert_eq!((all["7"], all["8"], all.len()), (10, 5, 2));
        let why = threads_in(path, 2, past).unwrap_err();
        assert!(why.ends_with("has more processes than were read in time"), "{why}");
        assert!(threads_in(path, 0, past + Duration::from_secs(600)).is_ok());
        assert!(threads_in("/nowhere", 3, past).is_err());
    }

    #[test]
    fn descriptors_are_counted_as_far_as_it_takes_little_time() {
        let folder = tempfile::tempdir().unwrap();
        let own = entries_of("/proc/self/fd", COUNTED_MAX);
        assert!(own.is_some_and(|count| count >= 3), "{own:?}");
        // The size of another folder is another number.
        assert!(entries_of(folder.path().join("none").to_str().unwrap(), 7).is_none());
        let is_counted = fs::metadata("/proc/self/fd").unwrap().len() == 0;
        assert_eq!(entries_of("/proc/self/fd", 2).is_none(), is_counted);
    }
}
