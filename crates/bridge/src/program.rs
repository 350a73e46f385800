//! Whether a program can be started, as far as that is known before its first job.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Bytes of a script that the system reads for its interpreter.
const HEAD_BYTES: u64 = 256;
/// Interpreters that are scripts themselves: the system follows as many.
const LEVELS_MAX: usize = 4;
/// Where programs are searched without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Where a program is the system's, and its arguments are known.
const OF_SYSTEM: [&str; 4] = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"];

/// Why the system would not start a program. It says nothing about a program that it cannot read,
/// about the loader of a binary, or about formats that the system was taught.
pub(crate) fn check(command: &[OsString]) -> Result<(), String> {
    check_at(command, 0)
}

fn check_at(command: &[OsString], level: usize) -> Result<(), String> {
    let Some((program, words)) = command.split_first() else { return Ok(()) };
    let file = found(program, level)?;
    if !OF_SYSTEM.iter().any(|folder| file.parent() == Some(Path::new(folder))) {
        return Ok(());
    }
    let name = file.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_plain = |word: Option<&OsString>| {
        word.is_some_and(|word| !word.is_empty() && !word.as_bytes().starts_with(b"-"))
    };
    let inner = match name {
        "env" => return through_env(words, level),
        "nice" | "nohup" | "setsid" if is_plain(words.first()) => words,
        // After the time.
        "timeout" if is_plain(words.first()) && words.len() > 1 => &words[1..],
        _ => return Ok(()),
    };
    check_at(inner, level).map_err(|reason| format!("{name} and {:?}: {reason}", inner[0]))
}

/// The program that env starts, which would fail each job with the status 127. Options say where it is
/// searched, so nothing is known with most of them.
fn through_env(words: &[OsString], level: usize) -> Result<(), String> {
    let is_skipped = |word: &OsString| match word.as_bytes() {
        b"-v" | b"--" => true,
        word => !word.starts_with(b"PATH=") && !word.starts_with(b"-") && word.contains(&b'='),
    };
    let at = words.iter().take_while(|word| is_skipped(word)).count();
    match words.get(at) {
        Some(word) if !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=') => {
            let rest = &words[at..];
            check_at(rest, level).map_err(|reason| format!("env and {word:?}: {reason}"))
        }
        _ => Ok(()),
    }
}

