//! The list from which the user of `uwork top` chooses a process, if there are several.

use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::Style;
use ratatui::widgets::{Paragraph, TableState};

use super::columns::{Cells, Column, longest, parts_that_fit};
use super::{FullScreen, UserError};
use crate::client::{Entry, Found, at_once, is_alive, living};
use crate::commands::process::named::Named;
use crate::peer::user_of;
use crate::printable::in_a_line;

/// When the list is read again.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long their command lines are waited for.
const NAMES_MAX: Duration = Duration::from_millis(250);

/// The processes of this user that can be looked into, by name; and why there may be more.
pub(super) fn found() -> (Vec<Named>, Option<String>) {
    let Found { sockets, left_out } = living();
    let processes: Vec<u32> = numbers(&sockets).filter(|process| is_alive(*process)).collect();
    // All at the same time: a process may keep its command line from its readers.
    let until = Instant::now() + NAMES_MAX;
    let user = |process: &u32| user_of(*process).unwrap_or(0);
    let mut found = at_once(&processes, user, |&process, _| Named::of(process, until));
    found.sort_by(|a, b| (&a.command, a.process).cmp(&(&b.command, b.process)));
    found.dedup_by_key(|named| named.process);
    (found, left_out)
}

/// The processes that have a number here, by which they can be connected to.
fn numbers(sockets: &[Entry]) -> impl Iterator<Item = u32> {
    sockets.iter().map(|entry| entry.process).filter(|&process| process != 0)
}

/// Has the user choose one of them. None: the user has ended the command.
pub(super) fn choose(
    found: Vec<Named>,
    left_out: Option<String>,
) -> Result<Option<u32>, UserError> {
    let failed = |error: io::Error| UserError(format!("the terminal: {error}"));
    let mut screen = FullScreen::enter()?;
    let mut list = List { found, left_out, selected: 0 };
    loop {
        screen.0.draw(|frame| list.draw(frame)).map_err(failed)?;
        if !event::poll(INTERVAL).map_err(failed)? {
            let (found, left_out) = self::found();
            // Those that have all ended stay.
            if !found.is_empty() {
                list.replace(found);
            }
            list.left_out = left_out;
            continue;
        }
        let Event::Key(key) = event::read().map_err(failed)? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match list.press(key) {
            Choice::Open => {}
            Choice::Quit => return Ok(None),
            Choice::Process(process) => return Ok(Some(process)),
        }
    }
}

/// What a key has chosen.
#[derive(Debug, PartialEq)]
enum Choice {
    Open,
    Quit,
    Process(u32),
}

/// The list, and the selected line.
struct List {
    found: Vec<Named>,
    /// Why there may be more.
    left_out: Option<String>,
    selected: usize,
}

impl List {
    /// Takes a new list. The selection stays with its process.
    fn replace(&mut self, found: Vec<Named>) {
        let selected = self.found.get(self.selected).map(|named| named.process);
        let place = found.iter().position(|named| Some(named.process) == selected);
        self.selected = place.unwrap_or(self.selected).min(found.len().saturating_sub(1));
        self.found = found;
    }

    fn press(&mut self, key: KeyEvent) -> Choice {
        let last = self.found.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Choice::Quit;
            }
            KeyCode::Char('q') | KeyCode::Esc => return Choice::Quit,
            KeyCode::Enter => {
                let chosen = self.found.get(self.selected);
                return chosen.map_or(Choice::Open, |named| Choice::Process(named.process));
            }
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + 10).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(10),
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = last,
            _ => {}
        }
        Choice::Open
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [list, foot] =
            Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(frame.area());
        let of = |text: fn(&Named) -> &str, least, most| {
            longest(self.found.iter().map(text), least, most)
        };
        let (command, user) = (of(|it| &it.command, 7, 15), of(|it| &it.user, 4, 32));
        let arguments = of(|it| &it.arguments, 12, 500);
        let cells = Cells {
            columns: vec![
                Column::fixed(command, 0),
                Column { least: user.min(8), wish: user, rank: 2 },
                Column::fixed(8, 1),
                Column { least: 8, wish: arguments, rank: 3 },
            ],
            titles: ["process", "user", "PID", "command line"].map(str::to_owned).to_vec(),
            numbers: &[2],
            kept_end: None,
        };
        let row = |named: &Named| {
            let Named { process, command, user, arguments } = named;
            let cells = [command, user, &process.to_string(), arguments].map(String::clone);
            (cells.to_vec(), Style::new())
        };
        let table = cells.table(list.width, self.found.iter().map(row));
        let mut state = TableState::new().with_selected(self.selected);
        frame.render_stateful_widget(table, list, &mut state);
        let keys = ["q quit", "Enter shows the process", "arrows move"].map(str::to_owned);
        let foot_text = match &self.left_out {
            Some(why) => in_a_line(why),
            None => parts_that_fit(&keys, foot.width.into()),
        };
        frame.render_widget(Paragraph::new(foot_text), foot);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn list() -> List {
        let named = |process, command: &str| Named {
            process,
            command: command.to_owned(),
            user: "daemon".to_owned(),
            arguments: format!("/usr/bin/{command} --serve --port 4711"),
        };
        let found = vec![named(7, "db"), named(4_194_303, "a-long-name-123")];
        List { found, left_out: None, selected: 0 }
    }

    fn press(list: &mut List, code: KeyCode) -> Choice {
        list.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    // Catches: process 0, which is of another PID namespace, and cannot be connected to.
    #[test]
    fn a_process_without_a_number_here_is_not_offered() {
        let sockets =
            [0, 7].map(|process| Entry { process, path: process.to_string().into(), owner: 1 });
        assert_eq!(numbers(&sockets).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn processes_that_are_left_out_are_mentioned() {
        let mut list = list();
        list.left_out = Some("sockets were left out: user 7 has more than 64 folders".to_owned());
        let mut terminal = Terminal::new(TestBackend::new(60, 6)).unwrap();
        terminal.draw(|frame| list.draw(frame)).unwrap();
        let text = terminal.backend().to_string();
        assert!(text.contains("left out: user 7 has more than 64 folders"), "{text}");
    }

    #[test]
    fn processes_are_chosen_by_their_names() {
        let mut list = list();
        for width in [40, 60, 80, 120] {
            let mut terminal = Terminal::new(TestBackend::new(width, 6)).unwrap();
            terminal.draw(|frame| list.draw(frame)).unwrap();
            let text = terminal.backend().to_string();
            for part in ["db", "a-long-name-123", " 7 ", " 4194303 ", "PID", "q quit"] {
                assert!(text.contains(part), "{width}: {part}: {text}");
            }
            assert_eq!(text.contains("/usr/bin/db"), width > 50, "{width}: {text}");
        }
        assert_eq!(press(&mut list, KeyCode::Down), Choice::Open);
        assert_eq!(press(&mut list, KeyCode::Down), Choice::Open);
        assert_eq!(press(&mut list, KeyCode::Enter), Choice::Process(4_194_303));
        // The first process ends.
        let mut rest = list.found.clone();
        rest.remove(0);
        list.replace(rest);
        assert_eq!(press(&mut list, KeyCode::Enter), Choice::Process(4_194_303));
        list.replace(Vec::new());
        assert_eq!(press(&mut list, KeyCode::Enter), Choice::Open);
        assert_eq!(press(&mut list, KeyCode::Char('q')), Choice::Quit);
    }
}
