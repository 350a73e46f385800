//! The end, the replacement, the stop and a change of the user of a process in which four items sleep
//! and two compute, beside busy processes. The system does each of these only after every thread of
//! the process has run once.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uwork_rivals::long_items;

use super::{Case, Order, start};
use crate::UserError;
use crate::bench::burner::{self, Burner};
use crate::bench::measured::{Figures, again};
use crate::bench::summary::Metric;
use crate::bench::uwork_pool;

/// Beside two busy loops, and beside six.
pub(super) const CASES: [Case; 2] = [case("beside-2"), case("beside-6")];

const fn case(name: &'static str) -> Case {
    Case {
        name,
        about: "the end, execve, SIGSTOP and setresuid of a process with items, beside busy loops",
        runners: &[
            uwork_pool::RUNNER,
            long_items::RUNNERS[0],
            long_items::RUNNERS[1],
            long_items::RUNNERS[2],
        ],
        metrics: &[EXIT[0], EXIT[1], EXEC[0], EXEC[1], STOP[0], STOP[1], SETUID[0], SETUID[1]],
        sample: take_sample,
    }
}

/// The median of the fifty runs of a sample, and the longest.
const EXIT: [Metric; 2] = both("exit_p50_ms", "exit_most_ms");
const EXEC: [Metric; 2] = both("exec_p50_ms", "exec_most_ms");
const STOP: [Metric; 2] = both("stop_p50_ms", "stop_most_ms");
const SETUID: [Metric; 2] = both("setuid_p50_ms", "setuid_most_ms");

const fn both(p50: &'static str, most: &'static str) -> [Metric; 2] {
    [ms(p50), ms(most)]
}

const fn ms(name: &'static str) -> Metric {
    Metric { name, unit: "ms", title: name, decimals: 1 }
}

const RUNS: usize = 50;
const SLEEPING: usize = 4;
const COMPUTING: usize = 2;
/// Until the items run in a settled state: waits are detected, threads have parked.
const SETTLES: Duration = Duration::from_millis(100);
/// Between two runs in one process.
const PAUSE: Duration = Duration::from_millis(20);

/// What a process of this case does, as the role in its order.
const BURNS: &str = "burns";
const EXITS: &str = "exits";
const EXECS: &str = "execs";
const ARRIVES: &str = "arrives";
const STOPS: &str = "stops";
const CHANGES: &str = "changes";

static BEGUN: AtomicUsize = AtomicUsize::new(0);

fn item(number: usize) {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    loop {
        if number < SLEEPING {
            thread::sleep(Duration::from_millis(10));
        } else {
            std::hint::spin_loop();
        }
    }
}

fn take_sample(order: &Order) -> Result<Figures, UserError> {
    match &order.role[..] {
        "" => return measure(order),
        BURNS => burner::burn(1)?,
        EXITS => {
            settle(order)?;
            say(now_ns());
            // SAFETY: ends the process without its exit handlers.
            unsafe { libc::_exit(0) }
        }
        EXECS => {
            settle(order)?;
            let role = format!("{ARRIVES} {}", now_ns());
            let error = again("guest", &Order { role, ..order.clone() })?.exec();
            return Err(failed("execve")(error));
        }
        STOPS => {
            settle(order)?;
            say(0);
            let ended = std::io::stdin().read_to_end(&mut Vec::new());
            ended.map_err(failed("standard input"))?;
        }
        CHANGES => {
            settle(order)?;
            for _ in 0..order.runs() {
                let began = Instant::now();
                // SAFETY: numbers; -1 leaves each as it is.
                unsafe { libc::setresuid(libc::uid_t::MAX, libc::uid_t::MAX, libc::uid_t::MAX) };
                say(began.elapsed().as_nanos() as u64);
                thread::sleep(PAUSE);
            }
        }
        role => {
            let since = role.strip_prefix(ARRIVES).and_then(|since| since.trim().parse().ok());
            let since: u64 =
                since.ok_or_else(|| UserError(format!("--order: no role '{role}'")))?;
            say(now_ns().saturating_sub(since));
        }
    }
    // The items run for ever.
    std::process::exit(0)
}

