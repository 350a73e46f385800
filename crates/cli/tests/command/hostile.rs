//! An adversary at the other end: a socket whose answers have the form of the protocol, more or less,
//! and whose content, length and pace are as bad as a seed makes them. Each command that looks into
//! a process ends, in its time, and writes only what a terminal shows.
//!
//! With `UWORK_HOSTILE_CPU_SECONDS` in the environment, as `ci/fuzz.sh` sets it, seeds from the clock
//! are tried until the commands and this process have used as much CPU time, and times are judged.

mod content;
mod elf;
mod of_a_user;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use content::{content, value};

use crate::guard::in_turns;
use crate::observed::WAIT_MAX;
use crate::process::command;
use crate::random::Random;

/// The CPU time for which adversaries are tried, in seconds.
const CPU_SECONDS: &str = "UWORK_HOSTILE_CPU_SECONDS";
/// The first seed, in place of one from the clock.
const SEED: &str = "UWORK_HOSTILE_SEED";
/// The seeds of the short test.
const SEEDS: std::ops::Range<u64> = 0..48;
/// How many are tried at the same time: most of them wait.
const AT_ONCE: usize = 12;
/// The same in a long run.
const AT_ONCE_LONG: usize = 24;
/// The limit of a round of requests, in a run that judges times.
const ROUND_MAX: Duration = Duration::from_secs(2);

/// Sends an answer in a bad form or at a bad pace. False: the connection is to be closed.
fn answer(random: &mut Random, stream: &UnixStream, request: &str) -> io::Result<bool> {
    let text = content(random, request);
    let right = [format!("ok {}\n", text.len()).as_bytes(), &text].concat();
    let mut to = stream;
    match random.below(24) {
        0 => to.write_all(format!("ok {}\n", text.len() + 1).as_bytes()).map(|()| true),
        1 => to.write_all(&[b"ok 1\n", &text[..]].concat()).map(|()| true),
        2 => to.write_all(b"ok 18446744073709551615\n").map(|()| true),
        3 => to
            .write_all(&[b"err ", &value(random)[..], b" ", &value(random), b"\n"].concat())
            .map(|()| true),
        4 => to.write_all(&[&value(random)[..], b"\n"].concat()).map(|()| true),
        5 => to.write_all(&[&right[..], &right].concat()).map(|()| true),
        6 => to.write_all(&right[..right.len() / 2]).map(|()| false),
        7 => Ok(false),
        // Silence.
        8 => Ok(true),
        9 => trickle(stream, &right, Duration::from_millis(random.below(400))).map(|()| true),
        10 => trickle(stream, &vec![b'x'; 1 << 20], Duration::ZERO).map(|()| true),
        _ => to.write_all(&right).map(|()| true),
    }
}

/// Sends byte by byte. Ends with the other end.
fn trickle(mut stream: &UnixStream, bytes: &[u8], pause: Duration) -> io::Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte])?;
        if !pause.is_zero() {
            thread::park_timeout(pause);
        }
    }
    Ok(())
}

fn greet(random: &mut Random, mut stream: &UnixStream) -> io::Result<()> {
    let own = std::process::id();
    match random.below(24) {
        0 => stream.write_all(&[&value(random)[..], b"\n"].concat()),
        1 => stream.write_all(b"uwork-control 1 1\n"),
        2 => stream.write_all(&[b"err refused ", &value(random)[..], b"\n"].concat()),
        3 => stream.write_all(b"uwork-control 18446744073709551615\n"),
        // Silence.
        4 => Ok(()),
        5 => trickle(stream, b"uwork-control 1 ", Duration::from_millis(150)),
        6 => stream.write_all(&vec![b'u'; 1 << 20]),
        _ => writeln!(stream, "uwork-control 1 {own}"),
    }
}

/// Shuts a listener down when it is dropped, also where a test fails: the end of its scope waits for the
/// thread that serves.
struct ShutOnDrop<'a>(&'a UnixListener);

impl Drop for ShutOnDrop<'_> {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(self.0, rustix::net::Shutdown::Both);
    }
}

/// Serves all clients, one after the other or at once, until the listener is shut down.
fn serve(listener: &UnixListener, seed: u64) {
    thread::scope(|scope| {
        let mut number = 0;
        for stream in listener.incoming().map_while(Result::ok) {
            number += 1;
            let mut random = Random::new(seed.wrapping_mul(1_000).wrapping_add(number));
            scope.spawn(move || {
                let converse = || {
                    greet(&mut random, &stream)?;
                    for request in BufReader::new(&stream).lines() {
                        if !answer(&mut random, &stream, &request?)? {
                            break;
                        }
                    }
                    Ok::<(), io::Error>(())
                };
                // The client leaves when it has seen enough.
                let _ = { converse }();
            });
        }
    });
}

