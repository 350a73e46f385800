//! Notes what the program is built from and with, for the figures that it writes.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // A change of any of it makes another state of the code; without a line of these, any file of this crate would do.
    let mut paths: Vec<_> =
        ["crates", "Cargo.toml", "Cargo.lock"].map(|path| root.join(path)).into();
    for log in ["HEAD", "logs/HEAD"] {
        let args = ["rev-parse", "--path-format=absolute", "--git-path", log];
        paths.extend(said_by("git", &args, &root).map(PathBuf::from));
    }
    // One that is not there would be a change each time.
    for path in paths.iter().filter(|path| path.exists()) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let commit = is_repository(&root).then(|| {
        said_by("git", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], &root)
    });
    println!("cargo:rustc-env=UWORK_COMMIT={}", commit.flatten().unwrap_or_default());
    let rustc =
        std::env::var("RUSTC").ok().and_then(|rustc| said_by(&rustc, &["--version"], &root));
    println!("cargo:rustc-env=UWORK_RUSTC={}", rustc.unwrap_or_default());
    let profile = std::env::var("PROFILE").unwrap_or_default();
    println!("cargo:rustc-env=UWORK_PROFILE={profile}");
}

/// Whether this is the top of a repository. Unpacked sources may lie within another one, which is not theirs.
fn is_repository(root: &Path) -> bool {
    let top = said_by("git", &["rev-parse", "--show-toplevel"], root);
    top.is_some_and(|top| Path::new(&top).canonicalize().ok() == root.canonicalize().ok())
}

/// What a program says, if it can be had and does not fail.
fn said_by(program: &str, args: &[&str], directory: &Path) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(directory).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
