//! `uwork top` in a pseudo-terminal, whose output a terminal's parser turns into a screen. The
//! process that it shows is the test itself, alone.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::num::NonZero;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use uwork::{Queue, control};

mod ended;
mod stopped;

use crate::guard::{in_turns, progress};
use crate::observed::{self, Other, WAIT_MAX, observed, until, with_default_signals};
use crate::process::{NO_ANSWER, command, complete, text_of};

/// When a key is pressed again.
const KEY_AGAIN: Duration = Duration::from_secs(1);

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

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parser.screen().contents())
    }
}

/// The last line, which has the keys.
fn footer(screen: &vt100::Screen) -> String {
    last_lines(screen, 1)
}

/// The last lines as one.
fn last_lines(screen: &vt100::Screen, count: usize) -> String {
    let (rows, columns) = screen.size();
    let lines = screen.rows(0, columns.get()).skip(usize::from(rows.get()) - count);
    lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
}

impl Terminal {
    /// Runs `uwork top` of this socket until it shows the process. Runs it again if that process got
    /// no CPU for the first answers, which ends the command.
    fn top(socket: &str, colour: bool) -> Terminal {
        let top = || {
            let mut terminal = Terminal::start(socket, colour);
            let shown = in_turns(WAIT_MAX, |turn| {
                let is_shown = terminal.read_for(turn, vt100::Screen::alternate_screen);
                is_shown.map(|is_shown| is_shown.then_some(())).transpose()
            });
            match shown {
                Ok(Ok(())) => Ok(terminal),
                Ok(Err(_)) if terminal.shows(NO_ANSWER) => Err(format!("{terminal:?}")),
                other => panic!("{other:?}: {terminal:?}"),
            }
        };
        until(top, |_| true)
    }

    /// Starts `uwork top` of this socket.
    fn start(socket: &str, colour: bool) -> Terminal {
        Terminal::run(&["top", "-i", "0.05", socket], colour)
    }

