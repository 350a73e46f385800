//! Records the commit, the compiler and the profile of this build; benchmark records quote them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Cargo reruns this script when one of these paths changes. Without these lines it would rerun
    // only when a file of this crate changes.
    let mut paths: Vec<_> =
        ["crates", "lab", "Cargo.toml", "Cargo.lock"].map(|path| root.join(path)).into();
    for log in ["HEAD", "logs/HEAD"] {
        let args = ["rev-parse", "--path-format=absolute", "--git-path", log];
        paths.extend(output_of("git", &args, &root).map(PathBuf::from));
    }
    // Cargo treats a missing path as changed in every build.
    for path in paths.iter().filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let commit = is_repository(&root).then(|| {
        output_of("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], &root)
    });
    println!("cargo:rustc-env=UWORK_COMMIT={}", commit.flatten().unwrap_or_default());
    let rustc =
        std::env::var("RUSTC").ok().and_then(|rustc| output_of(&rustc, &["--version"], &root));
    println!("cargo:rustc-env=UWORK_RUSTC={}", rustc.unwrap_or_default());
    let profile = profile().or_else(|| std::env::var("PROFILE").ok()).unwrap_or_default();
    println!("cargo:rustc-env=UWORK_PROFILE={profile}");
}

/// The name of the profile, by the folder of its builds. Cargo's own variable has the name of the
/// profile that it inherits from.
fn profile() -> Option<String> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR")?);
    let folder = out.ancestors().skip(1).find(|folder| folder.ends_with("build"))?.parent()?;
    Some(folder.file_name()?.to_str()?.to_owned())
}

/// Whether `root` is the top of a repository. Unpacked sources may lie inside an unrelated
/// repository.
fn is_repository(root: &Path) -> bool {
    let top = output_of("git", &["rev-parse", "--show-toplevel"], root);
    top.is_some_and(|top| Path::new(&top).canonicalize().ok() == root.canonicalize().ok())
}

/// The program's standard output, or `None` if the program cannot be started or fails.
fn output_of(program: &str, args: &[&str], directory: &Path) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(directory).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
