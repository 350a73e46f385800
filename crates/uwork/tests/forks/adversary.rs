//! A program that does to its descriptors, in random order, whatever it may do: the items go on, and
//! each of its files stays what it opened. The seed stands in the output of a run that fails.

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::child::{alone_each, limit};
use crate::support::descriptors::{CloseAll, Files, open_descriptors, until_at_rest};
use crate::support::forked::in_child;
use crate::support::random::Random;
use crate::support::tiers::{VARIABLE, collect_reports};
use crate::support::{queue, watchdog};
use uwork::task::{self, Notify, TaskHandle};
use uwork::{Queue, blocking};

/// Steps of a process.
const STEPS: u32 = 40;
/// Steps of a child.
const CHILD_STEPS: u32 = 4;
/// Items of a step.
const ITEMS: u32 = 12;
/// Clients of the program's listener, which wait until the end.
const CLIENTS: usize = 3;
/// The limit of open files: at first, and the lowest.
const MOST: u64 = 4096;
const FEW: u64 = 40;

struct Program {
    random: Random,
    queue: Queue,
    /// The open files of the program.
    files: Vec<Files>,
    /// Numbers that the library had when the program closed or replaced them.
    taken: BTreeSet<RawFd>,
}

impl Program {
    fn new(seed: u64) -> Program {
        let queue = queue("adversary").nice(1).max_active(8).build().unwrap();
        Program { random: Random::new(seed), queue, files: Vec::new(), taken: BTreeSet::new() }
    }

    /// Items of each kind: all of them run, each once.
    fn run_items(&mut self) {
        let ran = Arc::new(AtomicU32::new(0));
        for _ in 0..ITEMS {
            let (ran, kind) = (ran.clone(), self.random.below(4));
            let item = move || {
                let time = Duration::from_micros(300);
                // tidy: allow(test-sleep): a worker that blocks without saying so is what is observed
                let pause = || std::thread::sleep(time);
                match kind {
                    0 => pause(),
                    1 => blocking(pause),
                    _ => {}
                }
                ran.fetch_add(1, Ordering::Relaxed);
            };
            self.queue.execute(item).unwrap();
        }
        self.queue.flush().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), ITEMS);
        self.run_task_work();
    }

    /// An item for this thread, which waits for it by its eventfd.
    fn run_task_work(&mut self) {
        let (notifier, handle) = (task::notifier().unwrap(), TaskHandle::current());
        let added = self.queue.spawn(move || handle.add_fn(Notify::Signal, || ()).is_ok());
        let mut ran = 0;
        while ran == 0 {
            let number = std::os::fd::AsFd::as_fd(&notifier).as_raw_fd();
            let mut file = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
            // SAFETY: the structure is live.
            let _ = notifier.wait(|| unsafe { libc::poll(&raw mut file, 1, -1) });
            ran = task::run_once();
        }
        assert!(added.join().unwrap());
    }

    /// Every file of the program is as it was; they are closed.
    fn check(&mut self) {
        self.files.drain(..).for_each(Files::are_intact);
    }

    /// Closes numbers of the library's by `close`, and opens files under them.
    fn replace(&mut self, close: impl FnOnce(&mut Random) -> Vec<RawFd>) {
        until_at_rest();
        let numbers = close(&mut self.random);
        self.taken.extend(&numbers);
        let rotation = self.random.below(16) as usize;
        self.files.push(Files::open(&numbers, rotation));
    }

    fn step(&mut self, may_fork: bool) {
        match self.random.below(if may_fork { 6 } else { 4 }) {
            0 | 1 => {
                self.check();
                self.replace(|random| {
                    let all = [CloseAll::AtOnce, CloseAll::OneByOne];
                    random.pick(&all).run()
                });
            }
            // Some of the library's numbers, or of those that it may have soon.
            2 => {
                self.check();
                self.replace(|random| {
                    let mut numbers = open_descriptors();
                    numbers.retain(|_| random.one_in(2));
                    numbers.extend((0..4).map(|_| 1024 + random.below(32) as RawFd));
                    // SAFETY: no owner of a descriptor in the test uses it later.
                    numbers.iter().for_each(|&number| _ = unsafe { libc::close(number) });
                    numbers
                });
            }
            3 => {
                let few = FEW + self.random.below(MOST - FEW);
                limit(libc::RLIMIT_NOFILE, if self.random.one_in(3) { FEW } else { few });
                self.run_items();
                limit(libc::RLIMIT_NOFILE, MOST);
            }
            _ => {
                let seed = self.random.next();
                in_child(|| {
                    let mut child = Program::new(seed);
                    child.replace(|random| {
                        random.pick(&[CloseAll::AtOnce, CloseAll::OneByOne]).run()
                    });
                    for _ in 0..CHILD_STEPS {
                        child.run_items();
                        child.step(false);
                    }
                    child.run_items();
                    child.check();
                });
            }
        }
    }
}

/// A listener of the program's, which blocks, under each of some numbers that the library had; its
/// clients are all there.
fn keep_clients(numbers: &BTreeSet<RawFd>, mut use_library: impl FnMut()) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // No file, which a killed process would leave behind.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("uwork-own-{}-{number}", std::process::id());
    let name = SocketAddr::from_abstract_name(name).unwrap();
    let listener = UnixListener::bind_addr(&name).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| UnixStream::connect_addr(&name).unwrap()).collect();
    let own: Vec<RawFd> = clients.iter().map(UnixStream::as_raw_fd).collect();
    let places =
        numbers.iter().filter(|&&number| number != listener.as_raw_fd() && !own.contains(&number));
    let places: Vec<RawFd> = places.copied().collect();
    until_at_rest();
    for &number in &places {
        // SAFETY: the test's own, or the library's, which finds it lost.
        assert_eq!(unsafe { libc::dup2(listener.as_raw_fd(), number) }, number);
    }
    use_library();
    (0..CLIENTS).for_each(|_| drop(listener.accept().unwrap()));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "one for each client");
    // SAFETY: the test's own.
    places.iter().for_each(|&number| _ = unsafe { libc::close(number) });
}

#[test]
fn every_file_of_a_program_stays_its_own_whatever_it_does_to_descriptors() {
    let test = "every_file_of_a_program_stays_its_own_whatever_it_does_to_descriptors";
    let tiers = ["standby", "events", "sampling", "declared"];
    alone_each(test, VARIABLE, &tiers, VARIABLE, |tier| {
        let _watchdog = watchdog();
        collect_reports();
        limit(libc::RLIMIT_NOFILE, MOST);
        for seed in 0..3 {
            eprintln!("{tier}: seed {seed}");
            let mut program = Program::new(seed);
            program.run_items();
            for _ in 0..STEPS {
                program.step(true);
                program.run_items();
            }
            program.check();
            let taken = std::mem::take(&mut program.taken);
            keep_clients(&taken, || program.run_items());
        }
    });
}