    /// Runs the command.
    fn run(args: &[&str], colour: bool) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        tcsetwinsize(&ours, size(24, 80)).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        command.args(args).env("TERM", "xterm-256color");
        match colour {
            true => command.env_remove("NO_COLOR"),
            false => command.env("NO_COLOR", "1"),
        };
        with_default_signals(&mut command);
        let command = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Terminal { parser: vt100::Parser::new(cells(24), cells(80), 0), ours: ours.into(), command }
    }

    /// Reads until the screen is as wanted.
    fn until(&mut self, what: &str, is_wanted: impl Fn(&vt100::Screen) -> bool) {
        let come =
            in_turns(WAIT_MAX, |turn| self.read_for(turn, &is_wanted).unwrap().then_some(()));
        if let Err(hang) = come {
            panic!("{what}: {hang}:\n{}", self.parser.screen().contents());
        }
    }

    /// Reads for this time at most, until the screen is as wanted, and returns whether it is. The
    /// command writes at each interval, so the end of its output is no sign. An error if the command
    /// has ended.
    fn read_for(
        &mut self,
        most: Duration,
        is_wanted: impl Fn(&vt100::Screen) -> bool,
    ) -> io::Result<bool> {
        let end = Instant::now() + most;
        while !is_wanted(self.parser.screen()) {
            let left = end.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
            if left.tv_sec + left.tv_nsec == 0 || poll(&mut ready, Some(&left)).unwrap() == 0 {
                return Ok(false);
            }
            let mut bytes = [0; 4096];
            let count = self.ours.read(&mut bytes)?;
            self.parser.process(&bytes[..count]);
        }
        progress();
        Ok(true)
    }

    fn until_shown(&mut self, part: &str) {
        self.until(part, |screen| screen.contents().contains(part));
    }

    /// This terminal, if its screen has the part.
    fn if_shown(self, part: &str) -> io::Result<Terminal> {
        if self.shows(part) { Ok(self) } else { Err(io::Error::other(format!("{self:?}"))) }
    }

    fn shows(&self, part: &str) -> bool {
        self.parser.screen().contents().contains(part)
    }

    fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Types the change of an attribute, and waits for the message. Types it again if the process got
    /// no CPU for an answer.
    fn set(&mut self, attribute: &str, message: &str) {
        let set = || {
            self.press(&format!("e{attribute}\r"));
            self.until(message, |screen| {
                let parts = [message, "may have changed", "nothing changed"];
                // A long message is broken.
                let said = last_lines(screen, 2);
                parts.iter().any(|part| said.contains(part))
            });
            let said = last_lines(self.parser.screen(), 2);
            if said.contains(message) {
                return Ok(());
            }
            // Any key ends the message. The command connects anew.
            self.press("\x1b[H");
            self.until("another answer", |screen| {
                footer(screen).starts_with("q quit") && !screen.contents().contains("GONE")
            });
            Err(said)
        };
        until(set, |()| true);
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.parser.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.ours, size(rows, columns)).unwrap();
        let command = Pid::from_child(&self.command);
        kill_process(command, Signal::WINCH).unwrap();
    }

    /// Ends the command by its key. The key is repeated: crossterm leaves one that comes together with
    /// SIGWINCH unread until the next one.
    fn quit(mut self) {
        let left = in_turns(WAIT_MAX, |_| {
            self.press("q");
            let has_left = self.read_for(KEY_AGAIN, |screen| !screen.alternate_screen());
            has_left.unwrap().then_some(())
        });
        if let Err(hang) = left {
            panic!("{hang}: {}", self.parser.screen().contents());
        }
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

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that fails leaves no command behind.
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

/// A queue of this process in the tree, and the process's socket.
fn looked_at(name: &str) -> (Queue, String) {
    let (queue, _) = observed::looked_at(name);
    (queue, control::socket().unwrap().display().to_string())
}

/// The connection of a command that has been started.
fn accepted(listener: &UnixListener) -> UnixStream {
    listener.set_nonblocking(true).unwrap();
    let (stream, _) = until(|| listener.accept(), |_| true);
    listener.set_nonblocking(false).unwrap();
    stream
}

/// The next line of a client that asks again and again. An error if it has closed the connection.
fn next_line(client: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    let come = in_turns(WAIT_MAX, |turn| {
        client.get_ref().set_read_timeout(Some(turn)).unwrap();
        match client.read_line(&mut line) {
            // What has come so far stays in the line.
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            outcome => Some(outcome),
        }
    });
    match come.unwrap_or_else(|hang| panic!("{hang}"))? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

#[test]
fn top_shows_filters_resizes_and_sets_attributes() {
    observed("top::top_shows_filters_resizes_and_sets_attributes", || {
        let (queue, socket) = looked_at("top-shown");
        let mut terminal = Terminal::top(&socket, false);
        terminal.until_shown("tier ");
        terminal.until_shown("workers, the longest run first");
        terminal.press("/top-sho\r");
        terminal.until_shown("1 queue with \"top-sho\"");
        terminal.until_shown("top-shown");
        terminal.set("max_active 3", "done: set devices/top-shown/max_active 3");
        assert_eq!(queue.max_active(), 3);
        terminal.set("max_active none", "not a value of it");
        // Any key ends the message.
        terminal.press("r");
        terminal.until_shown("q quit");
        terminal.resize(12, 50);
        terminal.until("the narrow screen", |screen| {
            let lines: Vec<String> = screen.rows(0, 50).collect();
            lines.len() == 12 && lines[0].contains("process ") && lines[11].starts_with("q quit")
        });
        assert!(!terminal.has_colour(), "NO_COLOR");
        terminal.quit();
    });
}

#[test]
fn several_processes_are_offered_by_their_names() {
    observed("top::several_processes_are_offered_by_their_names", || {
        let (_queue, socket) = looked_at("top-chosen");
        // The parent lives and would listen here, if it used uwork.
        let parent = std::os::unix::process::parent_id();
        let path = control::socket().unwrap().with_file_name(format!("{parent}.sock"));
        let _listener = UnixListener::bind(&path).unwrap();
        // One that has ended is not offered.
        drop(UnixListener::bind(path.with_file_name("99999999.sock")).unwrap());
        let output = command(&["top"]).output().unwrap();
        let said = complete(&String::from_utf8(output.stderr).unwrap());
        let own = std::process::id();
        let name = |process| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
        for process in [own, parent] {
            let offered = format!("{} ({process}, ", name(process).trim_end());
            assert!(said.contains(&offered), "{offered}: {said}");
        }
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(!said.contains("99999999"), "{said}");
        let choose = || {
            let mut terminal = Terminal::run(&["top"], false);
            terminal.until_shown("Enter shows the process");
            terminal.until_shown(&parent.to_string());
            // The list begins below the titles, and has the processes of other folders, too.
            let rows: Vec<String> = terminal.parser.screen().rows(0, 80).skip(1).collect();
            let is_own = |row: &String| row.contains(&format!(" {own} "));
            let Some(place) = rows.iter().position(is_own) else {
                return Err(format!("{terminal:?}"));
            };
            terminal.press(&format!("{}\r", "j".repeat(place)));
            let shown = in_turns(WAIT_MAX, |turn| {
                let is_shown =
                    terminal.read_for(turn, |screen| screen.contents().contains("tier "));
                is_shown.map(|is_shown| is_shown.then_some(())).transpose()
            });
            match shown {
                // The list may have changed before the keys came.
                Ok(Ok(())) if terminal.shows(&format!("process {own} ")) => Ok(terminal),
                Ok(Ok(())) => Err(format!("{terminal:?}")),
                Ok(Err(_)) if terminal.shows(NO_ANSWER) => Err(format!("{terminal:?}")),
                other => panic!("{other:?}: {terminal:?}"),
            }
        };
        let mut terminal = until(choose, |_| true);
        terminal.until_shown(&format!("process {own} "));
        terminal.quit();
        let mut terminal = Terminal::run(&["top"], false);
        terminal.until_shown("Enter shows the process");
        terminal.quit();
        drop(socket);
    });
}

#[test]
fn workers_have_colours_and_functions() {
    observed("top::workers_have_colours_and_functions", || {
        let (queue, socket) = looked_at("top-coloured");
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let waits = queue.spawn(move || wait.recv());
        let mut terminal = Terminal::top(&socket, true);
        // The end of a function's name stays where there is no room for all of it.
        terminal.until_shown("_functions::");
        assert!(terminal.has_colour());
        release.send(()).unwrap();
        waits.join().unwrap().unwrap();
        terminal.quit();
    });
}

#[test]
fn keys_sort_and_move_in_each_list() {
    observed("top::keys_sort_and_move_in_each_list", || {
        let (queue, socket) = looked_at("top-sort-a");
        let other = Queue::builder("top-sort-b").build().unwrap();
        queue.spawn(|| ()).join().unwrap();
        let mut terminal = Terminal::top(&socket, false);
        terminal.until_shown("tier ");
        terminal.press("/top-sort\r");
        terminal.until_shown("2 queues with \"top-sort\"");
        // The mark moves from column to column; the last is the name.
        for column in ["busy↓", "infl↓", "pend↓", "p99↓", "wait↓", "queue↓"] {
            terminal.press("s");
            terminal.until_shown(column);
        }
        let row_of = |screen: &vt100::Screen, name: &str| {
            screen.rows(0, 80).position(|line| line.starts_with(name))
        };
        let is_ordered = |screen: &vt100::Screen, first: &str, second: &str| {
            let (first, second) = (row_of(screen, first), row_of(screen, second));
            first.is_some() && first < second
        };
        terminal.until("sorted", |screen| is_ordered(screen, "top-sort-a", "top-sort-b"));
        terminal.press("r");
        terminal.until("reversed", |screen| is_ordered(screen, "top-sort-b", "top-sort-a"));
        // The selected line is inverse; that of the queues stays so beside that of another list.
        let selected = |screen: &vt100::Screen| {
            (0..24).rev().find(|&row| screen.cell(row, 0).is_some_and(|cell| cell.inverse()))
        };
        let is_selected = |screen: &vt100::Screen, name: &str| {
            row_of(screen, name).is_some_and(|row| selected(screen) == Some(row as u16))
        };
        terminal.until("the first", |screen| is_selected(screen, "top-sort-b"));
        terminal.press("\x1b[B");
        terminal.until("the second", |screen| is_selected(screen, "top-sort-a"));
        terminal.press("\x1b[A");
        terminal.until("the first again", |screen| is_selected(screen, "top-sort-b"));
        // In the pools, then in the workers.
        let is_between = |screen: &vt100::Screen, above: &str, below: &str| {
            let row = |part: &str| screen.rows(0, 80).position(|line| line.contains(part));
            let selected = selected(screen).map(usize::from);
            selected > row(above) && selected < row(below)
        };
        terminal.press("\t");
        terminal.until("a pool", |screen| is_between(screen, "pools: #", "workers, the longest"));
        terminal.press("\t \x1b[B");
        terminal.until("a worker", |screen| is_between(screen, "workers, the longest", "q quit"));
        terminal.quit();
        drop(other);
    });
}

/// Another process, which ends in its own way.
#[test]
fn a_real_process_that_exits_is_shown_as_gone() {
    observed("top::a_real_process_that_exits_is_shown_as_gone", || {
        const SHOWN: &str = "UWORK_TEST_TOP_IS_SHOWN";
        if std::env::var_os(SHOWN).is_some() {
            let (_queue, socket) = looked_at("top-ends");
            println!("\n{socket}");
            // Until the end of the input.
            std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
            // With its queue.
            std::process::exit(0);
        }
        let test = "top::a_real_process_that_exits_is_shown_as_gone";
        let exit = || {
            let mut shown = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(SHOWN, "1")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let stdout = shown.stdout.take().unwrap();
            let mut lines = BufReader::new(stdout).lines().map(Result::unwrap);
            let socket = lines.by_ref().find(|line| line.ends_with(".sock")).unwrap();
            let mut terminal = Terminal::top(&socket, false);
            terminal.until_shown("top-ends");
            drop(shown.stdin.take());
            lines.for_each(drop);
            assert!(shown.wait().unwrap().success());
            let gone = format!("GONE  process {} ", shown.id());
            terminal.until_shown(&gone);
            terminal.if_shown(&(gone + "is gone"))
        };
        // The command may have given it up before it ended, because it got no CPU for an answer.
        let terminal = until(exit, |_| true);
        assert!(terminal.shows("top-ends"), "the last state stays");
        terminal.quit();
    });
}

/// `uwork top`, which shows this process as gone, and the listener where it looks for the process. The
/// connection was closed after two rounds of three requests. Starts over if this process answered, or
/// closed the connection, too late.
fn gone(colour: bool) -> (Terminal, UnixListener, tempfile::TempDir) {
    let process = std::process::id();
    let exit = || {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("1.sock");
        let listener = UnixListener::bind(&path)?;
        let mut terminal = Terminal::start(path.to_str().unwrap(), colour);
        let mut stream = accepted(&listener);
        writeln!(stream, "uwork-control 1 {process}")?;
        let mut requests = BufReader::new(stream.try_clone()?);
        for _ in 0..6 {
            let request = next_line(&mut requests)?;
            stream.write_all(control::answer(&request).as_bytes())?;
        }
        drop((requests, stream));
        let gone = format!("GONE  process {process} ");
        terminal.until_shown(&gone);
        Ok((terminal.if_shown(&(gone + "has closed the connection"))?, listener, folder))
    };
    until::<_, io::Error>(exit, |_| true)
}

#[test]
fn a_process_that_closes_the_connection_is_shown_as_gone() {
    observed("top::a_process_that_closes_the_connection_is_shown_as_gone", || {
        let (_queue, _) = looked_at("top-gone");
        let (mut terminal, listener, _folder) = gone(true);
        // As after the end of a process.
        drop(listener);
        terminal.press("/top-gone\r");
        terminal.until_shown("1 queue with \"top-gone\"");
        terminal.quit();
    });
}

/// Greets and answers a client until it leaves.
fn serve(mut stream: UnixStream, answer: impl Fn(&str) -> String) -> io::Result<()> {
    let requests = BufReader::new(stream.try_clone()?).lines();
    stream.write_all(format!("uwork-control 1 {}\n", std::process::id()).as_bytes())?;
    for request in requests {
        stream.write_all(answer(&request?).as_bytes())?;
    }
    Ok(())
}

/// Serves one client after the other on a thread of its own.
fn serve_all(listener: UnixListener, answer: impl Fn(&str) -> String + Send + 'static) {
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = serve(stream, &answer);
        }
    });
}