/// What a command has done.
struct Outcome {
    args: Vec<String>,
    status: ExitStatus,
    output: Vec<u8>,
    /// Less the time for which it had no CPU.
    took: Duration,
    /// The time that it may take.
    most: Duration,
}

/// The arguments of a command, how many rounds of requests it has, and how much time of its own.
type Chosen = (Vec<String>, u32, Duration);

/// A command of the seed against the socket of a process.
fn chosen(random: &mut Random, folder: &Path, socket: &str, process: u32) -> Chosen {
    let process = if random.one_in(2) { socket.to_owned() } else { process.to_string() };
    let process = process.as_str();
    let trace = folder.join("trace.json").display().to_string();
    let (args, rounds, own): (&[&str], u32, u64) = match random.below(20) {
        0 | 1 => (&["ls"], 1, 0),
        2 => (&["ls", process], 1, 0),
        3 => (&["ls", process, "devices/log"], 1, 0),
        4 => (&["get", process, "devices/log/max_active"], 1, 0),
        5 => (&["get", "--describe", process, "devices/log/max_active"], 1, 0),
        6 => (&["set", process, "devices/log/max_active", "1"], 1, 0),
        7 => (&["dump", process], 1, 0),
        8 => (&["dump", "--json", process], 1, 0),
        9 => (&["dump", "--stacks", process], 1, 0),
        10 => (&["monitor", "-i", "0.05", "-c", "2", process], 2, 50),
        11 => (&["top", "-i", "0.05", process], 2, 50),
        12 => (&["trace", "-s", "1", "-o", &trace, process], 1, 1_000),
        13 => (&["doctor", process], 1, 0),
        14 => (&["ls", "--json"], 1, 0),
        15 => (&["ls", "--json", process], 1, 0),
        16 => (&["get", "--json", process, "devices/log/max_active"], 1, 0),
        17 => (&["monitor", "--json", "-i", "0.05", "-c", "2", process], 2, 50),
        18 => (&["doctor", "--json", process], 1, 0),
        _ => (&["doctor"], 1, 0),
    };
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    (args, rounds, Duration::from_millis(own))
}

/// How often a command is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What the machine takes from a command: the time for which each of its threads had no CPU, and the
/// longest time for which this thread woke late. The last look at a thread of the command may be as
/// old as that.
#[derive(Default)]
struct Delays(HashMap<String, Duration>, Duration);

impl Delays {
    /// To be called while the command, or its zombie, exists.
    fn read(&mut self, child: &Child) {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id()));
        for task in tasks.into_iter().flatten().flatten() {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let delay = text.split(' ').nth(1).and_then(|delay| delay.parse().ok()).unwrap_or(0);
            let thread = task.file_name().to_string_lossy().into_owned();
            self.0.insert(thread, Duration::from_nanos(delay));
        }
    }

    /// Waits until the next look.
    fn wait(&mut self) {
        let start = Instant::now();
        thread::park_timeout(LOOK);
        self.1 = self.1.max(start.elapsed().saturating_sub(LOOK));
    }

    /// Its threads wait for each other.
    fn all(&self) -> Duration {
        self.0.values().sum::<Duration>() + self.1
    }
}

/// Waits for the end of a command, as long as it is no hang.
fn ended(child: &mut Child) -> (ExitStatus, Duration) {
    let mut delays = Delays::default();
    let status = in_turns(WAIT_MAX, |_| {
        // A zombie has its times until it is waited for.
        delays.read(child);
        delays.wait();
        child.try_wait().unwrap()
    });
    let status = status.unwrap_or_else(|hang| {
        let _ = child.kill();
        panic!("{hang}")
    });
    (status, delays.all())
}

