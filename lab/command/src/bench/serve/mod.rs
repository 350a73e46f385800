//! `uwork-lab bench serve`: `uwork-lab serve` compared with Debian's redis-server, both without
//! persistence, under the load of redis-benchmark.
//!
//! Cases `get`, `set`, `get-p16`, `set-p16` (16 pipelined requests): 16 clients, values of 64
//! bytes, random keys. `handover`, `handover-p16`: GET with as many server threads as clients, so
//! that nearly every request concerns another thread's key and is handed over; notification by
//! `light` and by `signal`. `digest`, `digest-p16`: 12 clients request the digest of a large value,
//! computed on a queue with the affinity scope `cache` or `default`. `threads`, `threads-p16`: GET
//! with one and two server threads. `series`, `series-p16`: GET with the parts of the server on and
//! off ([`series`]).
//!
//! redis-benchmark runs one thread per CPU. With a single thread it is slower than the servers, and
//! would limit the result.
//!
//! `process` starts and ends servers, `client` runs redis-benchmark, `sample` parses and prints its
//! results.

mod client;
mod process;
mod sample;
mod series;

use std::cell::OnceCell;
use std::process::ExitCode;
use std::rc::Rc;

use uwork_rivals::Standing;

use self::client::{Drive, Request};
use self::process::{ServerProcess, Which};
use self::sample::Served;
use super::UserError;
use super::contestant::{Contestant, Group, Names, RatioTo, cpus};
use super::options::{count, names_or_all, samples_or};
use super::pipeline::{Output, Plan};

const CASES: [&str; 12] = [
    "get",
    "set",
    "get-p16",
    "set-p16",
    "threads",
    "threads-p16",
    "series",
    "series-p16",
    "handover",
    "handover-p16",
    "digest",
    "digest-p16",
];
const CLIENTS: usize = 16;
const PIPELINE: usize = 16;
/// The number of clients in the report that led to the fallback of scopes.
const DIGEST_CLIENTS: usize = 12;
const DIGEST_BYTES: usize = 64 * 1024;
const DIGEST_BYTES_MAX: usize = 16 << 20;

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Fewer requests and samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Only these cases: get, set, get-p16, set-p16, threads, threads-p16, series, series-p16,
    /// handover, handover-p16, digest, digest-p16
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// Requests of each run [default: 1200000; get-p16, set-p16, threads-p16, series-p16: 12000000;
    /// handover-p16: 6000000; handover: 500000; digest and digest-p16: 300000; --quick: a twelfth]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    requests: Option<String>,
    /// Size in bytes of the value that digest and digest-p16 hash [default: 65536]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    digest_bytes: Option<String>,
    /// Threads of redis-benchmark [default: one for each CPU]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    client_threads: Option<String>,
    /// Runs of each server; the median is reported [default: 5; --quick: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// The validated options.
struct Options {
    quick: bool,
    requests: Option<usize>,
    digest_bytes: usize,
    client_threads: usize,
    samples: usize,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let cases = names_or_all("--case", &args.case, &CASES)?;
    let given = |flag, text: &Option<String>, range| {
        text.as_ref().map(|text| count(flag, text, range)).transpose()
    };
    let options = Options {
        quick: args.quick,
        requests: given("--requests", &args.requests, 1_000..=100_000_000)?,
        digest_bytes: given("--digest-bytes", &args.digest_bytes, 1..=DIGEST_BYTES_MAX)?
            .unwrap_or(DIGEST_BYTES),
        client_threads: given("--client-threads", &args.client_threads, 1..=CLIENTS)?
            .unwrap_or(cpus().min(CLIENTS)),
        samples: samples_or(&args.samples, if args.quick { 3 } else { 5 })?,
    };
    client::check()?;
    if cases.iter().any(|case| has_rival(case)) {
        process::check()?;
    }
    let groups = cases.into_iter().map(|case| group(case, &options)).collect();
    Plan::new("serve", groups).below(sample::below).run(&args.output)
}

