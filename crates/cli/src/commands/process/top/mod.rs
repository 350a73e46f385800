//! `uwork top`: a process on the whole screen. Without a terminal it prints a single picture.

mod asking;
mod choose;
pub(super) mod columns;
mod draw;
mod keys;
mod machine;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ratatui::backend::{Backend, CrosstermBackend, TestBackend};
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{Event as TerminalEvent, KeyEventKind};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use uwork::topology::Machine;
use uwork_policy::topology::Topology;

use super::named::Named;
use super::{TopArgs, UserError, apart, interval, print};
use crate::commands::Patient;
use crate::commands::signals::{Signals, end_by};
use crate::printable::is_printable;
use asking::{Asker, Event, Reply, Request, Requests, State};
use draw::{Screen, Scroll};
use keys::{Effect, Input};
use view::View;

/// The size of the picture that is printed without a terminal.
const PICTURE: (u16, u16) = (100, 40);
/// The shortest time between two pictures.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Runs the command.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode, UserError> {
    let interval = interval(&args.interval)?.max(INTERVAL_MIN);
    // Without it names say why they are missing.
    let _ = apart::start();
    let on_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if on_terminal {
        // Before the threads that search for processes, at which a signal would end the command.
        leave_on_signals();
    }
    let process = match &args.process {
        Some(process) => process.clone(),
        None => match chosen(on_terminal)? {
            Some(process) => process.to_string(),
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    let mut asker = Asker::connect(&process)?;
    let mut top = Top::new();
    top.begin(&mut asker)?;
    if on_terminal {
        let mut screen = FullScreen::enter()?;
        let (sender, events) = mpsc::channel();
        let ask = asking::start_asking(&sender, move |request| asker.answer(request))?;
        asking::start_reading(&sender)?;
        return top.follow(&mut screen.0, interval, &events, &ask);
    }
    std::thread::sleep(interval);
    top.refresh(&mut asker)?;
    print(&top.picture())
}

/// The terminal, which is as before when this is dropped, or a signal ends the command. It is not dropped
/// itself: that would print where it has hung up, and panic.
struct FullScreen(ManuallyDrop<Terminal<CrosstermBackend<Frames>>>);

/// The terminal is to be made as before, by the thread that sets this to false.
static IS_FULL_SCREEN: AtomicBool = AtomicBool::new(false);

impl FullScreen {
    fn enter() -> Result<FullScreen, UserError> {
        let failed = |error: io::Error| UserError(format!("the terminal: {error}"));
        IS_FULL_SCREEN.store(true, Ordering::SeqCst);
        enable_raw_mode().map_err(failed)?;
        let mut screen = Terminal::with_options(
            CrosstermBackend::new(Frames(Vec::new())),
            TerminalOptions { viewport: Viewport::Fullscreen },
        )
        .map(|terminal| FullScreen(ManuallyDrop::new(terminal)))
        .map_err(|error| {
            let _ = disable_raw_mode();
            failed(error)
        })?;
        execute!(screen.0.backend_mut(), EnterAlternateScreen, cursor::Hide).map_err(failed)?;
        Ok(screen)
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        if IS_FULL_SCREEN.swap(false, Ordering::SeqCst) {
            write_end();
            let _ = disable_raw_mode();
        }
    }
}

/// Held during a write to the terminal: the end of the full screen comes between two frames, not within a
/// sequence or a character.
static WRITES: Mutex<()> = Mutex::new(());

/// Standard output as a terminal: a frame is written as a whole, and none after the end of the full screen.
struct Frames(Vec<u8>);

impl io::Write for Frames {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.0);
        let _writes = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
        if IS_FULL_SCREEN.load(Ordering::SeqCst) { write_all(&frame) } else { Ok(()) }
    }
}

/// Ends the full screen, after the frame that is being written.
fn write_end() {
    let mut bytes = Vec::new();
    let _ = execute!(bytes, LeaveAlternateScreen, cursor::Show);
    let _writes = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = write_all(&bytes);
}

fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut out = Patient(io::stdout());
    out.write_all(bytes)?;
    out.flush()
}

/// Starts a thread that makes the terminal as before when a signal ends the command. The calling thread,
/// and those that it starts from now on, leave these signals to it.
fn leave_on_signals() {
    let signals = Signals::block();
    let leave = move || {
        let signal = signals.wait();
        leave_at_once();
        end_by(signal);
    };
    // Without the thread the signals end the command as they did: its drop unblocks them.
    let _ = std::thread::Builder::new().name("signals".to_owned()).spawn(leave);
}

/// For how long a terminal that takes nothing delays the end of the command.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Makes the terminal as before, beside a thread that draws, and may wait for a terminal that takes
/// nothing.
fn leave_at_once() {
    if !IS_FULL_SCREEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = disable_raw_mode();
    let (is_written, written) = mpsc::channel();
    let write = move || {
        write_end();
        let _ = is_written.send(());
    };
    if std::thread::Builder::new().name("leave".to_owned()).spawn(write).is_ok() {
        let _ = written.recv_timeout(LEAVE_MAX);
    }
}

/// The process that is shown, and how.
struct Top {
    title: String,
    view: View,
    /// Why the process does not answer. Its last state stays.
    gone: Option<String>,
    requests: Requests,
    input: Input,
    scroll: Scroll,
}

/// Whether the loop goes on after an event.
#[derive(Debug, PartialEq)]
enum Next {
    Draw,
    Quit,
}

impl Top {
    fn new() -> Top {
        let topology = Machine::read().map_or_else(|_| Topology::flat(1), |read| read.topology);
        Top {
            title: String::new(),
            view: View::new(topology),
            gone: None,
            requests: Requests::default(),
            input: Input::default(),
            scroll: Scroll::default(),
        }
    }

    /// The first answers. Without them there is nothing to show.
    fn begin(&mut self, asker: &mut Asker) -> Result<(), UserError> {
        self.refresh(asker)?;
        self.gone.take().map_or(Ok(()), |reason| Err(UserError(reason)))
    }

    /// Asks the process, and waits.
    fn refresh(&mut self, asker: &mut Asker) -> Result<(), UserError> {
        let reply = asker.answer(Request::Refresh { filter: String::new() });
        self.take_reply(reply)
    }

