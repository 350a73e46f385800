//! Why a process has no control socket, as far as /proc and the process itself say it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::process::geteuid;
use uwork::control::place::NOTE;

use crate::commands::process::apart::start_of;
use crate::peer::{NO_PROC, ended, is_alive, is_proc_ours};

/// The descriptors and threads of a process that are looked at, and the bytes of its environment. It may
/// have a million, and any number.
const LOOKED_AT_MAX: usize = 64 << 10;
const ENVIRONMENT_MAX: u64 = 1 << 20;

/// Why a process has no socket, as far as that is found out in time.
pub(crate) fn no_socket(process: u32, until: Instant) -> String {
    let proc = PathBuf::from(format!("/proc/{process}"));
    if !is_alive(process) {
        return ended(process);
    }
    let without = |reason: &str| format!("process {process} has no control socket here: {reason}");
    if !is_proc_ours() {
        return without(&format!("{NO_PROC}, to see the reason"));
    }
    let files = match fs::read_dir(proc.join("fd")) {
        Ok(files) => files,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let owner = fs::metadata(&proc).map_or(0, |found| found.uid());
            if owner == geteuid().as_raw() {
                return without("it has changed its user; root can see the reason");
            }
            return format!(
                "process {process} belongs to user {owner}; that user and root may look"
            );
        }
        Err(_) => return format!("there is no process {process}"),
    };
    // The process itself says why.
    let noted = files.flatten().take(LOOKED_AT_MAX).find_map(|file| {
        let link = fs::read_link(file.path()).ok()?;
        let name = link.to_str()?.strip_prefix("/memfd:")?.strip_prefix(NOTE)?;
        Some(name.trim_end_matches(" (deleted)").to_owned())
    });
    if let Some(reason) = noted {
        return without(&reason);
    }
    let path = format!("/proc/{process}/environ");
    let environment = start_of(process, &path, ENVIRONMENT_MAX, until);
    let mut variables = environment.iter().flat_map(|text| text.split(|&byte| byte == 0));
    if variables.any(|variable| variable == b"UWORK_CONTROL=0") {
        return without("it was started with UWORK_CONTROL=0");
    }
    if !uses_uwork(&proc) {
        return without("it does not use uwork, or has made no queue");
    }
    // The reasons below are true, but that variable may be set as well.
    let unread = environment.as_ref().err();
    let unread = unread.map_or(String::new(), |why| format!("; its environment {why}"));
    let differs = |link: &str| {
        let of = |process: &Path| fs::read_link(process.join(link)).ok();
        of(&proc) != of(Path::new("/proc/self"))
    };
    if differs("ns/mnt") || differs("root") {
        let below = ["run", "dev/shm", "tmp"].map(|place| proc.join("root").join(place));
        let [run, shm, tmp] = below.each_ref().map(|place| place.display());
        return without(&format!(
            "it sees other folders than this command, as in a container; look for a socket below \
             {run}, {shm} and {tmp}, and give its path instead of the number{unread}"
        ));
    }
    let own = environment.map_or(unread, |environment| {
        let own = variable_of(&environment, b"XDG_RUNTIME_DIR=");
        let own = own.map_or("none".to_owned(), |own| format!("{own:?}"));
        format!("; its XDG_RUNTIME_DIR is {own}")
    });
    without(&format!("none is in the folders that this command knows{own}"))
}

/// The value of a variable; `name` ends with `=`.
fn variable_of(environment: &[u8], name: &[u8]) -> Option<String> {
    let value = environment.split(|&byte| byte == 0).find_map(|it| it.strip_prefix(name))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Whether a thread of the library's exists.
fn uses_uwork(proc: &Path) -> bool {
    let threads = fs::read_dir(proc.join("task")).into_iter().flatten().flatten();
    let mut names =
        threads.take(LOOKED_AT_MAX).filter_map(|thread| fs::read(thread.path().join("comm")).ok());
    names.any(|name| name.starts_with(b"uw/"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    // Catches: a variable that is said to be unset, as the environment was not read in time.
    #[test]
    fn what_was_not_read_in_time_is_not_reported_as_missing() {
        // A process with a thread that is named as those of the library.
        let mut child = Command::new("sh")
            .args(["-c", "printf uw/0 >/proc/$$/comm && echo named && read end"])
            .env("XDG_RUNTIME_DIR", "/nowhere")
            .env_remove("UWORK_CONTROL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "named\n");
        let read = no_socket(child.id(), Instant::now() + Duration::from_secs(60));
        let late = no_socket(child.id(), Instant::now());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(read.ends_with("; its XDG_RUNTIME_DIR is \"/nowhere\""), "{read}");
        assert!(late.ends_with("; its environment was not read in time"), "{late}");
    }
}
