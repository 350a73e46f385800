//! Permitted dependencies between crates. This table is the only place that defines their
//! direction.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// The permitted dependencies of a package. Dev-dependencies are not restricted.
struct Layer {
    package: &'static str,
    may_use: Uses,
    /// Permitted only under `[target.'cfg(loom)'.dependencies]`.
    may_use_under_loom: &'static [&'static str],
}

enum Uses {
    /// Only these.
    Only(&'static [&'static str]),
    /// All except these.
    AllBut(&'static [&'static str]),
}

/// Of the library's crates, only `uwork-linux` may use the system's interface; the two below it are
/// independent of any system.
const LAYERS: &[Layer] = &[
    Layer { package: "uwork-policy", may_use: Uses::Only(&["bitflags"]), may_use_under_loom: &[] },
    Layer {
        package: "uwork-engine",
        may_use: Uses::Only(&["uwork-policy"]),
        may_use_under_loom: &["loom"],
    },
    Layer {
        package: "uwork-linux",
        may_use: Uses::Only(&[
            "uwork-policy",
            "uwork-engine",
            "backtrace",
            "framehop",
            "io-uring",
            "libc",
            "perf-event-open-sys",
            "probe",
            "tracing",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-task",
        may_use: Uses::Only(&["uwork-engine", "uwork-linux"]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-percpu",
        may_use: Uses::Only(&["uwork-policy", "uwork-engine", "uwork-linux"]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork",
        may_use: Uses::Only(&[
            "uwork-policy",
            "uwork-engine",
            "uwork-linux",
            "uwork-percpu",
            "uwork-task",
            "crossbeam-epoch",
            "serde_json",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-capi",
        may_use: Uses::Only(&["uwork", "libc", "cc"]),
        may_use_under_loom: &[],
    },
    // The virtual machine; it never calls the system.
    Layer {
        package: "uwork-sim",
        may_use: Uses::Only(&["uwork-policy", "uwork-engine", "corosensei", "fragile"]),
        may_use_under_loom: &[],
    },
    // The same sources as the simulator and the engine, built with the model of costs.
    Layer {
        package: "uwork-engine-recorded",
        may_use: Uses::Only(&["uwork-policy"]),
        may_use_under_loom: &["loom"],
    },
    Layer {
        package: "uwork-sim-costs",
        may_use: Uses::Only(&[
            "uwork-policy",
            "uwork-engine-recorded",
            "corosensei",
            "fragile",
            "mimalloc",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-bridge",
        may_use: Uses::Only(&[
            "uwork",
            "fastrand",
            "libc",
            "redis",
            "rustix",
            "rustls",
            "rustls-native-certs",
            "serde",
            "serde_json",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-bridge-capi",
        may_use: Uses::Only(&["uwork-bridge", "uwork-capi", "libc"]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-example-axum",
        may_use: Uses::Only(&["uwork", "axum", "tokio"]),
        may_use_under_loom: &[],
    },
    // Without the laboratory, so that the command builds fast and stays small.
    Layer {
        package: "uwork-cli",
        may_use: Uses::Only(&[
            "uwork",
            "uwork-bridge",
            "uwork-policy",
            "uwork-sim-costs",
            "addr2line",
            "blake3",
            "clap",
            "clap_complete",
            "clap_mangen",
            "crc32c",
            "indicatif",
            "libc",
            "ratatui",
            "regex-lite",
            "rustc-demangle",
            "rustix",
            "serde_json",
            "sha2",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-serve",
        may_use: Uses::Only(&["uwork", "hashbrown", "libc", "rustix", "sha2"]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-rivals",
        may_use: Uses::AllBut(&[
            "uwork-policy",
            "uwork-engine",
            "uwork-linux",
            "uwork-percpu",
            "uwork-task",
            "uwork-cli",
            "uwork-lab",
            "xtask",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-lab",
        may_use: Uses::AllBut(&[
            "uwork-policy",
            "uwork-engine",
            "uwork-linux",
            "uwork-percpu",
            "uwork-task",
            "uwork-cli",
            "xtask",
        ]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "uwork-fuzz",
        may_use: Uses::Only(&["uwork", "uwork-serve", "libfuzzer-sys"]),
        may_use_under_loom: &[],
    },
    Layer {
        package: "xtask",
        may_use: Uses::Only(&["proc-macro2", "serde_json", "syn", "toml"]),
        may_use_under_loom: &[],
    },
];

pub(super) const RULE: Rule = Rule {
    name: "layers",
    about: "crates depend on each other in the direction of the design",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, manifest) in tree.manifests() {
        // A workspace alone depends on nothing.
        let Some(package) = manifest.get("package") else { continue };
        let package = package.get("name").and_then(toml::Value::as_str).unwrap_or_default();
        match LAYERS.iter().find(|layer| layer.package == package) {
            Some(layer) => findings.extend(check_manifest(layer, file, &manifest)),
            None => {
                let message = format!("`{package}` has no row in xtask's table of layers");
                findings.push(Finding::new(&file.path, 1, RULE.name, message));
            }
        }
    }
    findings
}

fn check_manifest(layer: &Layer, file: &SourceFile, manifest: &toml::Table) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Dependency { target, name } in dependencies(manifest) {
        let under_loom = target == Some("cfg(loom)") && layer.may_use_under_loom.contains(&name);
        let allowed = match layer.may_use {
            Uses::Only(allowed) => allowed.contains(&name),
            Uses::AllBut(banned) => !banned.contains(&name),
        };
        if !allowed && !under_loom {
            let message = format!("`{}` must not depend on `{name}`", layer.package);
            findings.push(Finding::new(&file.path, line_of(file, name), RULE.name, message));
        }
    }
    findings
}

struct Dependency<'a> {
    target: Option<&'a str>,
    /// The package's own name, even if the dependency is renamed.
    name: &'a str,
}

fn dependencies(manifest: &toml::Table) -> Vec<Dependency<'_>> {
    let mut found = of_table(None, manifest);
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        for (target, table) in targets {
            found.extend(
                table.as_table().into_iter().flat_map(|table| of_table(Some(target), table)),
            );
        }
    }
    found
}

fn of_table<'a>(target: Option<&'a str>, table: &'a toml::Table) -> Vec<Dependency<'a>> {
    let sections = ["dependencies", "build-dependencies"].into_iter();
    let tables = sections.filter_map(|section| table.get(section)?.as_table());
    let entries = tables.flatten().map(|(key, value)| {
        let renamed = value.get("package").and_then(toml::Value::as_str);
        Dependency { target, name: renamed.unwrap_or(key) }
    });
    entries.collect()
}

fn line_of(file: &SourceFile, name: &str) -> usize {
    let names =
        |text: &str| text.trim_start().starts_with(name) || text.contains(&format!("\"{name}\""));
    file.lines().find(|(_, text)| names(text)).map_or(1, |(line, _)| line)
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    fn lines(package: &str, rest: &str) -> Vec<usize> {
        let text = format!("[package]\nname = \"{package}\"\n{rest}");
        lines_found(&RULE, "crates/x/Cargo.toml", &text)
    }

    #[test]
    fn dependencies_against_the_direction_are_found() {
        assert_eq!(lines("uwork-policy", "[dependencies]\nlibc = \"0.2\"\n"), [4]);
        assert_eq!(lines("uwork-engine", "[dependencies]\nloom = \"0.7\"\n"), [4]);
        assert_eq!(
            lines("uwork-engine", "[target.'cfg(unix)'.dependencies]\nloom = \"0.7\"\n"),
            [4]
        );
        assert_eq!(lines("uwork-engine", "[dependencies]\nx = { package = \"libc\" }\n"), [4]);
        assert_eq!(lines("uwork", "[dependencies]\nlibc = \"0.2\"\n"), [4]);
        assert_eq!(lines("uwork", "[build-dependencies]\nuwork-rivals = \"0.1\"\n"), [4]);
        assert_eq!(lines("uwork-cli", "[dependencies]\nuwork-engine = {}\n"), [4]);
        assert_eq!(lines("uwork-cli", "[dependencies]\nuwork-rivals = {}\n"), [4]);
        assert_eq!(lines("uwork-lab", "[dependencies]\nuwork-engine = {}\n"), [4]);
        assert_eq!(lines("uwork-lab", "[dependencies]\nuwork-linux = {}\n"), [4]);
    }

    #[test]
    fn dependencies_of_the_design_are_accepted() {
        let engine = "[dependencies]\nuwork-policy = {}\n[dev-dependencies]\nrand = \"1\"\n\
                      [target.'cfg(loom)'.dependencies]\nloom = \"0.7\"\n";
        assert_eq!(lines("uwork-engine", engine), [0; 0]);
        assert_eq!(
            lines("uwork-linux", "[dependencies]\nlibc = \"0.2\"\nuwork-engine = {}\n"),
            [0; 0]
        );
        assert_eq!(lines("uwork-rivals", "[dependencies]\nrayon = \"1\"\n"), [0; 0]);
        assert_eq!(lines("uwork-lab", "[dependencies]\nuwork-rivals = {}\n"), [0; 0]);
    }

    #[test]
    fn a_package_without_a_layer_is_found() {
        assert_eq!(lines("uwork-new", ""), [1]);
    }
}
