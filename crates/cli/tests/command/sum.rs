//! `uwork sum` compared with the real `sha256sum`: the same output, and each checks the other's
//! files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use tempfile::TempDir;

const UWORK: &str = env!("CARGO_BIN_EXE_uwork");

/// A new directory, and commands that run in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A directory on the file system of the build, where programs can be executed.
    fn of_programs() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: impl AsRef<OsStr>, content: impl AsRef<[u8]>) {
        let path = self.path(name.as_ref());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    fn sum<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        without_niceness(self.command(UWORK).arg("sum").args(args).output().unwrap())
    }

    fn sha256sum<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.command("sha256sum").args(args).output().unwrap()
    }

    /// The output of `sha256sum` for all regular files below `dir`, in the order of `LC_ALL=C
    /// sort`.
    fn sha256sum_tree(&self, dir: &str, flag: &str) -> Vec<u8> {
        let script = r#"find "$1" -type f -print0 | sort -z | xargs -0 sha256sum $2"#;
        let output = self.command("sh").args(["-c", script, "sh", dir, flag]).output().unwrap();
        assert_eq!(text(&output.stderr), "");
        output.stdout
    }
}

/// Removes the report of a refused niceness. It appears if the tests themselves run at a niceness,
/// because an unprivileged process cannot lower it again.
fn without_niceness(mut output: Output) -> Output {
    let is_report = |line: &[u8]| line.starts_with(b"uwork: niceness ");
    let lines = output.stderr.split_inclusive(|&byte| byte == b'\n');
    output.stderr = lines.filter(|line| !is_report(line)).collect::<Vec<_>>().concat();
    output
}

fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace("\\n", "\n").replace("\\'", "'").replace("\\\"", "\"")
}

/// Asserts the exit code and both outputs of a command.
#[track_caller]
fn assert_output(output: &Output, code: i32, stdout: &[u8], stderr: &str) {
    assert_eq!(text(&output.stdout), text(stdout));
    assert_eq!(text(&output.stderr), stderr);
    assert_eq!(output.status.code(), Some(code));
}

#[track_caller]
fn assert_refused(output: &Output, reason: &str) {
    let stderr = text(&output.stderr);
    assert!(stderr.contains(reason), "{stderr}");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("", Some(2)));
}

/// The digest of the empty file.
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Names that are hard to print or to sort, and files that are empty, long, many and deeply nested.
fn make_tree(place: &Place) {
    let names: [&[u8]; 14] = [
        b"plain",
        b"two words",
        b"new\nline",
        b"back\\slash",
        b"carriage\rreturn",
        b"tab\t",
        b"\xff\xfe",
        b"-dash",
        b"*star",
        b" leading",
        b"trailing ",
        b"(paren) = x",
        b"quote'\"",
        b"\\n",
    ];
    for (i, name) in names.iter().enumerate() {
        place.write(OsString::from_vec([b"tree/".as_slice(), name].concat()), i.to_string());
    }
    for name in [
        "a",
        "a-b/x",
        "a.b/x",
        "a0/x",
        "a b/x",
        "A/a/a",
        "A/a-a",
        "A/a.a",
        "dir\nname/x",
        "dir\\name/y",
    ] {
        place.write(format!("tree/sort/{name}"), name);
    }
    place.write("tree/empty", "");
    for i in 0..300 {
        place.write(format!("tree/many/{i}"), i.to_string());
        place.write(format!("tree/many/{i}.d/{i}"), vec![i as u8; 50 * i]);
    }
    place.write(format!("tree{}/deep", "/a directory of some length".repeat(60)), "deep");
    // Around the length of one read, and well beyond it, with files before and after.
    for len in [131_071, 131_072, 131_073, 262_144, 5_000_001] {
        place.write(format!("tree/long/{len}"), vec![7; len]);
        place.write(format!("tree/long/{len}-"), "short");
    }
    fs::create_dir_all(place.path("tree/nothing/here")).unwrap();
    symlink("plain", place.path("tree/link")).unwrap();
    symlink("sort", place.path("tree/link-to-dir")).unwrap();
    symlink("nowhere", place.path("tree/dangling")).unwrap();
    symlink(".", place.path("tree/loop")).unwrap();
    assert!(place.command("mkfifo").arg("tree/fifo").status().unwrap().success());
}