/// Runs the command of a seed against its adversary.
fn run(seed: u64) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("uwork");
    fs::create_dir(&sockets).unwrap();
    let path = sockets.join(format!("{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let mut random = Random::new(seed);
    // A stopped process accepts no connection, and the backlog of its socket is full.
    let is_stopped = random.one_in(24);
    let clients: Vec<UnixStream> = if is_stopped {
        rustix::net::listen(&listener, 0).unwrap();
        vec![UnixStream::connect(&path).unwrap()]
    } else {
        Vec::new()
    };
    thread::scope(|scope| {
        let _end = ShutOnDrop(&listener);
        if !is_stopped {
            scope.spawn(|| serve(&listener, seed));
        }
        let own = std::process::id();
        let chosen = chosen(&mut random, folder.path(), path.to_str().unwrap(), own);
        let args: Vec<&str> = chosen.0.iter().map(String::as_str).collect();
        let mut command = command(&args);
        command.env("XDG_RUNTIME_DIR", folder.path());
        let outcome = tried(&mut random, command, chosen, folder.path());
        drop(clients);
        outcome
    })
}

/// Runs a command, which may write its output to the folder.
fn tried(
    random: &mut Random,
    mut command: std::process::Command,
    (args, rounds, own): Chosen,
    folder: &Path,
) -> Outcome {
    let most = ROUND_MAX * rounds + own;
    command.stdin(Stdio::null());
    let (status, output, took) = if args[0] == "top" && random.one_in(2) {
        on_a_screen(command)
    } else {
        let path = folder.join("output");
        let output = File::create(&path).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        let start = Instant::now();
        let (status, delayed) = ended(&mut command.spawn().unwrap());
        let took = start.elapsed().saturating_sub(delayed);
        (status, fs::read(path).unwrap(), took)
    };
    Outcome { args, status, output, took, most }
}

/// Runs `uwork top` in a terminal until keys have ended it.
fn on_a_screen(mut command: std::process::Command) -> (ExitStatus, Vec<u8>, Duration) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    let end = || Stdio::from(theirs.try_clone().unwrap());
    command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
    let mut child = command.spawn().unwrap();
    drop((command, theirs));
    ioctl_fionbio(&ours, true).unwrap();
    let mut ours = File::from(ours);
    let mut output = Vec::new();
    // A change of an attribute among them. The key that ends it is repeated.
    let mut keys: Vec<&[u8]> = vec![b"enice 1\r", b"\t ", b"s"];
    let mut read = |output: &mut Vec<u8>, most: u64| {
        let time = Timespec { tv_sec: 0, tv_nsec: most.cast_signed() * 1_000_000 };
        let _ = poll(&mut [PollFd::new(&ours, PollFlags::IN)], Some(&time));
        let mut bytes = [0; 4096];
        if let Ok(count) = ours.read(&mut bytes) {
            output.extend_from_slice(&bytes[..count]);
        }
        if let Some(keys) = keys.pop() {
            let _ = ours.write_all(keys);
        } else {
            // Ctrl-C: other keys may be typed into an input.
            let _ = ours.write_all(b"\x03");
        }
    };
    let start = Instant::now();
    let mut delays = Delays::default();
    let status = in_turns(WAIT_MAX, |_| {
        delays.read(&child);
        read(&mut output, 100);
        child.try_wait().unwrap()
    });
    let status = status.unwrap_or_else(|hang| {
        let _ = child.kill();
        panic!("{hang}")
    });
    let took = start.elapsed().saturating_sub(delays.all());
    (0..20).for_each(|_| read(&mut output, 0));
    (status, without_drawing(&output), took)
}

/// The output of a full screen without the sequences that draw it.
fn without_drawing(output: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    let mut bytes = output.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == 0x1b && bytes.next_if_eq(&b'[').is_some() {
            while bytes.next_if(|byte| matches!(byte, 0x20..=0x3f)).is_some() {}
            match bytes.next() {
                Some(b'A'..=b'H' | b'J' | b'K' | b'd' | b'h' | b'l' | b'm') | None => {}
                Some(other) => rest.extend([0x1b, b'[', other]),
            }
        } else if byte != b'\r' {
            rest.push(byte);
        }
    }
    rest
}

/// Why the output must not reach a terminal.
fn unprintable(output: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(output) {
        Ok(text) => text,
        // The end of a screen may be cut within a character.
        Err(error) if error.error_len().is_none() && error.valid_up_to() + 4 > output.len() => "",
        Err(error) => return Some(format!("no UTF-8: {error}")),
    };
    let is_obeyed = |c: char| {
        let is_format = matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}')
            || matches!(c, '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}')
            || matches!(c, '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}')
            || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
            || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}'..='\u{ffff}')
            || c >= '\u{e0000}';
        c.is_control() && c != '\n' && c != '\t' || is_format
    };
    let marks = "\u{301}".repeat(9);
    let many = text.contains(&marks).then(|| format!("has {marks:?}"));
    text.chars().find(|&c| is_obeyed(c)).map(|c| format!("has {c:?}")).or(many)
}

