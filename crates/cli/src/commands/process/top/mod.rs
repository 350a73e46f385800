//! `uwork top`: a process on the whole screen. Without a terminal it prints a single picture.

mod choose;
mod columns;
mod draw;
mod keys;
mod machine;
mod view;

use std::io::{self, IsTerminal as _, Write as _};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use uwork::topology::Machine;
use uwork_policy::topology::Topology;

use super::doctor::names::Kept;
use super::named::{Named, command_of};
use super::{TopArgs, UserError, interval, print};
use crate::client::{Client, Failure, Refused, is_alive};
use crate::printable::is_printable;
use draw::{Screen, Scroll};
use keys::{Effect, Input};
use view::{Answers, View};

/// The size of the picture that is printed without a terminal.
const PICTURE: (u16, u16) = (100, 40);
/// The shortest time between two pictures.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Runs the command.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode, UserError> {
    let interval = interval(&args.interval)?.max(INTERVAL_MIN);
    let on_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let process = match &args.process {
        Some(process) => process.clone(),
        None => match chosen(on_terminal)? {
            Some(process) => process.to_string(),
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    let mut top = Top::connect(&process)?;
    top.refresh()?;
    if on_terminal {
        let mut screen = FullScreen::enter()?;
        return top.follow(&mut screen.0, interval);
    }
    std::thread::sleep(interval);
    top.refresh()?;
    print(&top.picture())
}

/// The terminal, which is as before when this is dropped. It is not dropped itself: that would print
/// where it has hung up, and panic.
struct FullScreen(ManuallyDrop<Terminal<CrosstermBackend<io::Stdout>>>);

impl FullScreen {
    fn enter() -> Result<FullScreen, UserError> {
        let failed = |error: io::Error| UserError(format!("the terminal: {error}"));
        enable_raw_mode().map_err(failed)?;
        let mut screen = Terminal::with_options(
            CrosstermBackend::new(io::stdout()),
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
        let _ = execute!(self.0.backend_mut(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
    }
}

/// The process that is shown, and how.
struct Top {
    client: Client,
    title: String,
    view: View,
    /// When the last answers came.
    at: Option<Instant>,
    /// Why the process does not answer.
    gone: Option<String>,
    names: Kept,
    /// Whether the process names its functions: it is of an earlier version, or its files cannot be
    /// read here.
    names_itself: bool,
    input: Input,
    scroll: Scroll,
}

impl Top {
    fn connect(process: &str) -> Result<Top, UserError> {
        let client = Client::connect(process)?;
        let title = title(&client);
        let topology = Machine::read().map_or_else(|_| Topology::flat(1), |read| read.topology);
        let (view, input) = (View::new(topology), Input::default());
        Ok(Top {
            client,
            title,
            view,
            at: None,
            gone: None,
            names: Kept::default(),
            names_itself: false,
            input,
            scroll: Scroll::default(),
        })
    }

    /// Connects anew after a failure. The error is the reason. Another process may have the number of
    /// one that has ended: its counters begin anew.
    fn reconnect(&mut self) -> Result<(), String> {
        let client = self.client.reopen()?;
        if !client.is_of_same_process(&self.client) {
            (self.title, self.at) = (title(&client), None);
            (self.names, self.names_itself) = (Kept::default(), false);
            self.view.forget();
        }
        (self.client, self.gone) = (client, None);
        Ok(())
    }

    /// Asks the process. The last state of one that does not answer stays. It is asked again each
    /// time.
    fn refresh(&mut self) -> Result<(), UserError> {
        if self.input.is_paused() {
            return Ok(());
        }
        if self.gone.is_some()
            && let Err(reason) = self.reconnect()
        {
            // Of a process that has ended, the first reason says the most.
            if is_alive(self.client.process()) {
                self.gone = Some(reason);
            }
            return Ok(());
        }
        // The first round has the deadline of the connect.
        if self.at.is_some() {
            self.client.renew();
        }
        match self.ask() {
            Ok(answers) => {
                let since = self.at.map(|at| at.elapsed());
                self.at = Some(Instant::now());
                self.view.update(&answers, since);
                Ok(())
            }
            // It never answered: there is nothing to show.
            Err(failure) if self.view.is_empty() => Err(failure.into()),
            Err(Failure::Gone(reason)) => {
                self.gone = Some(reason);
                Ok(())
            }
            Err(refused) => Err(refused.into()),
        }
    }

    fn ask(&mut self) -> Result<Answers, Failure> {
        let status = self.client.ask("status")?;
        let queues = match self.client.ask("queues") {
            Err(Failure::Refused(refused)) => self.ask_filtered(refused)?,
            answer => answer?,
        };
        Ok(Answers { status, queues, pools: self.ask_pools()? })
    }

    /// Asks for pools and workers, and names the functions.
    fn ask_pools(&mut self) -> Result<String, Failure> {
        if !self.names_itself {
            match self.client.ask("raw pools") {
                Ok(pools) => {
                    let named = self.names.in_text(self.client.process(), &pools);
                    if let Some(pools) = named {
                        return Ok(pools);
                    }
                }
                Err(Failure::Refused(refused)) if refused.code == "bad-request" => {}
                Err(failure) => return Err(failure),
            }
            self.names_itself = true;
        }
        self.client.ask("pools")
    }

    /// There are too many queues for an answer: asks for those that the filter permits.
    fn ask_filtered(&mut self, mut refused: Refused) -> Result<String, Failure> {
        if !self.view.filter.is_empty() {
            match self.client.ask(&format!("queues {}", self.view.filter)) {
                Err(Failure::Refused(again)) => refused = again,
                answer => return answer,
            }
        }
        self.input.say(format!("{}: / and a part of the names", refused.reason));
        Ok(String::new())
    }

    fn draw(&mut self, frame: &mut Frame<'_>, footer: &str, has_colour: bool) {
        let gone = self.gone.as_deref();
        let screen = Screen { title: &self.title, gone, footer, has_colour };
        draw::draw(frame, &self.view, &mut self.scroll, &screen);
        let cells = frame.buffer_mut().content.iter_mut();
        cells.filter(|cell| !is_printable(cell.symbol())).for_each(|cell| _ = cell.set_symbol("?"));
    }

    /// Draws until the user ends it.
    fn follow(
        &mut self,
        terminal: &mut Terminal<CrosstermBackend<io::Stdout>>,
        interval: Duration,
    ) -> Result<ExitCode, UserError> {
        let failed = |error: io::Error| UserError(format!("the terminal: {error}"));
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let mut next = Instant::now() + interval;
        loop {
            let footer = self.input.footer();
            terminal.draw(|frame| self.draw(frame, &footer, has_colour)).map_err(failed)?;
            if event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
                match event::read().map_err(failed)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        match self.input.press(key, &mut self.view) {
                            Effect::None => {}
                            Effect::Quit => return Ok(ExitCode::SUCCESS),
                            Effect::Refresh => {
                                next = Instant::now() + interval;
                                self.refresh()?;
                            }
                            Effect::Set(request) => self.set(&request),
                        }
                    }
                    // The next picture has the new size.
                    _ => {}
                }
                continue;
            }
            next = Instant::now() + interval;
            self.refresh()?;
        }
    }

    /// Sends a request, by a new connection if the last exchange has failed: its answer may come yet.
    fn set(&mut self, request: &str) {
        let connected = if self.gone.is_some() { self.reconnect() } else { Ok(()) };
        self.client.renew();
        let message = match connected.map(|()| self.client.ask(request)) {
            Ok(Ok(_)) => format!("done: {request}"),
            Ok(Err(Failure::Refused(refused))) => refused.reason,
            Ok(Err(Failure::Gone(reason))) => {
                let message = format!("{reason}; the value may have changed");
                self.gone = Some(reason);
                message
            }
            Err(reason) => format!("nothing changed: {reason}"),
        };
        self.input.say(message);
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
            Ok(frame) => frame
                .buffer
                .content
                .chunks(width.into())
                .map(|line| text_of(line).trim_end().to_owned() + "\n")
                .collect(),
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

/// The first words of the screen.
fn title(client: &Client) -> String {
    let number = client.process();
    format!("process {number} {}", command_of(number).unwrap_or_default())
}

/// The process, if there is a single one; of several the one that the user chooses, who may end the
/// command instead.
fn chosen(on_terminal: bool) -> Result<Option<u32>, UserError> {
    let found = choose::found();
    match &found[..] {
        [only] => Ok(Some(only.process)),
        [] => Err(UserError("no process of this user has a control socket".to_owned())),
        _ if on_terminal => choose::choose(found),
        several => {
            let name = |it: &Named| format!("{} ({}, {})", it.command, it.process, it.user);
            let list: Vec<String> = several.iter().map(name).collect();
            let list = list.join(", ");
            Err(UserError(format!("several processes have a control socket; give one of {list}")))
        }
    }
}