#[test]
fn a_tree_prints_the_lines_of_find_sort_and_sha256sum() {
    let place = Place::new();
    make_tree(&place);
    for dir in ["tree", "tree/", "./tree", ".", "tree/long"] {
        assert_output(&place.sum([dir]), 0, &place.sha256sum_tree(dir, ""), "");
        assert_output(&place.sum(["-z", dir]), 0, &place.sha256sum_tree(dir, "-z"), "");
    }
}

#[test]
fn arguments_keep_their_order_and_may_repeat() {
    let place = Place::new();
    place.write("b", "b");
    place.write("a", "a");
    place.write("d/2", "2");
    place.write("d/1", "1");
    place.write("d e\\f", "");
    for i in 0..200 {
        place.write(format!("f{i}"), i.to_string());
    }
    symlink("b", place.path("link")).unwrap();
    symlink("d", place.path("link-to-dir")).unwrap();
    let files = (0..200).rev().map(|i| format!("f{i}"));
    let head = ["b", "a", "b", "d e\\f", "./a", "link"].map(str::to_owned);
    let arguments: Vec<String> = head.into_iter().chain(files).collect();
    assert_output(&place.sum(&arguments), 0, &place.sha256sum(&arguments).stdout, "");

    let expected = place
        .sha256sum(["b", "d/1", "d/2", "a", "link-to-dir/1", "link-to-dir/2", "d/1", "d/2"])
        .stdout;
    assert_output(&place.sum(["b", "d", "a", "link-to-dir", "d"]), 0, &expected, "");
}

#[test]
fn standard_input_is_read_once_in_its_turn() {
    let place = Place::new();
    place.write("a", "a");
    place.write("in", "from the pipe");
    let run = |program: &str, arguments: &[&str]| {
        let stdin = fs::File::open(place.path("in")).unwrap();
        without_niceness(place.command(program).args(arguments).stdin(stdin).output().unwrap())
    };
    for arguments in [&["a", "-", "a", "-"][..], &["-"], &[]] {
        let expected = run("sha256sum", arguments);
        let output = run(UWORK, &[&["sum"], arguments].concat());
        assert_output(&output, 0, &expected.stdout, "");
    }
}

#[test]
fn each_algorithm_prints_the_same_shape() {
    let place = Place::new();
    place.write("new\nline", "123456789");
    place.write("abc", "abc");
    let blake3 = "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85  abc\n";
    assert_output(&place.sum(["-a", "blake3", "abc"]), 0, blake3.as_bytes(), "");
    assert_output(&place.sum(["-a", "crc32c", "new\nline"]), 0, b"\\e3069283  new\\nline\n", "");
    assert_output(&place.sum(["-a", "crc32c", "-z", "new\nline"]), 0, b"e3069283  new\nline\0", "");
    for algorithm in ["sha256", "blake3", "crc32c"] {
        place.write("LIST", place.sum(["-a", algorithm, "abc", "new\nline"]).stdout);
        let expected = b"abc: OK\n\\new\\nline: OK\n";
        assert_output(&place.sum(["-a", algorithm, "-c", "LIST"]), 0, expected, "");
    }
}

#[test]
fn sha256sum_checks_what_uwork_wrote_and_the_other_way_round() {
    let place = Place::new();
    make_tree(&place);
    place.write("OURS", place.sum(["tree"]).stdout);
    place.write("THEIRS", place.sha256sum_tree("tree", ""));
    place.write("TAGGED", place.sha256sum_tree("tree", "--tag"));
    place.write("BINARY", place.sha256sum_tree("tree", "--binary"));
    assert_output(&place.sha256sum(["--check", "--strict", "--quiet", "OURS"]), 0, b"", "");
    for list in ["OURS", "THEIRS", "TAGGED", "BINARY"] {
        assert_output(&place.sum(["--check", "--strict", "--quiet", list]), 0, b"", "");
    }
    assert_output(&place.sum(["-c", "--quiet", "OURS", "TAGGED"]), 0, b"", "");
}

