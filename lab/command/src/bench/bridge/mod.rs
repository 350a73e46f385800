//! `uwork-lab bench bridge`: jobs of a redis-server, run by the bridge and by its peers: Celery, RQ,
//! BullMQ and asynq (`lab/peers/install.sh`).
//!
//! Cases: `noop`, jobs that do nothing; `compute`, jobs that compute for 1 ms; `sleep`, jobs that
//! sleep for 10 ms, undeclared, 256 at a time where the runner can. A producer process fills a fresh
//! server without persistence; then a consumer, a process group of its own, empties it. The time
//! runs from the first twentieth of the jobs to the last job, so that the start of interpreters does
//! not count, and the CPU time is that of all processes of the group within it. Peers have as many
//! processes as CPUs and the settings that their manuals recommend (`lab/peers/README.md`); uwork has
//! its default settings.
//!
//! The runners `sync` and `async`, only by name and for `noop`, are bare consumers on the two sides of
//! the crate `redis`.
//!
//! Five cases are no comparisons, and run only by name. `backlog`: the memory of a consumer beside
//! backlogs of 10^5 to 10^7 jobs. `memory`: that of one beside mixes of payloads. `takeover`: the time
//! from the death of a consumer until its job begins elsewhere. `failover`: the time from the death of
//! a cluster's master until the next job begins, and of that the server's own failover. `torture`: see
//! [`torture`]. It fails if a job is lost, if an innocent one is buried, or if one runs again without a
//! reason.

mod backlog;
mod bare;
mod child;
mod cluster;
mod failover;
mod group;
mod memory;
mod peers;
mod proxy;
mod server;
mod takeover;
mod torture;

