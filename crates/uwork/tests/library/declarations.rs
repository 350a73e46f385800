//! The compiler's messages about a missing declaration of an item: each has the line to add, and the
//! program compiles with it.

use std::cmp::Reverse;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::support::left_out::left_out;

/// The newest build of this library that has all features. Cargo keeps builds with fewer features beside
/// it, and a build that runs at the same time may be writing one.
fn library() -> Option<&'static Path> {
    static FOUND: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let uses = "pub use uwork::{Work, rcu::RcuWork, task::TaskWork};";
        builds().into_iter().find(|build| refusal_by(build, "features", uses).is_none())
    });
    FOUND.as_deref()
}

/// The builds of this library, the newest first.
fn builds() -> Vec<PathBuf> {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().expect("a folder").read_dir().expect("its files");
    let paths = folder.map(|entry| entry.expect("a file").path());
    let of_library = paths.filter(|path| {
        let name = path.file_name().expect("a name").to_string_lossy();
        name.starts_with("libuwork-") && name.ends_with(".rlib")
    });
    let mut builds: Vec<_> = of_library.collect();
    builds.sort_by_key(|path| Reverse(path.metadata().and_then(|data| data.modified()).ok()));
    builds
}

/// The compiler, if it can be started.
fn compiler() -> Option<Command> {
    let name = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let runs =
        Command::new(&name).arg("--version").output().is_ok_and(|said| said.status.success());
    runs.then(|| Command::new(name))
}

/// As [`refusal_by`], with the build that has all features.
fn refusal(name: &str, source: &str) -> Option<String> {
    let library = library().expect("a build of the library with the features rcu and task");
    refusal_by(library, name, source)
}

/// Compiles a program of this name with a build of the library, without linking it. What the compiler
/// says, if it refuses it.
fn refusal_by(library: &Path, name: &str, source: &str) -> Option<String> {
    let mut compiler = compiler()
        .expect("a compiler")
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--crate-name",
            name,
            "--out-dir",
        ])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(format!("dependency={}", library.parent().expect("a folder").display()))
        .arg("--extern")
        .arg(format!("uwork={}", library.display()))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    // A compiler that cannot start to read says why.
    let _ = compiler.stdin.take().expect("a pipe").write_all(source.as_bytes());
    let output = compiler.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(said)
}

/// The type of a field, the declaration, the function of the item, and a function that submits it.
const KINDS: [[&str; 4]; 4] = [
    [
        "uwork::Work<Job>",
        "uwork::has_work!(impl HasWork for Job { work });",
        "impl uwork::WorkItem for Job { type Pointer = Arc<Job>; fn run(_: Arc<Job>) {} }",
        "fn submit(queue: &uwork::Queue, job: Arc<Job>) { queue.enqueue(job); }",
    ],
    [
        "uwork::DelayedWork<Job>",
        "uwork::has_work!(impl HasDelayedWork for Job { work });",
        "impl uwork::WorkItem for Job { type Pointer = Arc<Job>; fn run(_: Arc<Job>) {} }",
        "fn submit(queue: &uwork::Queue, job: Arc<Job>) { queue.enqueue_delayed(job, Duration::ZERO); }",
    ],
    [
        "uwork::rcu::RcuWork<Job>",
        "uwork::has_work!(impl HasRcuWork for Job { work });",
        "impl uwork::WorkItem for Job { type Pointer = Arc<Job>; fn run(_: Arc<Job>) {} }",
        "fn submit(queue: &uwork::Queue, job: Arc<Job>) { queue.enqueue_rcu(job); }",
    ],
    [
        "uwork::task::TaskWork<Job>",
        "uwork::has_task_work!(impl HasTaskWork for Job { work });",
        "impl uwork::task::TaskItem for Job { type Pointer = Arc<Job>; fn run(_: Arc<Job>) {} }",
        "fn submit(task: &uwork::task::TaskHandle, job: Arc<Job>) { task.add(job, uwork::task::Notify::None); }",
    ],
];

// Catches: a message that names a trait of the library and not the missing line; a line that does not
// compile where it is added.
#[test]
fn a_missing_declaration_is_in_the_compilers_message() {
    if compiler().is_none() {
        return left_out("declarations", "rustc cannot be run");
    }
    for [field, declaration, function, submit] in KINDS {
        let program = |lines: &[&str]| {
            format!(
                "#![allow(unused)]\nuse std::{{sync::Arc, time::Duration}};\nstruct Job {{ work: {field} }}\n{}\n",
                lines.join("\n")
            )
        };
        let missing = refusal("missing", &program(&[function, submit]));
        let missing = missing.expect("refused without its declaration");
        assert!(missing.contains(declaration), "{declaration} is not in: {missing}");
        let declared = refusal("missing", &program(&[declaration, function, submit]));
        assert_eq!(declared, None, "with {declaration}");
    }
}

// Catches: the message of the other kind of item, which leads to a line that is there already.
#[test]
fn a_declaration_of_another_kind_leads_to_the_right_one() {
    if compiler().is_none() {
        return left_out("declarations", "rustc cannot be run");
    }
    let [_, of_work, function, _] = KINDS[0];
    for [field, declaration, _, submit] in [KINDS[1], KINDS[2]] {
        let program = format!(
            "use std::{{sync::Arc, time::Duration}};\nstruct Job {{ work: uwork::Work<Job>, other: {field} }}\n\
             {of_work}\n{function}\n{submit}\n"
        );
        let said = refusal("other", &program);
        let said = said.expect("refused with the declaration of another item");
        assert!(said.contains(declaration), "{declaration} is not in: {said}");
    }
}
