//! `uwork-lab bench observe`: what it costs to be looked at, and how fast an attribute takes effect.
//!
//! - `flood`: floods of items, each in a process of its own: alone, while another process asks the
//!   control socket ten times a second for what `uwork top` and a monitoring system want (`polled`),
//!   while it has all items recorded (`traced`), and while a thread pauses and resumes another queue a
//!   thousand times a second (`paused`).
//! - `hooks`: the same floods without thread hooks (`alone`), with hooks that each thread has called
//!   (`hooked`), and with lazy ones, which no item asks for (`lazy`). The hooks are added before the
//!   first queue.
//! - `set`: another process moves a flooded queue from one CPU to another. The time from the
//!   request until the first item runs on the new CPU, with the count of items that were lost.
//! - `top`: `uwork top` in a pseudo-terminal ([`top`]).

mod top;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uwork::Queue;
use uwork::threads::{self, Thread};
use uwork_rivals::Load;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{self, ChildArgs, Figures, Measured};
use super::options::{count, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::{CPU, Metric, RATE};
use super::{UserError, uwork_pool};

const NAME: &str = "observe";
const CASES: [&str; 4] = ["flood", "hooks", "set", "top"];
const POLLS_PER_S: u64 = 10;
/// A trace ends by itself after this time. It is longer than a flood.
const TRACE_MAX_S: u64 = 600;
/// Between two pauses of another queue.
const PAUSE_INTERVAL: Duration = Duration::from_millis(1);
/// A sample of `top` has many keys.
const TOP_SAMPLES: usize = 3;
/// Moves of the queue in a sample of `set`.
const MOVES: usize = 40;
/// Between two moves the flood runs on the new CPU for this long.
const SETTLE: Duration = Duration::from_millis(20);
/// A control socket that opens later than this is an error.
const SOCKET_MAX: Duration = Duration::from_secs(5);
/// A move that takes longer than this is an error.
const MOVE_MAX: Duration = Duration::from_secs(10);

const EFFECT_P50: Metric =
    Metric { name: "effect_p50_ms", unit: "ms", title: "effect p50 ms", decimals: 2 };
const EFFECT_MAX: Metric =
    Metric { name: "effect_max_ms", unit: "ms", title: "effect max ms", decimals: 2 };
const PAUSE_P50: Metric =
    Metric { name: "pause_p50_us", unit: "us", title: "pause p50 us", decimals: 2 };
const LOST: Metric = Metric { name: "lost", unit: "items", title: "lost", decimals: 0 };

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Seconds of each sample of the floods
    #[arg(long, value_name = "N", default_value = "2", allow_hyphen_values = true)]
    seconds: String,
    /// Floods of one second and a single sample, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: flood, hooks, set, top
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Runs of each variant; the median is reported [default: 9; --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// What a child process does.
#[derive(Serialize, Deserialize)]
enum Order {
    /// It floods, and prints its figures.
    Flood { seconds: u64, beside: Option<Beside> },
    /// It sends each line of its standard input to this socket. Without input for a tenth of a
    /// second it asks for the counters, if it polls.
    Ask { socket: String, polls: bool },
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.child.order::<Order>()? {
        Some(Order::Flood { seconds, beside }) => return flood_as_child(seconds, beside),
        Some(Order::Ask { socket, polls }) => {
            return ask(&socket, polls)
                .map_err(|error| UserError(format!("the control socket: {error}")));
        }
        None => {}
    }
    let seconds = count("--seconds", &args.seconds, 1..=60)?;
    let seconds = if args.quick { 1 } else { seconds as u64 };
    let samples = samples_or(&args.samples, if args.quick { 1 } else { 9 })?;
    let beside = [
        ("alone", None),
        ("polled", Some(Beside::Polls)),
        ("traced", Some(Beside::Traces)),
        ("paused", Some(Beside::Pauses)),
    ];
    let floods = beside
        .map(|(variant, beside)| contestant("flood", variant, move || flood(seconds, beside)));
    let hooks =
        [("alone", None), ("hooked", Some(Beside::Hooks)), ("lazy", Some(Beside::LazyHooks))];
    let hooked =
        hooks.map(|(variant, beside)| contestant("hooks", variant, move || flood(seconds, beside)));
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let groups = [
        Group {
            title: format!("flood  ({seconds} s a sample, {POLLS_PER_S} polls a second)"),
            contestants: floods.into(),
            samples,
            ratio_to: RatioTo::Variant("alone"),
        },
        Group {
            title: format!("hooks  ({seconds} s a sample)"),
            contestants: hooked.into(),
            samples,
            ratio_to: RatioTo::Variant("alone"),
        },
        Group {
            title: format!("set  ({MOVES} moves of a flooded queue in a sample)"),
            contestants: vec![contestant("set", "cpumask", set)],
            samples,
            ratio_to: RatioTo::Nothing,
        },
        Group {
            title: "top  (uwork top at two refreshes a second on a process with 1,000 queues)"
                .to_owned(),
            contestants: vec![contestant("top", "1000", move || top::measure(2 * seconds))],
            samples: samples.min(TOP_SAMPLES),
            ratio_to: RatioTo::Nothing,
        },
    ];
    let groups = groups.into_iter().zip(CASES).filter(|(_, case)| cases.contains(case));
    let groups: Vec<Group<Measured>> = groups.map(|(group, _)| group).collect();
    Plan::new(NAME, groups).run(&args.output)
}

fn contestant(
    case: &'static str,
    variant: &'static str,
    measure: impl Fn() -> Result<Measured, UserError> + 'static,
) -> Contestant<Measured> {
    let names = Names { case, runner: uwork_pool::RUNNER, variant: variant.to_owned() };
    Contestant { names, standing: None, measure: Box::new(move |_| measure()) }
}

/// What happens during a flood.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Beside {
    /// Another process asks for the counters.
    Polls,
    /// It has all items recorded. It does not read the records, which a reader may do later.
    Traces,
    /// A thread pauses and resumes an idle queue.
    Pauses,
    /// Each thread of the pools has called a start hook.
    Hooks,
    /// No item asks for the state that a start hook would make.
    LazyHooks,
}

/// Floods for about that long, in a child process.
fn flood(seconds: u64, beside: Option<Beside>) -> Result<Measured, UserError> {
    let command = measured::again(NAME, &Order::Flood { seconds, beside })?;
    Measured::by(command, "flood", &[RATE, CPU, PAUSE_P50])
}

/// Floods, and prints the figures for the parent.
fn flood_as_child(seconds: u64, beside: Option<Beside>) -> Result<ExitCode, UserError> {
    measured::end_on_panic();
    let length = Duration::from_secs(seconds);
    let starts = Arc::new(AtomicU64::new(0));
    let start = {
        let starts = starts.clone();
        move |_: Thread<'_>| starts.fetch_add(1, Ordering::Relaxed)
    };
    match beside {
        Some(Beside::Hooks) => _ = threads::add_hooks(start, |_, _| ()),
        Some(Beside::LazyHooks) => _ = threads::add_lazy_hooks(start, |_, _| ()),
        _ => {}
    }
    // Starts the watcher and the pools.
    drop(uwork_pool::queue("default"));
    let mut figures = Figures::default();
    match beside {
        Some(Beside::Pauses) => flood_beside_pauses(length, &mut figures)?,
        Some(Beside::Polls) => {
            let _other = Other::start(true)?;
            repeat_flood(length, &mut figures);
        }
        Some(Beside::Traces) => {
            let mut other = Other::start(false)?;
            other.request(&format!("trace on {TRACE_MAX_S}"))?;
            repeat_flood(length, &mut figures);
            other.request("trace off")?;
        }
        Some(Beside::Hooks | Beside::LazyHooks) | None => repeat_flood(length, &mut figures),
    }
    let is_hooked = starts.load(Ordering::Relaxed) > 0;
    assert_eq!(is_hooked, beside == Some(Beside::Hooks), "which threads have a state");
    figures.print();
    Ok(ExitCode::SUCCESS)
}

/// Floods while a thread pauses and resumes another queue.
fn flood_beside_pauses(length: Duration, figures: &mut Figures) -> Result<(), UserError> {
    let refused = |error: uwork::Error| UserError(error.to_string());
    let idle = Queue::builder("bench-paused").unbound().build().map_err(refused)?;
    let is_over = AtomicBool::new(false);
    let mut times = thread::scope(|scope| {
        let pauses = scope.spawn(|| {
            let mut times = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                idle.pause()?;
                idle.resume()?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
                thread::sleep(PAUSE_INTERVAL);
            }
            Ok(times)
        });
        repeat_flood(length, figures);
        is_over.store(true, Ordering::Relaxed);
        pauses.join().expect("a pause does not panic").map_err(refused)
    })?;
    times.sort_by(f64::total_cmp);
    figures.set(PAUSE_P50, times[times.len() / 2]);
    Ok(())
}