#[test]
fn a_check_prints_what_sha256sum_prints() {
    let place = Place::new();
    for name in ["good", "bad", "gone", "two words"] {
        place.write(name, name);
    }
    let mut list = place.sha256sum(["good", "bad", "gone", "two words"]).stdout;
    list.extend_from_slice(b"# a comment\n\nnonsense\n");
    place.write("LIST", list);
    place.write("bad", "changed");
    fs::remove_file(place.path("gone")).unwrap();
    let flags: [&[&str]; 8] = [
        &[],
        &["--quiet"],
        &["--status"],
        &["--ignore-missing"],
        &["--warn"],
        &["-w", "--status"],
        &["--status", "-w"],
        &["--status", "--quiet"],
    ];
    for flags in flags {
        let arguments = [flags, &["-c", "LIST"]].concat();
        let expected = place.sha256sum(&arguments);
        let stderr = text(&expected.stderr).replace("sha256sum: ", "uwork: ");
        assert_output(&place.sum(&arguments), 1, &expected.stdout, &malformed_first(&stderr));
    }
    place.write("ONE", format!("{EMPTY}  nowhere\n"));
    let expected = "uwork: ONE: no file was verified\n";
    assert_output(&place.sum(["-c", "--ignore-missing", "ONE"]), 1, b"", expected);
}

/// Moves the warnings about malformed lines to the front: a checksum file is parsed before its
/// listed files are read.
fn malformed_first(stderr: &str) -> String {
    let mut lines: Vec<_> = stderr.split_inclusive('\n').collect();
    lines.sort_by_key(|line| !line.contains("improperly formatted SHA256"));
    lines.concat()
}

