//! `uwork top` in a pseudo-terminal, whose output a terminal's parser turns into a screen. The
//! process that it shows is this test.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use uwork::{Queue, control};

/// Output that does not come for so long fails the test.
const PATIENCE: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

struct Terminal {
    parser: vt100::Parser,
    ours: File,
    command: Child,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("a terminal has rows and columns")
}

impl Terminal {
    /// Runs `uwork top` of this socket.
    fn top(socket: &str, colour: bool) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        tcsetwinsize(&ours, size(24, 80)).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        command.args(["top", "-i", "0.05", socket]).env("TERM", "xterm-256color");
        match colour {
            true => command.env_remove("NO_COLOR"),
            false => command.env("NO_COLOR", "1"),
        };
        let command = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Terminal { parser: vt100::Parser::new(cells(24), cells(80), 0), ours: ours.into(), command }
    }

    /// Reads until the screen is as wanted.
    fn until(&mut self, what: &str, is_wanted: impl Fn(&vt100::Screen) -> bool) {
        let mut bytes = [0; 4096];
        while !is_wanted(self.parser.screen()) {
            let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
            let events = poll(&mut ready, Some(&PATIENCE)).unwrap();
            assert_eq!(events, 1, "{what}:\n{}", self.parser.screen().contents());
            let count = self.ours.read(&mut bytes).unwrap();
            self.parser.process(&bytes[..count]);
        }
    }

    fn until_shown(&mut self, part: &str) {
        self.until(part, |screen| screen.contents().contains(part));
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.ours, size(rows, columns)).unwrap();
        let command = Pid::from_child(&self.command);
        kill_process(command, Signal::WINCH).unwrap();
    }

    /// Ends the command by its key.
    fn quit(mut self) {
        self.press("q");
        self.until("the former screen", |screen| !screen.alternate_screen());
        assert!(self.command.wait().unwrap().success());
    }

    /// Whether any character of the screen has a colour.
    fn has_colour(&self) -> bool {
        let screen = self.parser.screen();
        let (rows, columns) = (screen.size().0.get(), screen.size().1.get());
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default)
    }
}

/// A queue of this process in the tree, and the process's socket.
fn looked_at(name: &str) -> (Queue, String) {
    let queue = Queue::builder(name).sysfs().build().unwrap();
    while control::socket().is_err() {
        std::thread::yield_now();
    }
    (queue, control::socket().unwrap().display().to_string())
}

#[test]
fn top_shows_filters_resizes_and_sets_attributes() {
    let (queue, socket) = looked_at("top-shown");
    let mut terminal = Terminal::top(&socket, false);
    terminal.until_shown("tier ");
    terminal.until_shown("workers, the longest run first");
    terminal.press("/top-sho\r");
    terminal.until_shown("1 queues with \"top-sho\"");
    terminal.until_shown("top-shown");
    terminal.press("emax_active 3\r");
    terminal.until_shown("done: set devices/top-shown/max_active 3");
    assert_eq!(queue.max_active(), 3);
    terminal.press("emax_active none\r");
    terminal.until_shown("not a value of it");
    // Any key ends the message.
    terminal.press("r");
    terminal.resize(12, 50);
    terminal.until("the narrow screen", |screen| {
        let lines: Vec<String> = screen.rows(0, 50).collect();
        lines.len() == 12 && lines[0].contains("process ") && lines[11].starts_with("q quit")
    });
    assert!(!terminal.has_colour(), "NO_COLOR");
    terminal.quit();
}

#[test]
fn workers_have_colours_and_functions() {
    let (queue, socket) = looked_at("top-coloured");
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let waits = queue.spawn(move || wait.recv());
    let mut terminal = Terminal::top(&socket, true);
    terminal.until_shown("command::top::");
    assert!(terminal.has_colour());
    release.send(()).unwrap();
    waits.join().unwrap().unwrap();
    terminal.quit();
}

/// The server that ends stands for a process that exits.
#[test]
fn a_process_that_exits_is_shown_as_gone() {
    let (_queue, _) = looked_at("top-gone");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let mut terminal = Terminal::top(path.to_str().unwrap(), true);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"uwork-control 1 4711\n").unwrap();
    // Two rounds of its three requests.
    let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
    for _ in 0..6 {
        let request = requests.next().unwrap().unwrap();
        stream.write_all(control::answer(&request).as_bytes()).unwrap();
    }
    terminal.until_shown("process 4711");
    drop((requests, stream));
    terminal.until_shown("GONE  process 4711 is gone");
    terminal.press("/top-gone\r");
    terminal.until_shown("1 queues with \"top-gone\"");
    terminal.quit();
}

#[test]
fn without_a_terminal_a_single_picture_is_printed() {
    let (_queue, socket) = looked_at("a-picture");
    let run =
        Command::new(env!("CARGO_BIN_EXE_uwork")).args(["top", "-i", "0.05", &socket]).output();
    let output = run.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_eq!(text.lines().count(), 40);
    assert!(text.contains("a-picture") && !text.contains('\u{1b}'), "{text}");
}