fn repeat_flood(length: Duration, figures: &mut Figures) {
    let load = Load { producers: 8, items: 200_000, outstanding: 200_000, clock: false };
    let (start, mut items, mut wall, mut cpu) = (Instant::now(), 0, 0.0, 0.0);
    while start.elapsed() < length {
        let sample = uwork_pool::measure_flood(&load);
        items += sample.items;
        wall += sample.wall.as_secs_f64();
        cpu += sample.cpu.as_secs_f64();
    }
    let items = items as f64;
    figures.set(RATE, items / wall);
    figures.set(CPU, cpu * 1e6 / items);
}

/// The runs so far, the CPU that is waited for, and when an item first ran there.
static RAN: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicUsize = AtomicUsize::new(usize::MAX);
static SEEN_NS: AtomicU64 = AtomicU64::new(0);

/// Moves a flooded queue between two CPUs, from outside.
fn set() -> Result<Measured, UserError> {
    let refused = |error: uwork::Error| UserError(error.to_string());
    let queue = Queue::builder("bench-observe").unbound().sysfs().build().map_err(refused)?;
    let all = queue.cpumask();
    let cpus: Vec<u32> = all.iter().take(2).collect();
    let &[first, second] = &cpus[..] else {
        return Err(UserError("case set: moves a queue, so it needs two CPUs".to_owned()));
    };
    let mut other = Other::start(false)?;
    let (epoch, before) = (Instant::now(), RAN.load(Ordering::SeqCst));
    let stop = AtomicUsize::new(0);
    let (queued, effects) = thread::scope(|scope| {
        let submitter = scope.spawn(|| submit(&queue, epoch, &stop));
        // The first move, from both CPUs to one of them, is not counted.
        let effects = (0..=MOVES)
            .map(|number| move_to([second, first][number % 2], &mut other, epoch))
            .collect::<Result<Vec<f64>, UserError>>();
        stop.store(1, Ordering::SeqCst);
        let queued = submitter.join().expect("the submitter does not panic");
        effects.map(|effects| (queued, effects))
    })?;
    queue.flush().map_err(refused)?;
    let ran = RAN.load(Ordering::SeqCst) - before;
    let mut effects = effects[1..].to_vec();
    effects.sort_by(f64::total_cmp);
    Ok(Measured::new(vec![
        (EFFECT_P50, effects[effects.len() / 2]),
        (EFFECT_MAX, effects[effects.len() - 1]),
        // Items that ran twice would be negative.
        (LOST, queued as f64 - ran as f64),
    ]))
}