/// Whether the case is also measured with redis-server.
fn has_rival(case: &str) -> bool {
    ["get", "set", "threads"].iter().any(|name| case.starts_with(name))
}

fn group(case: &'static str, options: &Options) -> Group<Served> {
    let drive = drive(case, options);
    let title = drive.title(case, options.samples);
    let uwork = |variant: &str, flags: &[&str]| {
        let which = Which::Uwork(flags.iter().map(|flag| (*flag).to_owned()).collect());
        contestant(case, variant, which, drive.clone())
    };
    let (contestants, ratio_to) = match case {
        "handover" | "handover-p16" => {
            // The number of threads in the report that led to the light path.
            let flags = ["--threads", "16", "--foreign-keys", "handed-over", "--notify"];
            let of = |how: &str| uwork(how, &[&flags[..], &[how]].concat());
            (vec![of("signal"), of("light")], RatioTo::Variant("signal"))
        }
        "series" | "series-p16" => {
            let contestants = series::PARTS.iter().map(|(name, flags)| uwork(name, flags));
            (contestants.collect(), RatioTo::Variant(series::DEFAULT))
        }
        "threads" | "threads-p16" => {
            let of = |threads: &str| uwork(&format!("threads{threads}"), &["--threads", threads]);
            let redis = contestant(case, "", Which::Redis, drive.clone());
            (vec![redis, of("1"), of("2")], RatioTo::FastestRival)
        }
        "digest" | "digest-p16" => {
            let of = |scope: &str| uwork(scope, &["--scope", scope]);
            (vec![of("cache"), of("default")], RatioTo::Variant("cache"))
        }
        _ => {
            let mut contestants = vec![
                contestant(case, "", Which::Redis, drive.clone()),
                // The configuration without flags.
                uwork("", &[]),
            ];
            if cpus() > 1 {
                let threads = cpus().to_string();
                contestants.push(uwork(&format!("threads{threads}"), &["--threads", &threads]));
            }
            (contestants, RatioTo::FastestRival)
        }
    };
    Group { title, contestants, samples: options.samples, ratio_to }
}

fn drive(case: &str, options: &Options) -> Drive {
    let pipelined = case.ends_with("-p16");
    // Enough requests for a run of ten seconds: with several threads, redis-benchmark checks only four
    // times a second whether it has finished.
    let (request, full) = match case {
        "set" => (Request::Set, 1_200_000),
        "set-p16" => (Request::Set, 12_000_000),
        "digest" | "digest-p16" => (Request::Digest { bytes: options.digest_bytes }, 300_000),
        "get-p16" | "threads-p16" | "series-p16" => (Request::Get, 12_000_000),
        "handover" => (Request::Get, 500_000),
        "handover-p16" => (Request::Get, 6_000_000),
        _ => (Request::Get, 1_200_000),
    };
    Drive {
        request,
        clients: if case.starts_with("digest") { DIGEST_CLIENTS } else { CLIENTS },
        pipeline: if pipelined { PIPELINE } else { 1 },
        requests: options.requests.unwrap_or(if options.quick { full / 12 } else { full }),
        threads: options.client_threads,
    }
}

/// A server that starts at its first sample and ends after its last.
fn contestant(case: &'static str, variant: &str, which: Which, drive: Drive) -> Contestant<Served> {
    let runner = which.runner();
    let standing = matches!(which, Which::Redis).then_some(Standing::Pool);
    let server: Rc<OnceCell<ServerProcess>> = Rc::default();
    let measure = move |_| {
        let server = match server.get() {
            Some(server) => server,
            None => {
                let started = ServerProcess::start(&which)?;
                drive.prepare(&started)?;
                server.get_or_init(|| started)
            }
        };
        drive.measure(server)
    };
    let names = Names { case, runner, variant: variant.to_owned() };
    Contestant { names, standing, measure: Box::new(measure) }
}
