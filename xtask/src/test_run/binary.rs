//! The test binaries of the workspace, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

pub(super) struct Binary {
    pub(super) package: String,
    /// `lib` for the tests of a library.
    pub(super) target: String,
    pub(super) program: PathBuf,
    /// The folder of the package, in which cargo runs its tests.
    pub(super) folder: PathBuf,
}

impl Binary {
    /// As in `uwork/library`.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.package, self.target)
    }

    /// The program with the environment that cargo sets.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &self.folder).env("CARGO_PKG_NAME", &self.package);
        // libtest's events are unstable.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Z", "unstable-options", "--format", "json"]);
        command
    }

    /// The names of the tests that these arguments select.
    pub(super) fn tests(&self, arguments: &[String]) -> Result<Vec<String>, String> {
        let mut command = Command::new(&self.program);
        command.current_dir(&self.folder).args(arguments).args(["--list", "--format", "terse"]);
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("--list: {}\n{said}", output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }
}

/// Builds the tests that cargo's arguments select. Also returns whether all of them were built.
pub(super) fn build(arguments: &[String]) -> Result<(Vec<Binary>, bool), String> {
    let mut cargo = cargo(&["test", "--no-run", "--no-fail-fast"]);
    cargo.args(arguments).arg("--message-format=json-render-diagnostics");
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut binaries: Vec<Binary> = text.lines().filter_map(test_binary).collect();
    // cargo reports them as they are built.
    binaries.sort_by_key(Binary::label);
    Ok((binaries, output.status.success()))
}

/// cargo, without what the one that runs this program has set for it.
pub(super) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let ours = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(ours) {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// The binary that a message of cargo's announces.
fn test_binary(message: &str) -> Option<Binary> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message.pointer("/profile/test")?.as_bool()?;
    let program = message.get("executable")?.as_str().filter(|_| is_test)?.into();
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let kind = message.pointer("/target/kind/0")?.as_str()?;
    let name = message.pointer("/target/name")?.as_str()?;
    let target = if kind.ends_with("lib") { "lib" } else { name };
    Some(Binary {
        package: package_of(message.get("package_id")?.as_str()?),
        target: target.to_owned(),
        program,
        folder: manifest.parent()?.to_owned(),
    })
}

/// `path+file:///folder/name#0.2.0`, or `path+file:///folder#name@0.2.0`.
fn package_of(id: &str) -> String {
    let (path, version) = id.split_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => path.rsplit('/').next().unwrap_or(path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{package_of, test_binary};

    #[test]
    fn packages_are_named_by_both_forms_of_their_ids() {
        assert_eq!(package_of("path+file:///a/crates/uwork#0.2.0"), "uwork");
        assert_eq!(package_of("path+file:///a/crates/engine#uwork-engine@0.2.0"), "uwork-engine");
    }

    #[test]
    fn only_the_binaries_of_tests_count() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///a/uwork#0.2.0",
                "manifest_path":"/a/uwork/Cargo.toml","target":{{"kind":["{kind}"],"name":"x"}},
                "profile":{{"test":{test}}},"executable":"/t/x-1"}}"#
            )
        };
        let label = |text: String| test_binary(&text).map(|binary| binary.label());
        assert_eq!(label(message("test", true)).as_deref(), Some("uwork/x"));
        assert_eq!(label(message("lib", true)).as_deref(), Some("uwork/lib"));
        assert_eq!(label(message("example", false)), None);
        assert_eq!(label(r#"{"reason":"build-finished","success":true}"#.into()), None);
    }
}