/// Submits until it is told to stop, with a bounded number of items in flight. Returns how many.
fn submit(queue: &Queue, epoch: Instant, stop: &AtomicUsize) -> u64 {
    const IN_FLIGHT_MAX: u64 = 10_000;
    let (before, mut queued) = (RAN.load(Ordering::SeqCst), 0);
    while stop.load(Ordering::Relaxed) == 0 {
        if queued - (RAN.load(Ordering::Relaxed) - before) > IN_FLIGHT_MAX {
            thread::yield_now();
            continue;
        }
        drop(queue.spawn(move || {
            if WANTED.load(Ordering::Relaxed) == here() {
                WANTED.store(usize::MAX, Ordering::Relaxed);
                SEEN_NS.store(epoch.elapsed().as_nanos() as u64, Ordering::SeqCst);
            }
            RAN.fetch_add(1, Ordering::SeqCst);
        }));
        queued += 1;
    }
    queued
}

/// The CPU that the calling thread is on.
fn here() -> usize {
    // SAFETY: it has no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(usize::MAX - 1)
}

/// Has the other process move the queue to a CPU. Returns how long it took until an item ran there, in
/// milliseconds. Before, all items run on the other CPU.
fn move_to(cpu: u32, other: &mut Other, epoch: Instant) -> Result<f64, UserError> {
    thread::sleep(SETTLE);
    SEEN_NS.store(0, Ordering::SeqCst);
    let asked = epoch.elapsed();
    WANTED.store(cpu as usize, Ordering::SeqCst);
    let mask = format!("{:x}", 1_u128 << cpu);
    other.request(&format!("set devices/bench-observe/cpumask {mask}"))?;
    let seen = loop {
        match SEEN_NS.load(Ordering::SeqCst) {
            0 if epoch.elapsed() - asked > MOVE_MAX => {
                return Err(UserError(format!("no item ran on CPU {cpu} within {MOVE_MAX:?}")));
            }
            0 => thread::yield_now(),
            seen => break Duration::from_nanos(seen),
        }
    };
    Ok(seen.saturating_sub(asked).as_secs_f64() * 1e3)
}

