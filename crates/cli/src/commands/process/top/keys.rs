//! The keys of `uwork top`, and the line that they edit.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::View;
use crate::commands::process::in_a_path;

/// The keys of the last line, as far as they have room. All have it on 80 columns.
const KEYS: &str = "q quit  ? keys  Tab list  arrows move  / filter  e set  s sort  p pause";

/// All keys, for a screen of 40 columns.
pub(super) const HELP: [(&str, &str); 9] = [
    ("arrows", "select; also Page, Home, End"),
    ("Tab", "queues, pools, workers"),
    ("s", "sort by the next column"),
    ("r", "reverse the order"),
    ("/", "filter the queues by name"),
    ("e", "set a queue's attribute"),
    ("space", "ask the process at once"),
    ("p", "pause, and go on"),
    ("q Esc", "end"),
];

/// What a key asks for beyond a change of the view.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    None,
    Quit,
    /// Ask the process at once.
    Refresh,
    /// Send this request, which changes an attribute.
    Change(String),
}

/// What the keys edit.
#[derive(Default)]
enum Mode {
    #[default]
    Keys,
    /// The list of keys is shown.
    Help,
    /// The filter.
    Filter,
    /// An attribute of this queue, and its value.
    Attribute { queue: String, text: String },
}

/// The state of the input.
#[derive(Default)]
pub(super) struct Input {
    mode: Mode,
    /// Shown until the next key.
    message: Option<String>,
    paused: bool,
}

impl Input {
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn is_help_shown(&self) -> bool {
        matches!(self.mode, Mode::Help)
    }

    /// Shows a message until the next key. Text that is being typed comes first.
    pub(super) fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// The same, unless there is a message.
    pub(super) fn hint(&mut self, message: String) {
        self.message.get_or_insert(message);
    }