/// The file that the system would start.
fn found(program: &OsStr, level: usize) -> Result<PathBuf, String> {
    if program.as_bytes().contains(&b'/') {
        return startable(Path::new(program), level).map(|()| program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut refused = None;
    for folder in std::env::split_paths(&path) {
        // An empty part is the working directory.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let file = folder.join(program);
        match startable(&file, level) {
            Ok(()) => return Ok(file),
            Err(_) if fs::metadata(&file).is_err() => {}
            // The search goes on, as the system's does.
            Err(reason) => _ = refused.get_or_insert(format!("{}: {reason}", file.display())),
        }
    }
    Err(refused.unwrap_or_else(|| "it is in no folder of PATH".to_owned()))
}

/// Whether an error of a start is the job's own, as its id is too long for an environment, or its payload
/// for a file of this user. All others are the program's or the machine's.
pub(crate) fn is_of_job(error: &io::Error) -> bool {
    use io::ErrorKind::{ArgumentListTooLong, FileTooLarge, InvalidInput};
    matches!(error.kind(), ArgumentListTooLong | FileTooLarge | InvalidInput)
}

fn startable(file: &Path, level: usize) -> Result<(), String> {
    let about = fs::metadata(file).map_err(|error| without_number(&error))?;
    if !about.is_file() {
        return Err("it is no file".to_owned());
    }
    access(file, Access::EXEC_OK).map_err(|error| without_number(&error.into()))?;
    // A program may be executed without the right to read it.
    let Ok(open) = File::open(file) else { return Ok(()) };
    let mut head = Vec::new();
    if open.take(HEAD_BYTES).read_to_end(&mut head).is_err() || head.starts_with(b"\x7fELF") {
        return Ok(());
    }
    let Some(interpreter) = interpreter(&head).filter(|words| !words.is_empty()) else {
        return match knows_other_formats() {
            true => Ok(()),
            false => Err("it is neither a binary nor a script that begins with #!".to_owned()),
        };
    };
    if level == LEVELS_MAX {
        return Err("its interpreter is a script, too many times over".to_owned());
    }
    check_at(&interpreter, level + 1)
        .map_err(|reason| format!("its interpreter {:?}: {reason}", interpreter[0]))
}

/// The interpreter of a script, and its argument; None if it is not one. The system passes what
/// follows the interpreter as one word, which `env -S` splits.
fn interpreter(head: &[u8]) -> Option<Vec<OsString>> {
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n' || byte == 0).next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trim = |line: &[u8]| {
        let first = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
        let last = line.iter().rposition(|byte| !is_blank(byte)).map_or(first, |last| last + 1);
        line[first..last].to_vec()
    };
    let line = trim(line);
    let end = line.iter().position(is_blank).unwrap_or(line.len());
    let (interpreter, rest) = (line[..end].to_vec(), trim(&line[end..]));
    let words = match rest.strip_prefix(b"-S") {
        Some(split) => split.split(is_blank).map(<[u8]>::to_vec).collect(),
        None => vec![rest],
    };
    let all = std::iter::once(interpreter).chain(words).filter(|word| !word.is_empty());
    Some(all.map(OsString::from_vec).collect())
}

/// Whether the system was taught formats beside binaries and scripts.
fn knows_other_formats() -> bool {
    let Ok(taught) = fs::read_dir("/proc/sys/fs/binfmt_misc") else { return false };
    let mut names = taught.flatten().map(|entry| entry.file_name());
    names.any(|name| name != "register" && name != "status")
}

/// The text of an error without `(os error 2)`.
pub(crate) fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn made(folder: &tempfile::TempDir, name: &str, text: &str, mode: u32) -> OsString {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file.into()
    }

    #[test]
    fn what_the_system_would_not_start_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |program: &OsStr| check(&[program.to_owned()]).unwrap_err();
        assert_eq!(refused(OsStr::new("/no/such/program")), "No such file or directory");
        assert_eq!(refused(OsStr::new("uwork-no-such")), "it is in no folder of PATH");
        assert_eq!(refused(folder.path().as_os_str()), "it is no file");
        assert_eq!(refused(OsStr::new("/etc/passwd/x")), "Not a directory");
        let plain = made(&folder, "plain", "#!/bin/sh\n", 0o644);
        assert_eq!(refused(&plain), "Permission denied");
        let missing = made(&folder, "missing", "#! /no/such/sh -e\n", 0o755);
        assert_eq!(refused(&missing), "its interpreter \"/no/such/sh\": No such file or directory");
        // A line of another system: the interpreter's name ends with a carriage return.
        let foreign = made(&folder, "foreign", "#!/bin/sh\r\n", 0o755);
        assert_eq!(refused(&foreign), r#"its interpreter "/bin/sh\r": No such file or directory"#);
        let through = format!("#!{}\n", missing.to_str().unwrap());
        let through = made(&folder, "through", &through, 0o755);
        assert!(refused(&through).contains("its interpreter \"/no/such/sh\""));
        let itself = format!("#!{}/itself\n", folder.path().display());
        let itself = made(&folder, "itself", &itself, 0o755);
        assert!(refused(&itself).ends_with("too many times over"));
        for (line, word) in [
            ("#!/usr/bin/env uwork-no-such", "uwork-no-such"),
            ("#! /usr/bin/env  -S A=b uwork-no-such -x ", "uwork-no-such"),
            // The system makes no words of it.
            ("#!/usr/bin/env sh -e", "sh -e"),
        ] {
            let script = made(&folder, "wrong", &format!("{line}\n"), 0o755);
            let reason = format!("env and {word:?}: it is in no folder of PATH");
            let expected = format!("its interpreter \"/usr/bin/env\": {reason}");
            assert_eq!(refused(&script), expected, "{line}");
        }
        for words in [
            "env A=b env uwork-no-such x",
            "nice nohup setsid uwork-no-such",
            "timeout 60 uwork-no-such -x",
        ] {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            let refused = check(&words).unwrap_err();
            assert!(
                refused.ends_with("\"uwork-no-such\": it is in no folder of PATH"),
                "{refused}"
            );
        }
        let around = format!("#!/usr/bin/env {}/around\n", folder.path().display());
        let around = made(&folder, "around", &around, 0o755);
        assert!(refused(&around).ends_with("too many times over"));
        if !knows_other_formats() {
            for text in ["", "echo x\n", "#!\n", "#!  \n"] {
                let bare = made(&folder, "bare", text, 0o755);
                let reason = "it is neither a binary nor a script that begins with #!";
                assert_eq!(refused(&bare), reason, "{text:?}");
            }
        }
    }

    #[test]
    fn a_machine_that_has_no_room_for_a_process_is_no_fault_of_a_job() {
        // EAGAIN at a limit of processes, ENOMEM, EMFILE.
        for number in [11, 12, 24] {
            assert!(!is_of_job(&io::Error::from_raw_os_error(number)));
        }
        let too_long = io::Error::from_raw_os_error(7);
        assert!(is_of_job(&too_long));
    }

    #[test]
    fn what_the_system_would_start_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let check = |words: &[&OsStr]| {
            let words: Vec<OsString> = words.iter().map(|&word| word.to_owned()).collect();
            check(&words).unwrap();
        };
        check(&[OsStr::new("sh")]);
        check(&[OsStr::new("/bin/sh"), OsStr::new("no-such")]);
        check(&[&made(&folder, "script", "#!/bin/sh -e", 0o755)]);
        for line in ["#!/usr/bin/env sh", "#!/usr/bin/env -S A=b sh -e", "#!/usr/bin/env"] {
            check(&[&made(&folder, "script", &format!("{line}\n"), 0o755)]);
        }
        for words in [
            "env sh",
            "env -i no-such",
            "env PATH=/x no-such",
            "env A=b -- sh",
            "env",
            "nice",
            "nice -n 5 no-such",
            "timeout 60 sh",
            "timeout -k 9 60 no-such",
            "timeout 60",
        ] {
            check(&words.split(' ').map(OsStr::new).collect::<Vec<_>>());
        }
        // A script of the operator's with a name of the system's.
        for name in ["env", "nice", "nohup", "setsid", "timeout"] {
            let own = made(&folder, name, "#!/bin/sh\n", 0o755);
            check(&[&own, OsStr::new("no-such"), OsStr::new("no-such")]);
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        check(&[link.as_os_str()]);
    }
}
