//! `uwork topology`: draws a machine and the pods of each affinity scope.
//!
//! The machine is this machine, or one that a file describes in the notation of `uwork_policy::topology::Topology`.

mod draw;
mod json;
mod scopes;
mod source;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use uwork_policy::cpuset::{CpuSet, MAX_CPUS};
use uwork_policy::scope::{
    AffinityScope, AffinityScopeChoice, DEFAULT_SHARD_SIZE, EffectiveAffinityScope, effective_scope,
};

use super::{UserError, print};
use source::Source;

/// The scope that `default` stands for, unless the machine forces a fallback.
const DEFAULT_SCOPE: AffinityScope = AffinityScope::Cache;

/// The command line of `uwork topology`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Draw the machine that FILE describes instead of this machine; - reads standard input.
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,

    /// List every pod of one scope.
    #[arg(long, value_name = "SCOPE", value_parser = super::scope::parser())]
    scope: Option<AffinityScopeChoice>,

    /// Cores in each pod of the scope cache_shard; 0 means 1. [default: 8]
    #[arg(long, value_name = "N")]
    shard_size: Option<String>,

    /// Print the same facts as JSON.
    #[arg(long)]
    json: bool,
}

/// A machine, and the settings that determine its pods.
struct View {
    source: Source,
    /// The CPUs that unbound queues use: the allowed CPUs that are not isolated.
    unbound: CpuSet,
    shard_size: u32,
}

impl View {
    fn effective(&self, choice: AffinityScopeChoice) -> EffectiveAffinityScope {
        effective_scope(
            self.source.topology(),
            choice,
            DEFAULT_SCOPE,
            &self.unbound,
            self.shard_size,
        )
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    let shard_size = match &args.shard_size {
        Some(text) => parse_shard_size(text)?,
        None => DEFAULT_SHARD_SIZE,
    };
    let source = Source::read(args.machine.as_deref())?;
    let view = View { unbound: unbound(&source), source, shard_size };
    let text = match args.json {
        true => json::render(&view, args.scope),
        false => render(&view, args.scope),
    };
    print(&text)
}

fn parse_shard_size(text: &str) -> Result<u32, UserError> {
    let size = text.parse().ok().filter(|size| *size <= MAX_CPUS);
    size.ok_or_else(|| {
        UserError(format!(
            "--shard-size: '{text}' is not a number of cores (allowed: 0 to {MAX_CPUS})"
        ))
    })
}

fn unbound(source: &Source) -> CpuSet {
    let housekeeping = source.allowed().and_not(source.topology().isolated());
    match housekeeping.is_empty() {
        true => source.allowed().clone(),
        false => housekeeping,
    }
}

fn render(view: &View, choice: Option<AffinityScopeChoice>) -> String {
    let mut text = String::new();
    match choice {
        Some(choice) => text.push_str(&scopes::one(view, choice)),
        None => {
            text.push_str(&source::facts(&view.source, &view.unbound));
            let _ = writeln!(
                text,
                "\n{}\n\n{}",
                draw::tree(view.source.topology()),
                scopes::table(view)
            );
        }
    }
    text
}
