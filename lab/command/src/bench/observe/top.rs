//! The case `top`: `uwork top` in a pseudo-terminal, on a process with a thousand queues that floods
//! one of them.
//!
//! - `key`: from a key that sorts to the last byte of the changed screen.
//! - `refresh`: from the key that asks for new answers to the last byte of their screen: requests,
//!   answers, and the drawing.
//! - the CPU time of the command and of the thread that answers it, at two refreshes a second.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::super::UserError;
use super::super::measured::Measured;
use super::super::summary::Metric;

/// The queues of the process.
const QUEUES: usize = 1_000;
/// The interval of the command while its CPU time is measured, in seconds.
const INTERVAL: &str = "0.5";
/// The interval while keys are measured: longer than all of them take.
const INTERVAL_OF_KEYS: &str = "3600";
/// Keys of each kind.
const KEYS: usize = 20;
/// Hides the cursor, which ends each picture.
const PICTURE_END: &[u8] = b"\x1b[?25l";
/// The longest wait for output.
const WAIT: Duration = Duration::from_millis(20);
/// A picture that takes longer than this is an error.
const PATIENCE: Duration = Duration::from_secs(30);

const KEY_P50: Metric = Metric { name: "key_p50_ms", unit: "ms", title: "key p50 ms", decimals: 2 };
const KEY_MAX: Metric = Metric { name: "key_max_ms", unit: "ms", title: "key max ms", decimals: 2 };
const REFRESH_P50: Metric =
    Metric { name: "refresh_p50_ms", unit: "ms", title: "refresh p50 ms", decimals: 2 };
const REFRESH_MAX: Metric =
    Metric { name: "refresh_max_ms", unit: "ms", title: "refresh max ms", decimals: 2 };
const TOP_CPU: Metric =
    Metric { name: "top_cpu_percent", unit: "%", title: "top % of a CPU", decimals: 2 };
const SERVER_CPU: Metric =
    Metric { name: "server_cpu_percent", unit: "%", title: "server % of a CPU", decimals: 2 };

/// One sample; the CPU times are taken over so many seconds.
pub(super) fn measure(seconds: u64) -> Result<Measured, UserError> {
    let shown = Shown::start()?;
    let mut terminal = Terminal::start(&shown.process, INTERVAL)?;
    let (start, before) = (Instant::now(), cpu_of(&terminal, &shown)?);
    while start.elapsed() < Duration::from_secs(seconds) {
        terminal.read()?;
    }
    let (wall, after) = (start.elapsed().as_secs_f64(), cpu_of(&terminal, &shown)?);
    let percent = |from: f64, to: f64| (to - from) / wall * 100.0;
    drop(terminal);
    let mut terminal = Terminal::start(&shown.process, INTERVAL_OF_KEYS)?;
    let keys = times(&mut terminal, "s", 1)?;
    // The picture after the key is that of the old answers.
    let refreshes = times(&mut terminal, " ", 2)?;
    Ok(Measured::new(vec![
        (KEY_P50, keys.0),
        (KEY_MAX, keys.1),
        (REFRESH_P50, refreshes.0),
        (REFRESH_MAX, refreshes.1),
        (TOP_CPU, percent(before.0, after.0)),
        (SERVER_CPU, percent(before.1, after.1)),
    ]))
}

/// The median and the greatest time from this key to the last of its pictures, in milliseconds.
fn times(terminal: &mut Terminal, key: &str, pictures: usize) -> Result<(f64, f64), UserError> {
    let mut times = Vec::new();
    for _ in 0..KEYS {
        let start = Instant::now();
        terminal.ours.write_all(key.as_bytes()).map_err(failed("a key"))?;
        times.push(terminal.pictures(pictures)?.duration_since(start).as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[times.len() - 1]))
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> UserError + '_ {
    move |error| UserError(format!("case top: {what}: {error}"))
}

/// The process that is shown: this program with `--hold`.
struct Shown {
    child: Child,
    process: String,
}