    /// The last line of the screen.
    pub(super) fn footer(&self) -> String {
        match (&self.message, &self.mode) {
            (Some(message), Mode::Keys) => message.clone(),
            (None, Mode::Keys) if self.paused => format!("PAUSED  {KEYS}"),
            (None, Mode::Keys) => KEYS.to_owned(),
            (_, Mode::Help) => "any key closes the list of keys".to_owned(),
            (_, Mode::Filter) => "type a part of the names, Enter keeps it, Esc drops it".into(),
            (_, Mode::Attribute { queue, text }) => {
                format!("set of queue {queue}: ATTRIBUTE VALUE, as in max_active 64: {text}_")
            }
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent, view: &mut View) -> Effect {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Effect::Quit } else { Effect::None };
        }
        match std::mem::take(&mut self.mode) {
            Mode::Keys => self.command(key.code, view),
            Mode::Help => Effect::None,
            Mode::Filter => {
                self.edit_filter(key.code, view);
                Effect::None
            }
            Mode::Attribute { queue, text } => self.edit_attribute(key.code, queue, text),
        }
    }

    fn command(&mut self, key: KeyCode, view: &mut View) -> Effect {
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Effect::Quit,
            KeyCode::Char('s') => view.order = view.order.next(),
            KeyCode::Char('r') => view.reversed = !view.reversed,
            KeyCode::Char(' ') => return Effect::Refresh,
            KeyCode::Tab => view.focus = view.focus.next(),
            KeyCode::Char('p') => self.paused = !self.paused,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('e') => match view.selected_queue() {
                Some(queue) => {
                    let queue = queue.name.clone();
                    self.mode = Mode::Attribute { queue, text: String::new() };
                }
                None => self.say("no queue is selected".to_owned()),
            },
            KeyCode::Down | KeyCode::Char('j') => view.select(1),
            KeyCode::Up | KeyCode::Char('k') => view.select(-1),
            KeyCode::PageDown => view.select(10),
            KeyCode::PageUp => view.select(-10),
            KeyCode::Home => view.select(isize::MIN),
            KeyCode::End => view.select(isize::MAX),
            _ => {}
        }
        view.sort();
        Effect::None
    }

    fn edit_filter(&mut self, key: KeyCode, view: &mut View) {
        match key {
            KeyCode::Enter => return,
            KeyCode::Esc => return view.filter.clear(),
            KeyCode::Backspace => _ = view.filter.pop(),
            KeyCode::Char(c) => view.filter.push(c),
            _ => {}
        }
        view.keep_selections();
        self.mode = Mode::Filter;
    }

    fn edit_attribute(&mut self, key: KeyCode, queue: String, mut text: String) -> Effect {
        match key {
            KeyCode::Esc => return Effect::None,
            KeyCode::Enter => {
                let Some((name, value)) = text.trim().split_once(' ') else {
                    self.say("nothing changed: type an attribute and a value".to_owned());
                    return Effect::None;
                };
                let queue = in_a_path(&queue);
                return Effect::Change(format!("set devices/{queue}/{name} {}", value.trim()));
            }
            KeyCode::Backspace => _ = text.pop(),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        self.mode = Mode::Attribute { queue, text };
        Effect::None
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::view;
    use super::super::view::{Order, Queue};
    use super::*;

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    fn type_in(input: &mut Input, view: &mut View, text: &str) -> Effect {
        text.chars().fold(Effect::None, |_, c| {
            let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
            input.press(key(code), view)
        })
    }

    #[test]
    fn an_attribute_of_the_selected_queue_is_set() {
        let (mut input, mut view) = (Input::default(), view());
        assert_eq!(type_in(&mut input, &mut view, "emax_active 64"), Effect::None);
        assert!(input.footer().ends_with("max_active 64_"), "{}", input.footer());
        let set = Effect::Change("set devices/log/max_active 64".to_owned());
        assert_eq!(type_in(&mut input, &mut view, "\n"), set);
        view.queues[0].name = "crypt/253 0".to_owned();
        let set = Effect::Change("set devices/crypt!253!0/nice 1".to_owned());
        assert_eq!(type_in(&mut input, &mut view, "enice 1\n"), set);
        assert_eq!(type_in(&mut input, &mut view, "enice\n"), Effect::None);
        assert!(input.footer().starts_with("nothing changed"));
        assert_eq!(type_in(&mut input, &mut view, "q"), Effect::Quit);
    }

    #[test]
    fn a_filter_is_typed_and_dropped() {
        let (mut input, mut view) = (Input::default(), view());
        let _ = type_in(&mut input, &mut view, "/io\n");
        assert_eq!(view.shown().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["io"]);
        let _ = type_in(&mut input, &mut view, "/");
        let _ = input.press(key(KeyCode::Backspace), &mut view);
        assert_eq!(view.filter, "i");
        let _ = input.press(key(KeyCode::Esc), &mut view);
        assert_eq!((view.filter.as_str(), view.shown().count()), ("", 2));
    }

    #[test]
    fn a_message_does_not_hide_what_is_typed() {
        let (mut input, mut view) = (Input::default(), view());
        let _ = type_in(&mut input, &mut view, "/i");
        input.say("too many".to_owned());
        assert!(input.footer().starts_with("type a part"), "{}", input.footer());
        let _ = type_in(&mut input, &mut view, "\n");
        input.hint("too many".to_owned());
        assert_eq!(input.footer(), "too many");
        input.say("done".to_owned());
        input.hint("too many".to_owned());
        assert_eq!(input.footer(), "done");
    }

    #[test]
    fn the_list_of_keys_is_closed_by_any_key() {
        let (mut input, mut view) = (Input::default(), view());
        let _ = type_in(&mut input, &mut view, "?");
        assert!(input.is_help_shown() && input.footer().starts_with("any key"));
        assert_eq!(type_in(&mut input, &mut view, "q"), Effect::None);
        assert!(!input.is_help_shown());
        assert!(format!("PAUSED  {KEYS}").len() <= 80, "all keys of the last line have room");
    }

    #[test]
    fn keys_sort_select_and_pause() {
        let (mut input, mut view) = (Input::default(), view());
        let _ = type_in(&mut input, &mut view, "s");
        assert_eq!(view.order, Order::Busy);
        let _ = input.press(key(KeyCode::End), &mut view);
        assert_eq!(view.selected_queue().map(|queue: &Queue| queue.name.as_str()), Some("io"));
        let _ = type_in(&mut input, &mut view, "p");
        assert!(input.is_paused() && input.footer().starts_with("PAUSED"));
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(input.press(quit, &mut view), Effect::Quit);
    }
}
