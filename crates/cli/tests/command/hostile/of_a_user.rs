//! Root's commands beside the processes of a hostile user, and one of another user.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::{AT_ONCE, SEEDS, chosen, elf, fault, serve, tried};
use crate::observed::until;
use crate::random::Random;
use crate::strangers::{COMMAND, name, process_of, row, said, scene};
use crate::users::{ALICE, BOB, Process, become_user, folder_of};

// Catches: text of a user that harms root, or hides the processes of others.
#[test]
fn root_reads_what_a_user_says_and_sees_the_others() {
    const TEST: &str = "root_reads_what_a_user_says_and_sees_the_others";
    scene(&format!("hostile::of_a_user::{TEST}"), || {
        let (alice, path) = process_of(ALICE);
        let folder = folder_of(BOB, format!("/dev/shm/uwork-{BOB}"), 0o700);
        fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let _files = elf::Files;
        // The children have the mappings.
        elf::address(&mut Random::new(0));
        let adversary = |seed| {
            let mut bob = Process::start(|parent| {
                become_user(BOB);
                let listener = UnixListener::bind(folder.join(name(std::process::id()))).unwrap();
                thread::spawn(move || serve(&listener, seed));
                parent.tell("listens");
                parent.wait();
            });
            bob.hear();
            (seed, bob)
        };
        let bobs: Vec<_> = SEEDS.map(adversary).collect();
        let numbers: Vec<(u64, u32)> = bobs.iter().map(|(seed, bob)| (*seed, bob.pid)).collect();
        let (next, faults) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let try_seeds = || {
            while let Some(&(seed, pid)) =
                numbers.get(next.fetch_add(1, Ordering::Relaxed) as usize)
            {
                let own = tempfile::tempdir_in("/tmp").unwrap();
                let mut random = Random::new(seed);
                let socket = folder.join(name(pid)).display().to_string();
                let chosen = chosen(&mut random, own.path(), &socket, pid);
                let mut command = Command::new(COMMAND);
                command.args(&chosen.0);
                let outcome = tried(&mut random, command, chosen, own.path());
                let text = String::from_utf8_lossy(&outcome.output);
                let sees = |list: &str| {
                    row(list, alice.pid).is_some_and(|row| row.ends_with(path.to_str().unwrap()))
                };
                let blind = outcome.args == ["ls"] && !sees(&text);
                let fault = fault(&outcome, false).or(blind.then(|| "without Alice's".to_owned()));
                if let Some(fault) = fault {
                    faults
                        .lock()
                        .unwrap()
                        .push(format!("seed {seed}: {:?}: {fault}: {text}", outcome.args));
                }
            }
        };
        thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(try_seeds))));
        let faults = faults.into_inner().unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        // Again, if her process got no CPU in its share of the time.
        let complete = |list: &String| row(list, alice.pid).is_some_and(|row| row.contains(" 1 "));
        until(|| Ok::<_, ()>(said(0, &["ls"])), complete);
        let looked_at = |found: &String| {
            let of_alice = found
                .split("\nprocess ")
                .find(|part| part.starts_with(&format!("{}\n", alice.pid)));
            of_alice.is_some_and(|part| part.contains("seen twice: 1 of 1"))
        };
        until(|| Ok::<_, ()>(said(0, &["doctor"])), looked_at);
    });
}
