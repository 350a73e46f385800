//! The origin of figures: the machine and the build. Figures of different origins are not directly
//! comparable.

use std::fs;

use serde::Serialize;

use super::contestant::cpus;

/// A part of each record. The field names are fixed; unknown values are null.
#[derive(Clone, Serialize)]
pub(super) struct Origin {
    /// Number of CPUs that the process may use.
    cpus: usize,
    cpu_model: Option<String>,
    kernel: Option<String>,
    version: &'static str,
    /// The commit of the sources, with `-dirty` if they differed from it.
    commit: Option<&'static str>,
    profile: Option<&'static str>,
    rustc: Option<&'static str>,
}

impl Origin {
    pub(super) fn here() -> Self {
        let known = |text: &'static str| (!text.is_empty()).then_some(text);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let described = fs::read_to_string("/proc/cpuinfo").ok();
        Self {
            cpus: cpus(),
            cpu_model: described.as_deref().and_then(cpu_model),
            kernel: kernel.map(|release| release.trim().to_owned()),
            version: env!("CARGO_PKG_VERSION"),
            commit: known(env!("UWORK_COMMIT")),
            profile: known(env!("UWORK_PROFILE")),
            rustc: known(env!("UWORK_RUSTC")),
        }
    }
}

/// The name of the first CPU; some architectures do not report it.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let mut names = fields.filter(|(name, _)| name.trim() == "model name");
    names.next().map(|(_, model)| model.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_that_of_the_first_cpu_that_reports_it() {
        let cpuinfo = "processor\t: 0\nmodel\t\t: 17\nmodel name\t: A Processor: 9\n\n\
                       processor\t: 1\nmodel name\t: Another\n";
        assert_eq!(cpu_model(cpuinfo).as_deref(), Some("A Processor: 9"));
        assert_eq!(cpu_model("processor\t: 0\nCPU implementer\t: 0x41\n"), None);
    }
}