#[test]
fn a_process_that_answers_again_is_shown_again() {
    observed("top::a_process_that_answers_again_is_shown_again", || {
        let (_queue, _) = looked_at("top-again");
        let (mut terminal, listener, _folder) = gone(false);
        serve_all(listener, control::answer);
        terminal.until("no longer gone", |screen| !screen.contents().contains("GONE"));
        terminal.press("/top-again\r");
        terminal.until_shown("1 queue with \"top-again\"");
        terminal.quit();
    });
}

#[test]
fn another_process_at_the_same_place_is_shown_anew() {
    let test = "top::another_process_at_the_same_place_is_shown_anew";
    observed(test, || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let place = path.to_str().unwrap();
        let first = Other::start(test, "succeeds");
        std::os::unix::fs::symlink(&first.socket, &path).unwrap();
        let mut terminal = Terminal::top(place, false);
        let title = format!("process {} ", first.number());
        terminal.until_shown(&title);
        drop(first);
        terminal.until_shown("GONE");
        let second = Other::start(test, "succeeds");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&second.socket, &path).unwrap();
        let title = format!("process {} ", second.number());
        terminal.until("the other", |screen| screen.contents().starts_with(&title));
        terminal.quit();
    });
}

#[test]
fn a_filter_that_permits_too_many_queues_can_be_typed_on() {
    observed("top::a_filter_that_permits_too_many_queues_can_be_typed_on", || {
        let (_queue, _) = looked_at("top-many");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (asked, requests) = std::sync::mpsc::channel();
        serve_all(listener, move |request| {
            let _ = asked.send(request.to_owned());
            match request.starts_with("queues") {
                true => "err too-long too many\n".to_owned(),
                false => control::answer(request),
            }
        });
        let mut terminal = Terminal::top(path.to_str().unwrap(), false);
        terminal.until_shown("too many: / and a part of the names");
        terminal.press("/x");
        terminal.until_shown("type a part of the names");
        // The second refusal has come when another request follows it.
        requests.iter().find(|request| request == "queues x").unwrap();
        requests.iter().find(|request| request == "status").unwrap();
        terminal.press("yz");
        terminal.until_shown("0 queues with \"xyz\"");
        terminal.press("\r");
        terminal.until_shown("too many: / and a part of the names");
        terminal.quit();
    });
}

#[test]
fn without_a_terminal_a_single_picture_is_printed() {
    observed("top::without_a_terminal_a_single_picture_is_printed", || {
        let (_queue, socket) = looked_at("a-picture");
        let text = text_of(&mut command(&["top", "-i", "0.05", &socket]));
        let last = text.lines().last().unwrap_or_default();
        assert!(!last.is_empty() && text.lines().count() < 40, "no empty lines below: {text}");
        assert!(text.contains("a-picture") && !text.contains('\u{1b}'), "{text}");
    });
}
