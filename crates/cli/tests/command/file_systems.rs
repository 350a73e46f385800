//! The command beside file systems that another user serves and that never answer.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::left_out::left_out;
use crate::observed::until;
use crate::strangers::{name, process_of, row, said, scene};
use crate::users::{ALICE, BOB, Process, become_user, folder_of};

/// A file system at this place, which the user serves and which never answers.
fn serve_nothing(place: &Path, user: u32) -> io::Result<File> {
    let server = File::options().read(true).write(true).open("/dev/fuse")?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&server);
    let ids = format!("user_id={user},group_id={user}");
    let data = format!("fd={number},rootmode=40000,{ids},allow_other");
    let [kind, place, data] =
        ["fuse", place.to_str().unwrap(), &data].map(|text| std::ffi::CString::new(text).unwrap());
    // SAFETY: the strings are live.
    let outcome = unsafe {
        libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast())
    };
    if outcome == 0 { Ok(server) } else { Err(io::Error::last_os_error()) }
}

// Catches: root's client that waits for a stranger's file system for ever.
#[test]
fn root_asks_no_file_system_of_a_user() {
    scene("file_systems::root_asks_no_file_system_of_a_user", || {
        let (alice, path) = process_of(ALICE);
        let session = folder_of(BOB, format!("/run/user/{BOB}"), 0o700);
        let other = folder_of(BOB, format!("/tmp/uwork-{BOB}.0000001f"), 0o700);
        let folders = [folder_of(BOB, format!("/tmp/uwork-{BOB}"), 0o700), session, other];
        let mut servers = Vec::new();
        for folder in folders {
            match serve_nothing(&folder, BOB) {
                Ok(server) => servers.push(server),
                Err(why) => {
                    let why = format!("/dev/fuse: {why}");
                    return left_out("root_asks_no_file_system_of_a_user", &why);
                }
            }
        }
        let list = said(0, &["ls"]);
        assert!(row(&list, alice.pid).is_some_and(|row| row.ends_with(path.to_str().unwrap())));
        assert!(said(0, &["doctor"]).contains(&format!("process {}\n", alice.pid)));
        assert!(said(0, &["dump", &alice.pid.to_string()]).contains("queue of-"));
        let bobs = format!("/tmp/uwork-{BOB}/1.sock");
        assert!(said(0, &["dump", &bobs]).contains("is a stranger's file system"));
        // As a process sees it.
        let seen = format!("/proc/{}/root{bobs}", alice.pid);
        assert!(said(0, &["dump", &seen]).contains("it was not opened in time"));
        drop(servers);
    });
}

/// Serves a file system with one file, of any name, which has a page of zeros, as long as `answers`. Then
/// it takes requests and answers none.
fn serve_a_file(mut server: &File, answers: &AtomicBool) {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const READ: u32 = 15;
    const INIT: u32 = 26;
    const BATCH_FORGET: u32 = 42;
    const SIZE: u64 = 4096;
    let folder = || [&le(&[1, 0, 0, 0, 0, 0])[..], &halves(&[0, 0, 0, 0o40_755, 2])].concat();
    let file = || [&le(&[2, SIZE, 8, 0, 0, 0])[..], &halves(&[0, 0, 0, 0o100_755, 1])].concat();
    // User, group, device, size of a block, padding.
    let rest = || halves(&[BOB, BOB, 0, 4096, 0]);
    let mut bytes = vec![0; 1 << 20];
    loop {
        let Ok(length) = server.read(&mut bytes) else { return };
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (kind, number) = (word(4), &bytes[8..16]);
        if !answers.load(Ordering::SeqCst) || matches!(kind, FORGET | BATCH_FORGET) {
            continue;
        }
        let is_folder = word(16) == 1;
        let (error, answer) = match kind {
            // The version, and what a reader or writer may send at a time.
            INIT => (0, [&halves(&[7, 31, 0, 0, 0, 4096, 1])[..], &[0; 36]].concat()),
            // Nothing of it is kept: each look asks again.
            LOOKUP => (0, [le(&[2, 0, 0, 0, 0]), file(), rest()].concat()),
            GETATTR if is_folder => (0, [le(&[0, 0]), folder(), rest()].concat()),
            GETATTR => (0, [le(&[0, 0]), file(), rest()].concat()),
            OPEN => (0, le(&[1, 0])),
            READ => (0, vec![0; SIZE as usize]),
            _ => (-libc::ENOSYS, Vec::new()),
        };
        assert!(length >= 40, "a request has a head");
        let total = u32::try_from(16 + answer.len()).unwrap().to_le_bytes();
        let head = [&total[..], &error.to_le_bytes(), number].concat();
        // Refused, if the request was given up.
        let _ = server.write_all(&[head, answer].concat());
    }
}