use std::cell::RefCell;
use std::process::{ExitCode, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use uwork_bridge::Server;
use uwork_rivals::Standing;

use self::child::{Order, Role};
use self::group::Group as Processes;
use self::peers::{BARE, Peer, RUNNERS, folder};
use self::server::Redis;
use self::torture::{Said, Wanted, time};
use super::UserError;
use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::{ChildArgs, Measured};
use super::options::{count_or, names, names_or_all, samples_or};
use super::pipeline::{Output, Plan};
use super::summary::Metric;

const CASES: [&str; 3] = ["noop", "compute", "sleep"];
const BACKLOG: &str = "backlog";
const MEMORY: &str = "memory";
const TAKEOVER: &str = "takeover";
const FAILOVER: &str = "failover";
const TORTURE: &str = "torture";
/// The first part of the jobs that does not count, as one in so many: meanwhile processes start.
const UNCOUNTED: usize = 20;
/// The interval at which the unfinished jobs are counted.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A consumer that finishes nothing for so long has failed, on the busiest machine too.
const STALL_MAX: Duration = Duration::from_secs(600);

const RATE: Metric = Metric { name: "jobs_per_s", unit: "jobs/s", title: "jobs/s", decimals: 0 };
const CPU: Metric =
    Metric { name: "cpu_s_per_mjob", unit: "s/Mjob", title: "consumer CPU-s/M", decimals: 2 };
const SERVER: Metric =
    Metric { name: "server_cpu_s_per_mjob", unit: "s/Mjob", title: "server CPU-s/M", decimals: 2 };
const IDEAL: Metric =
    Metric { name: "of_ideal", unit: "1", title: "of ideal (256 at a time)", decimals: 2 };

/// The factor of the time limits of exchanges with a server.
static PATIENCE: AtomicU32 = AtomicU32::new(1);

fn patience() -> u32 {
    PATIENCE.load(Ordering::Relaxed)
}

/// The server, as the bridge is to meet it.
fn server_at(url: &str) -> Result<Server, UserError> {
    let server = Server::new(url).map_err(|error| UserError(error.to_string()))?;
    Ok(server.patience(patience()))
}

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Fewer jobs and samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: noop, compute, sleep; or one of backlog, memory, takeover, failover and torture
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Only these runners: uwork, celery, rq, bullmq, asynq; for noop also sync, async
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Runs of each runner; the median is reported [default: 3; --quick: 1]. takeover and
    /// failover: kills [default: 10; --quick: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    /// torture: how long consumers and servers are disturbed [default: 600; --quick: 10]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seconds: Option<String>,
    /// torture: the number of jobs [default: 1000000; --quick: 20000]; backlog: the largest
    /// [default: 10000000; --quick: 100000]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    jobs: Option<String>,
    /// torture: the schedule of the disturbances follows from this number [default: another one each
    /// time, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// torture: drop a job, run one twice, bury one, and double and drop an effect, which must be found
    #[arg(long, hide = true)]
    plant_faults: bool,
    /// Multiplies the time limits of the bridge's exchanges with the server, for machines so busy that
    /// a server that works exceeds them
    #[arg(long, value_name = "N", default_value_t = 1)]
    patience: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    child: ChildArgs,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(order) = args.child.order::<Order>()? {
        PATIENCE.store(order.patience, Ordering::Relaxed);
        return child::run(&order).map(|()| ExitCode::SUCCESS);
    }
    PATIENCE.store(args.patience, Ordering::Relaxed);
    let quick = args.quick;
    if args.case == [TORTURE] {
        let default = if quick { (10, 20_000) } else { (600, 1_000_000) };
        let seconds = count_or("--seconds", &args.seconds, 1..=86_400, default.0)?;
        let jobs = count_or("--jobs", &args.jobs, 1_000..=100_000_000, default.1)?;
        let wanted = Wanted {
            time: Duration::from_secs(seconds as u64),
            jobs: jobs as u64,
            seed: args.seed.unwrap_or_else(|| time::now_us() as u32),
            has_faults: args.plant_faults,
        };
        let said = Rc::new(RefCell::new(Said::default()));
        let code = alone(torture::group(wanted, &said), &args.output)?;
        println!("{}", said.borrow().line);
        return Ok(if said.borrow().is_good { code } else { ExitCode::FAILURE });
    }
    if args.case == [BACKLOG] {
        let default = if quick { 100_000 } else { 10_000_000 };
        let jobs = count_or("--jobs", &args.jobs, 1_000..=1_000_000_000, default)?;
        return alone(backlog::group(jobs), &args.output);
    }
    if args.case == [MEMORY] {
        return alone(memory::group(quick), &args.output);
    }
    if args.case == [TAKEOVER] {
        let kills = samples_or(&args.samples, if quick { 1 } else { 10 })?;
        return alone(takeover::group(kills), &args.output);
    }
    if args.case == [FAILOVER] {
        let deaths = samples_or(&args.samples, if quick { 1 } else { 10 })?;
        return alone(failover::group(deaths), &args.output);
    }
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let known: Vec<&str> = RUNNERS.iter().chain(&BARE).copied().collect();
    names("--runner", &args.runner, &known)?;
    if args.runner.iter().any(|runner| BARE.contains(&runner.as_str())) && cases != ["noop"] {
        return Err(UserError("the runners sync and async have one case: --case noop".to_owned()));
    }
    let samples = samples_or(&args.samples, if quick { 1 } else { 3 })?;
    let folder = folder();
    let is_chosen = |name: &&&str| match args.runner.is_empty() {
        true => RUNNERS.contains(name),
        false => args.runner.iter().any(|runner| runner == **name),
    };
    let (ready, missing): (Vec<Peer>, Vec<Peer>) = known
        .iter()
        .filter(is_chosen)
        .filter_map(|name| Peer::named(name))
        .partition(|peer| peer.is_installed(&folder));
    for peer in missing {
        eprintln!("{}: left out, not in {}: lab/peers/install.sh", peer.name, folder.display());
    }
    let group = |&case: &&'static str| Group {
        title: format!("bridge: {case}  ({samples} sample(s), one redis-server for each)"),
        contestants: ready.iter().map(|&peer| contestant(case, peer, quick)).collect(),
        samples,
        ratio_to: RatioTo::FastestRival,
    };
    Plan::new("bridge", cases.iter().map(group).collect()).run(&args.output)
}

/// A case that is no comparison.
fn alone(group: Group<Measured>, output: &Output) -> Result<ExitCode, UserError> {
    Plan::new("bridge", vec![group]).one_sample_suffices().run(output)
}

/// The bridge in a case that is no comparison.
fn uwork(
    case: &'static str,
    variant: &str,
    measure: impl Fn(usize) -> Result<Measured, UserError> + 'static,
) -> Contestant<Measured> {
    Contestant {
        names: Names { case, runner: "uwork", variant: variant.to_owned() },
        standing: None,
        measure: Box::new(measure),
    }
}

