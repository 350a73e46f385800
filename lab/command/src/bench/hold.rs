//! `uwork-lab bench workqueue --hold`: a process to look at. It floods the queue `bench` until it is
//! interrupted.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::UserError;

/// The queue's name, and its folder in the attribute tree.
const NAME: &str = "bench";
/// Items that are queued before the producer waits for them.
const OUTSTANDING: usize = 1_000;
/// How long an item computes.
const ITEM: Duration = Duration::from_micros(5);

/// Floods the first of so many queues, and does not return unless a queue cannot be made.
pub(super) fn run(count: usize) -> Result<ExitCode, UserError> {
    let refused = |error: uwork::Error| UserError(error.to_string());
    let build = || uwork::Queue::builder(NAME).numbered().unbound().sysfs().build();
    let queue = build().map_err(refused)?;
    let others: Vec<_> = (1..count).map(|_| build()).collect::<Result<_, _>>().map_err(refused)?;
    let pid = std::process::id();
    let mut text = format!(
        "process {pid} floods the queue `{NAME}`, {OUTSTANDING} items of {ITEM:?} at a time, until \
         it is interrupted; to look at it:\n"
    );
    let attribute = format!("workqueue/devices/{NAME}/affinity_scope");
    for words in [
        "ls".to_owned(),
        format!("get {pid} {attribute}"),
        format!("set {pid} {attribute} system"),
        format!("monitor {pid}"),
        format!("top {pid}"),
        format!("trace {pid} -o t.json"),
        format!("dump {pid}"),
        format!("doctor {pid}"),
    ] {
        writeln!(text, "  uwork {words}").expect("a string takes all text");
    }
    print!("{text}");
    let mut others = others.iter().cycle();
    loop {
        let items = (0..OUTSTANDING).map(|_| compute);
        queue.execute_all(items).map_err(|refused| UserError(refused.to_string()))?;
        queue.flush().map_err(refused)?;
        if let Some(other) = others.next() {
            other.execute(compute).map_err(|refused| UserError(refused.to_string()))?;
        }
    }
}

fn compute() {
    let begin = Instant::now();
    while begin.elapsed() < ITEM {
        std::hint::spin_loop();
    }
}
