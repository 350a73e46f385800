//! Machines by name, and machines from text.

use std::fmt;

use uwork_policy::topology::Topology;

/// A machine with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name, as given to `--machine`.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The machine in the notation of topologies.
    pub notation: &'static str,
}

/// The name of the machine on which the program runs. The caller reads that machine.
pub const THIS: &str = "this";

/// The presets, besides [`THIS`].
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "desktop12",
        about: "12-core desktop, one last-level cache",
        notation: "llc:1 core:12",
    },
    Preset { name: "arm8", about: "arm64 virtual machine with 8 CPUs", notation: "core:8" },
    Preset {
        name: "ryzen3900x",
        about: "Ryzen 9 3900X: 12 cores on 4 caches",
        notation: "llc:4 core:3 smt:2",
    },
    Preset {
        name: "epyc128",
        about: "EPYC, 2 sockets of 64 cores on 8 caches each",
        notation: "package:2 llc:8 core:8 smt:2",
    },
    Preset { name: "grace72", about: "Grace, 72 cores on one cache", notation: "core:72" },
    Preset {
        name: "biglittle",
        about: "4 small and 4 big cores",
        notation: "cluster:1 core:4 capacity:446 + cluster:1 core:4",
    },
    Preset {
        name: "numa1024",
        about: "1,024 CPUs in 16 nodes of 8 caches",
        notation: "node:16 llc:8 core:8",
    },
];

/// A text is neither a preset nor a machine. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMachine(String);

impl fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownMachine {}

/// The machine of this name or in this notation.
///
/// # Errors
/// The text is neither; the error has the reason and the names.
///
/// ```
/// let ryzen = uwork_sim::machines::machine("ryzen3900x").unwrap();
/// assert_eq!(ryzen.cpus().len(), 24);
/// assert!(uwork_sim::machines::machine("core:0").is_err());
/// ```
pub fn machine(text: &str) -> Result<Topology, UnknownMachine> {
    let preset = PRESETS.iter().find(|preset| preset.name == text.trim());
    let notation = preset.map_or(text, |preset| preset.notation);
    notation.parse().map_err(|error| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let names = names.join(", ");
        UnknownMachine(format!("machine: {error} (presets: {names})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_have_the_cpus_that_they_name() {
        let cpus: Vec<usize> =
            PRESETS.iter().map(|preset| machine(preset.name).unwrap().cpus().len()).collect();
        assert_eq!(cpus, [12, 8, 24, 256, 72, 8, 1024]);
        assert_eq!(machine("numa1024").unwrap().nodes().len(), 16);
        assert_eq!(machine("epyc128").unwrap().nodes().len(), 2);
    }

    #[test]
    fn an_impossible_machine_is_refused_with_the_reason() {
        let error = machine("core:4 offline:0-3").unwrap_err().to_string();
        assert!(error.contains("at least one CPU must stay online"), "{error}");
        let error = machine("laptop").unwrap_err().to_string();
        assert!(error.contains("desktop12") && error.contains("laptop"), "{error}");
    }
}