impl Shown {
    fn start() -> Result<Shown, UserError> {
        let program = std::env::current_exe().map_err(failed("this program"))?;
        let mut child = Command::new(program)
            .args(["bench", "workqueue", &format!("--hold={QUEUES}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed("the process to be shown"))?;
        let output = child.stdout.take().expect("its standard output is a pipe");
        let process = child.id().to_string();
        let shown = Shown { child, process };
        // It has made its queues when it prints.
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(failed("the process to be shown"))?;
        let start = Instant::now();
        while !get(&shown.process)? {
            if start.elapsed() > PATIENCE {
                return Err(UserError("case top: the process has no control socket".to_owned()));
            }
        }
        Ok(shown)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command `uwork`, which is built beside this program.
fn command() -> Result<PathBuf, UserError> {
    let own = std::env::current_exe().map_err(failed("this program"))?;
    let path = own.with_file_name("uwork");
    path.exists().then_some(path).ok_or_else(|| {
        UserError("case top: `uwork` is not beside this program: make build".to_owned())
    })
}

/// Whether the process answers.
fn get(process: &str) -> Result<bool, UserError> {
    let outcome = Command::new(command()?).args(["get", process, "cpumask"]).output();
    Ok(outcome.map_err(failed("uwork get"))?.status.success())
}

/// `uwork top` in a pseudo-terminal.
struct Terminal {
    ours: File,
    child: Child,
    /// What was read last.
    text: Vec<u8>,
}

impl Terminal {
    /// Starts the command, and reads its first picture.
    fn start(process: &str, interval: &str) -> Result<Terminal, UserError> {
        let refused = |error: rustix::io::Errno| failed("a pseudo-terminal")(error.into());
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).map_err(refused)?;
        grantpt(&ours).map_err(refused)?;
        unlockpt(&ours).map_err(refused)?;
        let size = Winsize { ws_row: 50, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).map_err(refused)?;
        let path = ptsname(&ours, Vec::new()).map_err(refused)?;
        let path = path.to_string_lossy().into_owned();
        let theirs = File::options().read(true).write(true).open(path);
        let theirs = theirs.map_err(failed("a pseudo-terminal"))?;
        let end = || theirs.try_clone().map(Stdio::from).map_err(failed("a pseudo-terminal"));
        let child = Command::new(command()?)
            .args(["top", "-i", interval, process])
            .env("TERM", "xterm-256color")
            .stdin(end()?)
            .stdout(end()?)
            .stderr(end()?)
            .spawn()
            .map_err(failed("uwork top"))?;
        let mut terminal = Terminal { ours: ours.into(), child, text: Vec::new() };
        // It hides the cursor once before.
        terminal.pictures(2)?;
        Ok(terminal)
    }

    /// Reads what comes within [`WAIT`].
    fn read(&mut self) -> Result<(), UserError> {
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(WAIT.subsec_nanos()) };
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        let count = poll(&mut ready, Some(&time));
        self.text.clear();
        if count.map_err(|error| failed("the screen")(error.into()))? > 0 {
            let mut read = [0; 1 << 16];
            let count = self.ours.read(&mut read).map_err(failed("uwork top has ended"))?;
            self.text.extend_from_slice(&read[..count]);
        }
        Ok(())
    }

    /// Reads that many pictures. Returns when the end of the last one came.
    fn pictures(&mut self, count: usize) -> Result<Instant, UserError> {
        let start = Instant::now();
        let mut seen = Ends::default();
        while seen.count < count {
            if start.elapsed() > PATIENCE {
                return Err(UserError("case top: no picture comes".to_owned()));
            }
            self.read()?;
            seen.add(&self.text);
        }
        Ok(Instant::now())
    }
}

/// The ends of pictures in what was read.
#[derive(Default)]
struct Ends {
    count: usize,
    /// The bytes of the next end that were seen.
    matched: usize,
}

impl Ends {
    fn add(&mut self, text: &[u8]) {
        for &byte in text {
            // No byte but the first is an escape, so that a mismatch begins anew.
            self.matched = match byte == PICTURE_END[self.matched] {
                true => self.matched + 1,
                false => usize::from(byte == PICTURE_END[0]),
            };
            if self.matched == PICTURE_END.len() {
                (self.count, self.matched) = (self.count + 1, 0);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The CPU time so far, in seconds: of the command, and of the thread that answers it.
fn cpu_of(terminal: &Terminal, shown: &Shown) -> Result<(f64, f64), UserError> {
    let top = format!("/proc/{}", terminal.child.id());
    let tasks = format!("/proc/{}/task", shown.process);
    let threads = std::fs::read_dir(&tasks).map_err(failed("its threads"))?;
    let is_server = |path: &PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim_end() == "uw/control")
    };
    let mut threads = threads.flatten().map(|thread| thread.path());
    let server = threads.find(is_server);
    let server = server.ok_or_else(|| UserError("case top: no thread answers".to_owned()))?;
    Ok((seconds_in(Path::new(&top))?, seconds_in(&server)?))
}

/// User and system time in a `stat` file.
fn seconds_in(folder: &Path) -> Result<f64, UserError> {
    let text = std::fs::read_to_string(folder.join("stat")).map_err(failed("its CPU time"))?;
    // The name, in brackets, may have spaces. Fields 14 and 15.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_counts_once_its_end_was_read() {
        let mut ends = Ends::default();
        ends.add(b"\x1b[1mtext \x1b[?2");
        assert_eq!(ends.count, 0);
        ends.add(b"5l\x1b\x1b[?25l half of the next \x1b[?25h");
        assert_eq!(ends.count, 2);
    }
}