/// The control socket, which the watcher opens soon after it has started.
fn socket() -> Result<PathBuf, UserError> {
    let start = Instant::now();
    loop {
        match uwork::control::socket() {
            Ok(socket) => return Ok(socket),
            Err(reason) if start.elapsed() > SOCKET_MAX => {
                return Err(UserError(format!("no control socket: {reason}")));
            }
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The process that looks in from outside.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(polls: bool) -> Result<Other, UserError> {
        let socket = socket()?;
        let order = Order::Ask { socket: socket.to_string_lossy().into_owned(), polls };
        let mut command = measured::again(NAME, &order)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let failed = |error| UserError(format!("cannot start the process that looks in: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its standard output is a pipe");
        let mut other = Other { child, input, output: BufReader::new(output) };
        // It is connected when it has answered.
        other.request("get cpumask")?;
        Ok(other)
    }

    fn request(&mut self, request: &str) -> Result<(), UserError> {
        let mut line = String::new();
        let sent = self.input.as_mut().map(|input| writeln!(input, "{request}"));
        let read = self.output.read_line(&mut line);
        match (sent, read) {
            (Some(Ok(())), Ok(_)) if line.starts_with("ok") => Ok(()),
            _ => Err(UserError(format!("{request}: {}", line.trim_end()))),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It ends at the end of its input.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// The other process: sends requests to the socket, and prints the first line of each answer.
fn ask(socket: &str, polls: bool) -> std::io::Result<ExitCode> {
    let socket = UnixStream::connect(socket)?;
    let mut socket = BufReader::new(socket);
    let mut greeting = String::new();
    socket.read_line(&mut greeting)?;
    let (sender, requests) = std::sync::mpsc::channel();
    thread::spawn(move || {
        // The end of the input drops the sender.
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let interval = Duration::from_millis(1_000 / POLLS_PER_S);
    loop {
        match requests.recv_timeout(interval) {
            Ok(request) => println!("{}", answer(&mut socket, &request)?),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if polls => {
                for request in ["status", "queues", "pools", "metrics"] {
                    answer(&mut socket, request)?;
                }
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// The first line of the answer. Its text is read and dropped.
fn answer(socket: &mut BufReader<UnixStream>, request: &str) -> std::io::Result<String> {
    writeln!(socket.get_mut(), "{request}")?;
    let mut line = String::new();
    socket.read_line(&mut line)?;
    let length = line.strip_prefix("ok ").and_then(|length| length.trim_end().parse().ok());
    std::io::copy(&mut socket.take(length.unwrap_or(0)), &mut std::io::sink())?;
    Ok(line.trim_end().to_owned())
}
