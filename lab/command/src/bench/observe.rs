//! `uwork-lab bench observe`: what it costs to be looked at, and how fast an attribute takes effect.
//!
//! - `flood`: floods of items: alone, while another process asks the control socket for the counters
//!   ten times a second (`polled`), and while it has all items recorded (`traced`).
//! - `set`: another process moves a flooded queue from one CPU to another. The time from the
//!   request until the first item runs on the new CPU, with the count of items that were lost.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uwork::Queue;
use uwork_rivals::Load;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{self, ChildArgs, Measured};
use super::options::{count, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::{CPU, Metric, RATE};
use super::{UserError, uwork_pool};

const NAME: &str = "observe";
const POLLS_PER_S: u64 = 10;
/// A trace ends by itself after this time. It is longer than a flood.
const TRACE_MAX_S: u64 = 600;
/// Moves of the queue in a sample of `set`.
const MOVES: usize = 40;
/// Between two moves the flood runs on the new CPU for this long.
const SETTLE: Duration = Duration::from_millis(20);
/// A move that takes longer than this is an error.
const MOVE_MAX: Duration = Duration::from_secs(10);

const EFFECT_P50: Metric =
    Metric { name: "effect_p50_ms", unit: "ms", title: "effect p50 ms", decimals: 2 };
const EFFECT_MAX: Metric =
    Metric { name: "effect_max_ms", unit: "ms", title: "effect max ms", decimals: 2 };
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
    /// Runs of each variant; the median is reported [default: 9; --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// What the other process does: it sends each line of its standard input to this socket. Without
/// input for a tenth of a second it asks for the counters, if it polls.
#[derive(Serialize, Deserialize)]
struct Order {
    socket: String,
    polls: bool,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order::<Order>()? {
        return ask(&order).map_err(|error| UserError(format!("the control socket: {error}")));
    }
    let seconds = count("--seconds", &args.seconds, 1..=60)?;
    let seconds = Duration::from_secs(if args.quick { 1 } else { seconds as u64 });
    let samples = samples_or(&args.samples, if args.quick { 1 } else { 9 })?;
    let floods = [("alone", None), ("polled", Some(Looks::Polls)), ("traced", Some(Looks::Traces))]
        .map(|(variant, looks)| contestant("flood", variant, move || flood(seconds, looks)));
    let groups = vec![
        Group {
            title: format!("flood  ({seconds:?} a sample, {POLLS_PER_S} polls a second)"),
            contestants: floods.into(),
            samples,
            ratio_to: RatioTo::Variant("alone"),
        },
        Group {
            title: format!("set  ({MOVES} moves of a flooded queue in a sample)"),
            contestants: vec![contestant("set", "cpumask", set)],
            samples,
            ratio_to: RatioTo::Nothing,
        },
    ];
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

/// What the other process does during a flood.
#[derive(Clone, Copy)]
enum Looks {
    /// It asks for the counters.
    Polls,
    /// It has all items recorded. It does not read the records, which a reader may do later.
    Traces,
}

/// Floods for about that long.
fn flood(length: Duration, looks: Option<Looks>) -> Result<Measured, UserError> {
    let load = Load { producers: 8, items: 200_000, outstanding: 200_000, clock: false };
    // The socket opens with the first queue.
    drop(uwork_pool::queue("default"));
    let mut other = looks.map(|looks| Other::start(matches!(looks, Looks::Polls))).transpose()?;
    let trace = |other: &mut Option<Other>, request: &str| match (looks, other) {
        (Some(Looks::Traces), Some(other)) => other.request(request),
        _ => Ok(()),
    };
    trace(&mut other, &format!("trace on {TRACE_MAX_S}"))?;
    let (start, mut items, mut wall, mut cpu) = (Instant::now(), 0, 0.0, 0.0);
    while start.elapsed() < length {
        let sample = uwork_pool::measure_flood(&load);
        items += sample.items;
        wall += sample.wall.as_secs_f64();
        cpu += sample.cpu.as_secs_f64();
    }
    trace(&mut other, "trace off")?;
    drop(other);
    let items = items as f64;
    Ok(Measured::new(vec![(RATE, items / wall), (CPU, cpu * 1e6 / items)]))
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

/// The process that looks in from outside.
struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(polls: bool) -> Result<Other, UserError> {
        let socket = uwork::control::socket()
            .map_err(|reason| UserError(format!("no control socket: {reason}")))?;
        let order = Order { socket: socket.to_string_lossy().into_owned(), polls };
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
fn ask(order: &Order) -> std::io::Result<ExitCode> {
    let socket = UnixStream::connect(&order.socket)?;
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
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if order.polls => {
                answer(&mut socket, "queues")?;
                answer(&mut socket, "metrics")?;
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