/// What is wrong with an outcome.
fn fault(outcome: &Outcome, judges_time: bool) -> Option<String> {
    let Outcome { args, status, output, took, most } = outcome;
    match status.code() {
        Some(0..=2) => {}
        _ => return Some(format!("{status}, signal {:?}", status.signal())),
    }
    if judges_time && took > most {
        return Some(format!("took {took:?} of {most:?}"));
    }
    if args.iter().any(|arg| arg == "--json") {
        let text = String::from_utf8_lossy(output);
        let of_errors = |line: &&str| !line.starts_with("uwork: ");
        let wrong = text.lines().filter(of_errors).find(|line| !is_object(line));
        if let Some(line) = wrong {
            return Some(format!("no object: {line:?}"));
        }
    }
    if let Some(line) = forged(args, &String::from_utf8_lossy(output)) {
        return Some(format!("a line of another form: {line:?}"));
    }
    unprintable(output)
}

/// A line that has none of the forms of a list's, so that text of the adversary may have added it.
fn forged<'a>(args: &[String], output: &'a str) -> Option<&'a str> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let own = std::process::id().to_string();
    // Other tests have processes too, in the folders of users. The adversary names process 1 only.
    let is_other = |number: &str| number != "1" && number.parse::<u32>().is_ok();
    let is_of_others = |number: &str, line: &str| {
        let socket = line.split_whitespace().next_back().unwrap_or_default();
        let places = ["/run", "/dev/shm", "/tmp"];
        is_other(number) && places.iter().any(|at| socket.starts_with(&format!("{at}/uwork-")))
    };
    let is_of_list = |line: &str| {
        let first = line.split_whitespace().next();
        first.is_some_and(|first| first == "PID" || first == own || is_of_others(first, line))
    };
    let is_of_doctor = |line: &str| {
        let marks = ["  ok    ", "  LOOK  ", "  ??    ", "      "];
        let is_title = line == "this machine" || line.is_empty() || line.starts_with("no process ");
        let is_process = line
            .strip_prefix("process ")
            .is_some_and(|it| it == own || it.contains('/') || is_other(it));
        is_title || is_process || marks.iter().any(|mark| line.starts_with(mark))
    };
    let mut lines = output.lines().filter(|line| !line.starts_with("uwork: "));
    match args[..] {
        ["ls"] => lines.find(|line| !is_of_list(line)),
        ["doctor"] | ["doctor", _] if args.last() != Some(&"--json") => {
            lines.find(|line| !is_of_doctor(line))
        }
        _ => None,
    }
}

fn is_object(line: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(line).is_ok_and(|value| value.is_object())
}

/// The CPU time of this process and of the commands.
fn cpu() -> Duration {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|of| {
            // SAFETY: zeros are a valid value.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: the structure is live.
            unsafe { libc::getrusage(of, &raw mut usage) };
            let time = |time: libc::timeval| {
                Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000)
            };
            time(usage.ru_utime) + time(usage.ru_stime)
        })
        .sum()
}

#[test]
fn each_command_ends_beside_an_adversary_and_writes_plain_text() {
    let _files = elf::Files;
    elf::are_read();
    let wanted = std::env::var(CPU_SECONDS).ok().map(|text| text.parse::<u64>().unwrap());
    let from_clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let (first, seeds) = match wanted {
        None => (SEEDS.start, SEEDS.end - SEEDS.start),
        Some(_) => {
            (std::env::var(SEED).map_or_else(|_| from_clock(), |it| it.parse().unwrap()), u64::MAX)
        }
    };
    let (next, longest) = (AtomicU64::new(0), AtomicU64::new(0));
    let (faults, start) = (Mutex::new(Vec::new()), Instant::now());
    let try_seeds = || {
        while wanted.is_none_or(|wanted| cpu() < Duration::from_secs(wanted)) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= seeds {
                break;
            }
            let seed = first.wrapping_add(number);
            let outcome = run(seed);
            // The rest of a round that waits is the deadline's.
            let over = outcome.took.saturating_sub(outcome.most.saturating_sub(ROUND_MAX));
            longest.fetch_max(over.as_millis() as u64, Ordering::Relaxed);
            if let Some(fault) = fault(&outcome, wanted.is_some()) {
                let start = &outcome.output[..outcome.output.len().min(2_000)];
                let fault =
                    format!("seed {seed}: {:?}: {fault}\n  {}", outcome.args, start.escape_ascii());
                println!("{fault}");
                faults.lock().unwrap().push(fault);
            }
        }
    };
    let at_once = if wanted.is_some() { AT_ONCE_LONG } else { AT_ONCE };
    thread::scope(|scope| (0..at_once).for_each(|_| drop(scope.spawn(try_seeds))));
    let (tried, cpu, wall) = (next.into_inner(), cpu().as_secs(), start.elapsed().as_secs());
    let (faults, longest) = (faults.into_inner().unwrap(), longest.into_inner());
    println!(
        "{tried} adversaries from seed {first}: {} faults, {cpu} s of CPU time in {wall} s, the \
         longest round took {longest} ms",
        faults.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
