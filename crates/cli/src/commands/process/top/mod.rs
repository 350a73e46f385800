//! `uwork top`: a process on the whole screen. Without a terminal it prints a single picture.

mod draw;
mod keys;
mod machine;
mod view;

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use ratatui::{Terminal, TerminalOptions, Viewport};
use uwork::topology::Machine;
use uwork_policy::topology::Topology;

use super::{TopArgs, UserError, interval, print};
use crate::client::{Client, Failure, sockets};
use draw::Screen;
use keys::{Effect, Input};
use view::{Answers, View};

/// The size of the picture that is printed without a terminal.
const PICTURE: (u16, u16) = (100, 40);
/// The shortest time between two pictures.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Runs the command.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode, UserError> {
    let interval = interval(&args.interval)?.max(INTERVAL_MIN);
    let mut top = Top::connect(args.process.as_deref())?;
    top.refresh()?;
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        let mut screen = FullScreen::enter()?;
        return top.follow(&mut screen.0, interval);
    }
    std::thread::sleep(interval);
    top.refresh()?;
    print(&top.picture())
}

/// The terminal, which is as before when this is dropped.
struct FullScreen(Terminal<CrosstermBackend<io::Stdout>>);

impl FullScreen {
    fn enter() -> Result<FullScreen, UserError> {
        let failed = |error: io::Error| UserError(format!("the terminal: {error}"));
        enable_raw_mode().map_err(failed)?;
        let mut screen = Terminal::with_options(
            CrosstermBackend::new(io::stdout()),
            TerminalOptions { viewport: Viewport::Fullscreen },
        )
        .map(FullScreen)
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
    topology: Topology,
    view: View,
    /// When the last answers came.
    at: Option<Instant>,
    /// Why the process no longer answers.
    gone: Option<String>,
    input: Input,
}

impl Top {
    fn connect(process: Option<&str>) -> Result<Top, UserError> {
        let client =
            Client::connect(&process.map_or_else(only_process, |one| Ok(one.to_owned()))?)?;
        let number = client.process();
        let command = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        let title = format!("process {number} {}", command.trim_end());
        let topology = Machine::read().map_or_else(|_| Topology::flat(1), |read| read.topology);
        let (view, input) = (View::new(), Input::default());
        Ok(Top { client, title, topology, view, at: None, gone: None, input })
    }

    /// Asks the process. One that has ended is noted, and its last state stays.
    fn refresh(&mut self) -> Result<(), UserError> {
        if self.gone.is_some() || self.input.is_paused() {
            return Ok(());
        }
        let mut ask = || {
            Ok(Answers {
                status: self.client.ask("status")?,
                queues: self.client.ask("queues")?,
                pools: self.client.ask("pools")?,
            })
        };
        match ask() {
            Ok(answers) => {
                let since = self.at.map(|at| at.elapsed());
                self.at = Some(Instant::now());
                self.view.update(&answers, since);
                Ok(())
            }
            // It never answered: there is nothing to show.
            Err(failure) if self.at.is_none() => Err(failure.into()),
            Err(Failure::Gone(reason)) => {
                self.gone = Some(reason);
                Ok(())
            }
            Err(refused) => Err(refused.into()),
        }
    }

    fn screen<'a>(&'a self, footer: &'a str, has_colour: bool) -> Screen<'a> {
        let gone = self.gone.as_deref();
        Screen { title: &self.title, gone, footer, has_colour, topology: &self.topology }
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
            let screen = self.screen(&footer, has_colour);
            terminal.draw(|frame| draw::draw(frame, &self.view, &screen)).map_err(failed)?;
            if event::poll(next.saturating_duration_since(Instant::now())).map_err(failed)? {
                match event::read().map_err(failed)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => {
                        match self.input.press(key, &mut self.view) {
                            Effect::None => {}
                            Effect::Quit => return Ok(ExitCode::SUCCESS),
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

    fn set(&mut self, request: &str) {
        let message = match self.client.ask(request) {
            Ok(_) => format!("done: {request}"),
            Err(failure) => UserError::from(failure).to_string(),
        };
        self.input.say(message);
    }

    /// A single picture as text.
    fn picture(&self) -> String {
        let (width, height) = PICTURE;
        let screen = self.screen("", false);
        let mut terminal = match Terminal::new(TestBackend::new(width, height)) {
            Ok(terminal) => terminal,
            Err(never) => match never {},
        };
        let drawn = terminal.draw(|frame| draw::draw(frame, &self.view, &screen));
        match drawn {
            Ok(frame) => frame
                .buffer
                .content
                .chunks(width.into())
                .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
                .map(|line| line.trim_end().to_owned() + "\n")
                .collect(),
            Err(never) => match never {},
        }
    }
}

/// The process, if there is a single one.
fn only_process() -> Result<String, UserError> {
    let found: Vec<String> = sockets().iter().map(|(process, _)| process.to_string()).collect();
    match &found[..] {
        [only] => Ok(only.clone()),
        [] => Err(UserError("no process of this user has a control socket".to_owned())),
        several => {
            let list = several.join(", ");
            Err(UserError(format!("several processes have a control socket; give one of {list}")))
        }
    }
}