#[test]
fn a_checksum_file_that_is_missing_or_malformed_is_reported_and_the_others_are_checked() {
    let place = Place::new();
    place.write("good", "");
    place.write("NONSENSE", "nonsense\n\n# comment\n");
    place.write("EMPTY", "");
    place.write("MIXED", format!("{EMPTY}  good\nnonsense\n"));
    place.write("GOOD", format!("{EMPTY}  good\n"));
    for (list, reason) in [
        ("NONSENSE", "NONSENSE: no properly formatted SHA256 checksum lines found"),
        ("EMPTY", "EMPTY: no properly formatted SHA256 checksum lines found"),
        ("nowhere", "nowhere: No such file or directory\n"),
        (".", ".: Is a directory\n"),
    ] {
        for lists in [[list, "GOOD"], ["GOOD", list]] {
            let arguments = [&["-c"][..], &lists].concat();
            let (output, theirs) = (place.sum(&arguments), place.sha256sum(&arguments));
            let stderr = text(&output.stderr);
            assert!(stderr.starts_with(&format!("uwork: {reason}")), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            assert_eq!(text(&output.stdout), "good: OK\n");
            assert_eq!(text(&output.stdout), text(&theirs.stdout));
            assert_eq!((output.status.code(), theirs.status.code()), (Some(1), Some(1)));
        }
    }
    let other = place.sum(["-a", "crc32c", "-c", "GOOD"]);
    assert!(text(&other.stderr).contains("GOOD: no properly formatted CRC32C"));
    assert_eq!(other.status.code(), Some(1));
    let warning = "uwork: WARNING: 1 line is improperly formatted\n";
    assert_output(&place.sum(["-c", "MIXED"]), 0, b"good: OK\n", warning);
    let theirs = place.sha256sum(["-c", "--strict", "MIXED"]);
    let code = theirs.status.code().unwrap();
    assert_output(&place.sum(["-c", "--strict", "MIXED"]), code, &theirs.stdout, warning);
}

#[test]
fn a_missing_argument_is_reported_in_its_turn_and_the_others_are_summed() {
    let place = Place::new();
    place.write("plain", "a");
    place.write("d/x", "x");
    symlink("nowhere", place.path("dangling")).unwrap();
    for arguments in [
        &["nosuch", "plain"][..],
        &["plain", "nosuch"],
        &["plain", "no where", "d/x", "dangling", "plain"],
        &["plain/below", "", "d/x"],
        &["nosuch"],
    ] {
        let theirs = place.sha256sum(arguments);
        let stderr = text(&theirs.stderr).replace("sha256sum: ", "uwork: ");
        assert_output(&place.sum(arguments), 1, &theirs.stdout, &stderr);
    }
    let expected = place.sha256sum(["d/x", "plain"]).stdout;
    let stderr = "uwork: nosuch: No such file or directory\n";
    assert_output(&place.sum(["nosuch", "d", "plain"]), 1, &expected, stderr);
}

#[test]
fn an_invalid_command_line_is_refused_before_anything_is_read() {
    let place = Place::new();
    place.write("file", "");
    assert_refused(&place.sum(["-a", "md4", "file"]), "sha256");
    assert_refused(&place.sum(["--quiet", "file"]), "--check");
    assert_refused(&place.sum(["-z", "-c", "file"]), "--check");
    assert_refused(&place.sum(["-v", "-c", "file"]), "--check");
    assert_refused(&place.sum(["--scope", "galaxy", "file"]), "galaxy");
}

#[test]
fn verbose_counts_skipped_entries_once() {
    let place = Place::new();
    make_tree(&place);
    let _socket = UnixListener::bind(place.path("tree/socket")).unwrap();
    symlink("plain", place.path("tree/sort/link")).unwrap();
    let expected = place.sha256sum_tree("tree", "");
    let skipped = "uwork: skipped: 5 symbolic links, 1 fifo, 1 socket\n";
    assert_output(&place.sum(["-v", "tree"]), 0, &expected, skipped);
    assert_output(&place.sum(["tree"]), 0, &expected, "");
    assert_output(
        &place.sum(["-v", "tree/sort/a"]),
        0,
        &place.sha256sum(["tree/sort/a"]).stdout,
        "",
    );
    let twice = place.sum(["-v", "tree/sort", "nosuch", "tree/sort"]);
    let stderr = "uwork: nosuch: No such file or directory\nuwork: skipped: 2 symbolic links\n";
    assert_eq!((text(&twice.stderr).as_str(), twice.status.code()), (stderr, Some(1)));
}

/// Makes a root's command run as the user nobody. It changes the user in the directory where the
/// command starts, which this user may be unable to reach by its path.
fn as_nobody(command: &mut Command) {
    const NOBODY: u32 = 65_534;
    // SAFETY: the closure makes three system calls, one with a null pointer to no groups.
    unsafe {
        command.pre_exec(|| {
            let has_changed = libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(NOBODY) == 0
                && libc::setuid(NOBODY) == 0;
            if has_changed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}

#[test]
fn unreadable_files_and_directories_are_reported_and_the_rest_is_processed() {
    let place = Place::of_programs();
    for name in ["tree/a", "tree/locked/x", "tree/secret file", "tree/z", "other"] {
        place.write(name, name);
    }
    for name in ["tree/locked", "tree/secret file", "other"] {
        fs::set_permissions(place.path(name), Permissions::from_mode(0o000)).unwrap();
    }
    fs::set_permissions(place.0.path(), Permissions::from_mode(0o755)).unwrap();
    // Root may read everything, so the command runs as the user nobody, from a copy that this user
    // may execute.
    fs::copy(UWORK, place.path("uwork")).unwrap();
    fs::set_permissions(place.path("uwork"), Permissions::from_mode(0o755)).unwrap();
    let mut command = place.command("./uwork");
    if fs::metadata(place.0.path()).unwrap().uid() == 0 {
        as_nobody(&mut command);
    }
    command.args(["sum", "tree", "other", "tree/locked/x", "tree/a"]);
    let output = loop {
        match command.output() {
            // Another test has just forked, and its child still has this new file open for writing.
            Err(busy) if busy.kind() == ErrorKind::ExecutableFileBusy => thread::yield_now(),
            output => break output.unwrap(),
        }
    };
    let output = without_niceness(output);
    let stderr = "uwork: tree/locked: Permission denied\nuwork: 'tree/secret file': Permission denied\n\
                  uwork: other: Permission denied\nuwork: tree/locked/x: Permission denied\n";
    assert_output(&output, 1, &place.sha256sum(["tree/a", "tree/z", "tree/a"]).stdout, stderr);
    fs::set_permissions(place.path("tree/locked"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_file_that_fails_during_reading_is_reported() {
    let place = Place::new();
    place.write("a", "a");
    // /proc/self/mem opens, but cannot be read at offset 0, where nothing is mapped.
    let output = place.sum(["a", "/proc/self/mem", "a"]);
    let stderr = "uwork: /proc/self/mem: Input/output error\n";
    assert_output(&output, 1, &place.sha256sum(["a", "a"]).stdout, stderr);
    place.write("LIST", format!("{EMPTY}  /proc/self/mem\n{EMPTY}  .\n"));
    let stderr = "uwork: /proc/self/mem: Input/output error\nuwork: .: Is a directory\n\
                  uwork: WARNING: 2 listed files could not be read\n";
    let stdout = b"/proc/self/mem: FAILED open or read\n.: FAILED open or read\n";
    assert_output(&place.sum(["-c", "LIST"]), 1, stdout, stderr);
}

#[test]
fn a_directory_too_deep_for_a_path_is_reported_and_the_rest_is_processed() {
    let place = Place::new();
    place.write("tree/z", "z");
    let script =
        "cd tree; i=0; while [ $i -lt 25 ]; do mkdir $1; cd -P $1; echo $i > f; i=$((i + 1)); done";
    let long_name = "d".repeat(200);
    assert!(
        place.command("bash").args(["-c", script, "sh", &long_name]).status().unwrap().success()
    );
    let output = place.sum(["tree"]);
    let stderr = text(&output.stderr);
    assert!(stderr.ends_with("d: File name too long\n") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!((output.status.code(), output.stdout.ends_with(b"  tree/z\n")), (Some(1), true));
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    let place = Place::new();
    for i in 0..500 {
        place.write(format!("tree/{i}"), "");
    }
    // Not a pipe, whose reader a process of another test may have until its exec.
    let (reader, writer) = UnixStream::pair().unwrap();
    reader.shutdown(Shutdown::Both).unwrap();
    let mut sum = place.command(UWORK);
    let output = sum.args(["sum", "tree"]).stdout(OwnedFd::from(writer)).output().unwrap();
    assert_output(&without_niceness(output), 141, b"", "");
}

#[test]
fn a_full_disk_is_reported() {
    let place = Place::new();
    place.write("a", "");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.command(UWORK).args(["sum", "a"]).stdout(full).output().unwrap();
    let output = without_niceness(output);
    assert_output(&output, 1, b"", "uwork: standard output: No space left on device\n");
}

#[test]
fn lines_are_printed_before_an_unfinished_file() {
    use std::io::{BufRead, BufReader};
    let place = Place::new();
    place.write("a", "");
    let mut command = place.command(UWORK);
    let mut child = command
        .args(["sum", "a", "-", "a"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), format!("{EMPTY}  a"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"abc").unwrap();
    drop(stdin);
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  -";
    assert_eq!(lines.next().unwrap().unwrap(), abc);
    assert_eq!(lines.next().unwrap().unwrap(), format!("{EMPTY}  a"));
    assert!(child.wait().unwrap().success());
}
