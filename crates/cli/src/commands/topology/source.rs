//! The source of the machine description, and the facts that it states directly.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use uwork::dump::BlockingDump;
use uwork::topology::Machine;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::Topology;

use super::UserError;

/// A description is a single line, or one line per core for an irregular machine; both are far
/// below this size.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub(super) enum Source {
    /// The machine that this process runs on.
    Here(Box<Machine>),
    /// A machine that a file describes. The process may use all online CPUs.
    Described(Topology),
}

impl Source {
    /// This machine, or the machine that the file (`-` for standard input) describes.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, UserError> {
        let Some(path) = file else {
            let machine = Machine::read().map_err(|error| UserError(error.to_string()))?;
            return Ok(Self::Here(Box::new(machine)));
        };
        let standard_input = path == Path::new("-");
        let name = match standard_input {
            true => "standard input".to_owned(),
            false => path.display().to_string(),
        };
        let text = match standard_input {
            true => text_of(io::stdin().lock()),
            false => File::open(path).and_then(text_of),
        };
        let text = text.map_err(|error| UserError(format!("{name}: {error}")))?;
        let topology = text.parse::<Topology>();
        topology
            .map(Self::Described)
            .map_err(|error| UserError(format!("{name}:{}: {}", error.line(), error.message())))
    }

    pub(super) fn topology(&self) -> &Topology {
        match self {
            Self::Here(machine) => &machine.topology,
            Self::Described(topology) => topology,
        }
    }

    pub(super) fn allowed(&self) -> &CpuSet {
        match self {
            Self::Here(machine) => &machine.allowed,
            Self::Described(topology) => topology.online(),
        }
    }
}

fn text_of(reader: impl Read) -> io::Result<String> {
    let mut text = String::new();
    reader.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(io::Error::other(format!("too long (allowed: {MAX_FILE_BYTES} bytes)"))),
        false => Ok(text),
    }
}

/// The facts that the drawing does not show, one on each line.
pub(super) fn facts(source: &Source, unbound: &CpuSet) -> String {
    let topology = source.topology();
    let mut lines = vec![("machine", notation(topology)), ("CPUs", cpus(topology))];
    if !topology.isolated().is_empty() {
        lines.push(("isolated", topology.isolated().to_string()));
    }
    if let Source::Here(machine) = source {
        if !machine.nohz_full.is_empty() {
            lines.push(("nohz_full", machine.nohz_full.to_string()));
        }
        let cpuset = machine.cgroup_cpuset.as_ref().map(|cpus| format!(" (cgroup cpuset {cpus})"));
        lines.push(("allowed", format!("{}{}", machine.allowed, cpuset.unwrap_or_default())));
        let quota = machine.quota.map_or("none".to_owned(), |quota| quota.to_string());
        lines.push(("CPU quota", quota));
        let threads = machine.threads_max.map(|max| format!("{max} at most"));
        lines.push(("threads", threads.unwrap_or("no limit found".to_owned())));
        let BlockingDump { tier, reason } = uwork::dump().blocking;
        lines.push(("blocking", format!("{tier} ({reason})")));
    }
    lines.push(("unbound", unbound.to_string()));
    if let Source::Here(machine) = source {
        lines.extend(machine.notes.iter().map(|note| ("note", note.clone())));
    }
    lines.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:<10}{value}");
        text
    })
}

/// The notation, if it fits on one line.
fn notation(topology: &Topology) -> String {
    let notation = topology.to_string();
    match notation.contains('\n') {
        true => "irregular (--json prints its description)".to_owned(),
        false => notation,
    }
}

fn cpus(topology: &Topology) -> String {
    let offline = topology.possible().and_not(topology.online());
    match offline.is_empty() {
        true => format!("{} online", topology.online().len()),
        false => {
            format!("{} online, {} offline ({offline})", topology.online().len(), offline.len())
        }
    }
}