fn contestant(case: &'static str, peer: Peer, quick: bool) -> Contestant<Measured> {
    Contestant {
        names: Names { case, runner: peer.name, variant: String::new() },
        standing: (peer.name != "uwork").then_some(Standing::Pool),
        measure: Box::new(move |_| measure(case, peer, quick)),
    }
}

/// The number of jobs for a run of some seconds.
fn jobs(case: &str, runner: &str, quick: bool) -> usize {
    let full = match (case, runner) {
        ("noop", "uwork" | "sync" | "async") => 1_000_000,
        ("noop", "bullmq" | "asynq") => 80_000,
        ("noop", _) => 6_000,
        ("sleep", "uwork") => 100_000,
        ("sleep", "bullmq" | "asynq") => 40_000,
        ("sleep", _) => 5_000,
        _ => 5_000,
    };
    if quick { full / 5 } else { full }
}

fn measure(case: &str, peer: Peer, quick: bool) -> Result<Measured, UserError> {
    let (folder, jobs) = (folder(), jobs(case, peer.name, quick));
    let redis = Redis::start(false)?;
    let mut connection = redis.connect()?;
    let fail = |error: std::io::Error| UserError(format!("{}: {error}", peer.name));
    let mut producer = peer.command(&folder, Role::Push, case, &redis.url(), jobs)?;
    let pushed = producer.stdin(Stdio::null()).status().map_err(fail)?;
    let total = peer.left(&mut connection)?;
    if !pushed.success() || total < jobs {
        return Err(UserError(format!("{}: the producer has pushed {total} jobs", peer.name)));
    }
    let mut consumer = peer.command(&folder, Role::Work, case, &redis.url(), jobs)?;
    group::lead(&mut consumer);
    let started = consumer.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut consumer = started.map_err(fail)?;
    let processes = Processes::of(consumer.id());
    let has_ended = || match consumer.try_wait() {
        Ok(Some(status)) => Some(status.to_string()),
        _ => None,
    };
    let cpu = || (processes.cpu(), redis.cpu());
    let counted = drain(peer, total, &mut connection, cpu, has_ended);
    processes.kill();
    let _ = consumer.wait();
    let (done, wall, cpu, server) = counted?;
    let per_million = |cpu: Duration| cpu.as_secs_f64() * 1e6 / done as f64;
    let rate = done as f64 / wall.as_secs_f64().max(1e-9);
    let mut metrics = vec![(RATE, rate), (CPU, per_million(cpu)), (SERVER, per_million(server))];
    if case == "sleep" {
        metrics.push((IDEAL, rate / 25_600.0));
    }
    Ok(Measured::new(metrics))
}

/// Waits until a consumer has done all jobs. Returns how many of them it did in the measured time,
/// the time, and the CPU time of the consumer and of the server in it.
fn drain(
    peer: Peer,
    total: usize,
    connection: &mut redis::Connection,
    cpu: impl Fn() -> (Duration, Duration),
    mut has_ended: impl FnMut() -> Option<String>,
) -> Result<(usize, Duration, Duration, Duration), UserError> {
    let mut begun: Option<(usize, Instant, (Duration, Duration))> = None;
    let (mut last, mut moved) = (total, Instant::now());
    loop {
        let left = peer.left(connection)?;
        if left < last {
            (last, moved) = (left, Instant::now());
        }
        let failed = has_ended().map(|status| format!("the consumer has ended: {status}"));
        let failed = failed.or((moved.elapsed() > STALL_MAX).then(|| "none ends".to_owned()));
        if let Some(failed) = failed.filter(|_| left > 0) {
            return Err(UserError(format!("{}: {left} jobs are left: {failed}", peer.name)));
        }
        match begun {
            None if left < total - total / UNCOUNTED => begun = Some((left, Instant::now(), cpu())),
            Some((from, since, before)) if left == 0 => {
                let (wall, after) = (since.elapsed(), cpu());
                return Ok((from, wall, after.0 - before.0, after.1 - before.1));
            }
            _ => {}
        }
        thread::sleep(LOOK_EVERY);
    }
}