    fn take_reply(&mut self, reply: Reply) -> Result<(), UserError> {
        self.requests.answered();
        self.gone = None;
        match reply {
            Reply::State(State { title, answers, since, missing }) => {
                self.title = title;
                self.view.update(&answers, since);
                missing.into_iter().for_each(|missing| self.input.hint(missing));
            }
            Reply::Answered(message) => self.input.say(message),
            Reply::Gone { reason, message } => {
                self.gone = Some(reason);
                message.into_iter().for_each(|message| self.input.say(message));
            }
            Reply::Failed(error) => return Err(error),
        }
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<Next, UserError> {
        match event {
            Event::Terminal(Ok(TerminalEvent::Key(key))) if key.kind == KeyEventKind::Press => {
                match self.input.press(key, &mut self.view) {
                    Effect::None => {}
                    Effect::Quit => return Ok(Next::Quit),
                    Effect::Refresh => self.requests.refresh(),
                    Effect::Change(request) => {
                        self.input.say(format!("waits for an answer: {request}"));
                        self.requests.change(request);
                    }
                }
            }
            // The next picture has the new size.
            Event::Terminal(Ok(_)) => {}
            Event::Terminal(Err(error)) => return Err(UserError(format!("the terminal: {error}"))),
            Event::Reply(reply) => self.take_reply(reply)?,
            Event::Ended(thread) => return Err(ended(thread)),
        }
        Ok(Next::Draw)
    }

    /// Sends the next request, unless an answer is outstanding.
    fn ask(&mut self, ask: &Sender<Request>) -> Result<(), UserError> {
        match self.requests.next(&self.view.filter) {
            Some(request) => ask.send(request).map_err(|_| ended("asks")),
            None => Ok(()),
        }
    }

    fn draw(&mut self, frame: &mut Frame<'_>, footer: &str, has_colour: bool) {
        let gone = self.gone.as_deref();
        let has_help = self.input.is_help_shown();
        let screen = Screen { title: &self.title, gone, footer, has_help, has_colour };
        draw::draw(frame, &self.view, &mut self.scroll, &screen);
        let cells = frame.buffer_mut().content.iter_mut();
        cells.filter(|cell| !is_printable(cell.symbol())).for_each(|cell| _ = cell.set_symbol("?"));
    }

    /// Draws until the user ends it. The clock stands still while an answer is outstanding: the
    /// process is not asked more often than it answers.
    fn follow<B: Backend>(
        &mut self,
        terminal: &mut Terminal<B>,
        interval: Duration,
        events: &Receiver<Event>,
        ask: &Sender<Request>,
    ) -> Result<ExitCode, UserError> {
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut due = Instant::now() + interval;
        loop {
            let footer = self.input.footer();
            let drawn = terminal.draw(|frame| self.draw(frame, &footer, has_colour));
            drawn.map_err(|error| UserError(format!("the terminal: {error}")))?;
            let event = match self.requests.is_outstanding() {
                true => events.recv().map_err(RecvTimeoutError::from),
                false => events.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(event) => {
                    if self.take(event)? == Next::Quit {
                        return Ok(ExitCode::SUCCESS);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    due = Instant::now() + interval;
                    if !self.input.is_paused() {
                        self.requests.refresh();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ended("keys")),
            }
            self.ask(ask)?;
        }
    }

    /// A single picture as text.
    fn picture(&mut self) -> String {
        let (width, height) = PICTURE;
        let mut terminal = match Terminal::new(TestBackend::new(width, height)) {
            Ok(terminal) => terminal,
            Err(never) => match never {},
        };
        let drawn = terminal.draw(|frame| self.draw(frame, "", false));
        match drawn {
            Ok(frame) => {
                let lines = frame.buffer.content.chunks(width.into());
                let text: String =
                    lines.map(|line| text_of(line).trim_end().to_owned() + "\n").collect();
                // Without the lines that have nothing.
                text.trim_end().to_owned() + "\n"
            }
            Err(never) => match never {},
        }
    }
}

/// The text of a line of cells. A wide character takes the place of the cells behind its own.
fn text_of(line: &[Cell]) -> String {
    let mut text = String::new();
    let mut covered = 0;
    for cell in line {
        if covered == 0 {
            text.push_str(cell.symbol());
            covered = columns::width_of(cell.symbol());
        }
        covered = covered.saturating_sub(1);
    }
    text
}

/// Why the command ends without one of its threads, which has panicked.
fn ended(thread: &str) -> UserError {
    UserError(format!("a defect of this command: its thread '{thread}' has ended"))
}

/// The process, if there is a single one; of several the one that the user chooses, who may end the
/// command instead.
fn chosen(on_terminal: bool) -> Result<Option<u32>, UserError> {
    let (found, left_out) = choose::found();
    // The list of a terminal has it.
    if let Some(why) = left_out.as_ref().filter(|_| found.len() < 2 || !on_terminal) {
        complain!("uwork: {why}");
    }
    match &found[..] {
        [only] => Ok(Some(only.process)),
        [] => Err(UserError("no process of this user has a control socket".to_owned())),
        _ if on_terminal => choose::choose(found, left_out),
        several => {
            let name = |it: &Named| format!("{} ({}, {})", it.command, it.process, it.user);
            let list: Vec<String> = several.iter().map(name).collect();
            let list = list.join(", ");
            Err(UserError(format!("several processes have a control socket; give one of {list}")))
        }
    }
}