fn le(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn halves(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Answers each request of a client with a stuck queue, whose item is at this address.
fn converse(stream: &UnixStream, address: usize) -> io::Result<()> {
    let mut to = stream;
    writeln!(to, "uwork-control 1 {}", std::process::id())?;
    for request in BufReader::new(stream).lines() {
        let text = match &*request? {
            "status" => "queues\t1\nworkers\t1\n".to_owned(),
            "queues" => "name\tkind\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tgate\n\
                stuck\tunbound\t1\t0\t1\t0\t1\t1\topen\n"
                .to_owned(),
            _ => format!(
                "stacks of 1 workers\n  uw/0 (thread 7, slot 1), asleep, in function {address:#x} of \
                 queue \"stuck\"\n      0 {address:#x}\n"
            ),
        };
        write!(to, "ok {}\n{text}", text.len())?;
    }
    Ok(())
}

// Catches: root's client that opens a stranger's file for names, and never ends.
#[test]
fn a_file_system_that_never_answers_keeps_no_command_from_its_end() {
    const TEST: &str = "a_file_system_that_never_answers_keeps_no_command_from_its_end";
    scene(&format!("file_systems::{TEST}"), || {
        let (alice, _) = process_of(ALICE);
        let files = folder_of(BOB, "/tmp/files", 0o755);
        let server = match serve_nothing(&files, BOB) {
            Ok(server) => Arc::new(server),
            Err(why) => return left_out(TEST, &format!("/dev/fuse: {why}")),
        };
        let answers = Arc::new(AtomicBool::new(true));
        let served = (Arc::clone(&server), Arc::clone(&answers));
        thread::spawn(move || serve_a_file(&served.0, &served.1));
        let sockets = folder_of(BOB, format!("/dev/shm/uwork-{BOB}"), 0o700);
        let mut bob = Process::start(|parent| {
            become_user(BOB);
            let file = File::open(files.join("lib.so")).unwrap();
            let (access, kind) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE);
            let number = std::os::fd::AsRawFd::as_raw_fd(&file);
            // SAFETY: a new mapping, which nothing reads.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, number, 0) };
            assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
            // Its last look at the server before that is silent: the mapping needs none at its end.
            drop(file);
            let address = at.addr() + 16;
            let listener = UnixListener::bind(sockets.join(name(std::process::id()))).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    // The client leaves when it has seen enough.
                    thread::spawn(move || converse(&stream, address));
                }
            });
            parent.tell("listens");
            parent.wait();
        });
        bob.hear();
        answers.store(false, Ordering::SeqCst);
        let pid = bob.pid.to_string();
        // Again, if a process got no CPU in its share of the time.
        let said = |args: &[&str]| Ok::<_, ()>(said(0, args));
        for args in [&["dump", &pid][..], &["doctor", &pid], &["top", "-i", "0.05", &pid]] {
            let mut parts = vec!["stuck"];
            parts.extend((args[0] != "top").then_some("/tmp/files/lib.so: it was not read"));
            until(|| said(args), |text| parts.iter().all(|part| text.contains(part)));
        }
        let seen = format!("process {}\n", alice.pid);
        let parts = [&*seen, "seen twice: 1 of 1", "queue stuck: all permits"];
        until(|| said(&["doctor"]), |text| parts.iter().all(|part| text.contains(part)));
    });
}