/// Starts the items, and returns in a settled state.
fn settle(order: &Order) -> Result<(), UserError> {
    start(&order.runner, SLEEPING + COMPUTING, SLEEPING + COMPUTING, item)?;
    while BEGUN.load(Ordering::Relaxed) < SLEEPING + COMPUTING {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(SETTLES);
    Ok(())
}

fn measure(order: &Order) -> Result<Figures, UserError> {
    let busy = order.case.trim_start_matches("beside-").parse();
    let busy: usize = busy.map_err(|error| UserError(format!("--order: {error}")))?;
    let burner = || Burner::start(again("guest", &order.of(BURNS))?);
    let _burners = (0..busy).map(|_| burner()).collect::<Result<Vec<_>, _>>()?;
    let mut figures = Figures::default();
    let mut exits = Vec::new();
    let mut execs = Vec::new();
    for _ in 0..order.runs() {
        let mut guest = Guest::start(order, EXITS)?;
        let began = guest.number()?;
        guest.wait()?;
        exits.push(now_ns().saturating_sub(began));
        let mut guest = Guest::start(order, EXECS)?;
        execs.push(guest.number()?);
        guest.wait()?;
    }
    set(&mut figures, EXIT, exits);
    set(&mut figures, EXEC, execs);
    let mut guest = Guest::start(order, STOPS)?;
    guest.number()?;
    let stops = (0..order.runs()).map(|_| guest.stop());
    set(&mut figures, STOP, stops.collect::<Result<_, _>>()?);
    drop(guest);
    let mut guest = Guest::start(order, CHANGES)?;
    let changes = (0..order.runs()).map(|_| guest.number());
    set(&mut figures, SETUID, changes.collect::<Result<_, _>>()?);
    Ok(figures)
}

fn set(figures: &mut Figures, [p50, most]: [Metric; 2], mut ns: Vec<u64>) {
    ns.sort_unstable();
    figures.set(p50, ns[ns.len() / 2] as f64 / 1e6);
    figures.set(most, ns[ns.len() - 1] as f64 / 1e6);
}

impl Order {
    fn of(&self, role: &str) -> Order {
        Order { role: role.to_owned(), ..self.clone() }
    }

    fn runs(&self) -> usize {
        if self.quick { 2 } else { RUNS }
    }
}

/// A process with items. It ends with this value.
struct Guest {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Guest {
    fn start(order: &Order, role: &str) -> Result<Guest, UserError> {
        let mut command: Command = again("guest", &order.of(role))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed("a process with items"))?;
        let lines = BufReader::new(process.stdout.take().expect("it is piped"));
        Ok(Guest { process, lines })
    }

    /// The next number that it says.
    fn number(&mut self) -> Result<u64, UserError> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(failed("a process with items"))?;
        let number = line.trim().parse();
        number.map_err(|_| UserError(format!("a process with items ended: it said '{line}'")))
    }

    fn wait(&mut self) -> Result<(), UserError> {
        let status = self.process.wait().map_err(failed("a process with items"))?;
        match status.success() {
            true => Ok(()),
            false => Err(UserError(format!("a process with items ended: {status}"))),
        }
    }

    /// Stops it and lets it continue. How long the stop took.
    fn stop(&self) -> Result<u64, UserError> {
        let pid = self.process.id() as libc::pid_t;
        let began = Instant::now();
        let mut status = 0;
        // SAFETY: a child of this process, which has not been waited for; the status is live.
        let stopped = unsafe {
            libc::kill(pid, libc::SIGSTOP);
            libc::waitpid(pid, &raw mut status, libc::WUNTRACED)
        };
        let took = began.elapsed().as_nanos() as u64;
        let how = std::process::ExitStatus::from_raw(status);
        if stopped != pid || how.stopped_signal().is_none() {
            return Err(UserError(format!("a process with items did not stop: {how}")));
        }
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        thread::sleep(PAUSE);
        Ok(took)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One number for the process that started this one.
fn say(number: u64) {
    let mut out = std::io::stdout().lock();
    // Without a reader nothing is left to measure.
    if writeln!(out, "{number}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// `CLOCK_MONOTONIC`, which all processes share.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> UserError {
    move |error| UserError(format!("{what}: {error}"))
}
