//! The loop of `uwork top`, with a process that answers when a test lets it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::view::Order;
use super::view::tests::answers;
use super::*;

fn press(code: KeyCode) -> Event {
    Event::Terminal(Ok(TerminalEvent::Key(KeyEvent::new(code, KeyModifiers::NONE))))
}

fn state() -> Reply {
    let (answers, since) = (answers(100, 1_000), None);
    Reply::State(State { title: "process 7".to_owned(), answers, since, missing: None })
}

fn gone(message: Option<&str>) -> Reply {
    Reply::Gone { reason: "no answer".to_owned(), message: message.map(str::to_owned) }
}

fn change(value: u32) -> Request {
    Request::Change(format!("set devices/io/nice {value}"))
}

fn refresh() -> Request {
    Request::Refresh { filter: String::new() }
}

/// The command, whose process was asked and does not answer, and the requests to it.
struct Asked {
    top: Top,
    ask: Sender<Request>,
    requests: Receiver<Request>,
}

impl Asked {
    fn new() -> Asked {
        let (ask, requests) = mpsc::channel();
        let mut top = Top::new();
        top.take_reply(state()).unwrap();
        let mut asked = Asked { top, ask, requests };
        assert_eq!(asked.after(press(KeyCode::Char(' '))), Some(refresh()));
        asked
    }

    /// The request that follows an event.
    fn after(&mut self, event: Event) -> Option<Request> {
        assert_eq!(self.top.take(event).unwrap(), Next::Draw);
        self.top.ask(&self.ask).unwrap();
        self.requests.try_recv().ok()
    }

    fn type_in(&mut self, text: &str) {
        for c in text.chars() {
            let code = if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
            assert_eq!(self.after(press(code)), None, "an answer is outstanding");
        }
    }
}

/// Follows until an event ends it. The interval is over at once.
fn follow(
    top: &mut Top,
    events: &Receiver<Event>,
    ask: &Sender<Request>,
) -> Result<ExitCode, UserError> {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    top.follow(&mut terminal, Duration::ZERO, events, ask)
}

#[test]
fn keys_have_an_effect_while_an_answer_is_outstanding() {
    let Asked { mut top, ask, requests } = Asked::new();
    let (sender, events) = mpsc::channel();
    for key in ['s', '?', 'x', 'q'] {
        sender.send(press(KeyCode::Char(key))).unwrap();
    }
    // The answer comes behind the key that ends the command.
    sender.send(Event::Reply(gone(None))).unwrap();
    drop(sender);
    assert!(follow(&mut top, &events, &ask).is_ok());
    assert_eq!((top.view.order, top.gone), (Order::Busy, None));
    assert!(requests.try_recv().is_err(), "a request while an answer is outstanding");
}

#[test]
fn requests_wait_for_the_answer_and_follow_it_in_order() {
    let mut asked = Asked::new();
    asked.type_in("  ");
    assert_eq!(asked.after(Event::Reply(state())), Some(refresh()), "a single one");
    asked.type_in("  enice 1\n enice 2\n ");
    assert_eq!(asked.after(Event::Reply(state())), Some(change(1)));
    asked.type_in(" ");
    assert_eq!(asked.after(Event::Reply(Reply::Answered("done: 1".to_owned()))), Some(change(2)));
    assert_eq!(asked.top.input.footer(), "done: 1");
    // A single refresh, with the values after the changes.
    assert_eq!(asked.after(Event::Reply(gone(Some("lost")))), Some(refresh()));
    assert_eq!(asked.top.input.footer(), "lost");
    assert_eq!(asked.after(Event::Reply(state())), None);
    assert_eq!(asked.after(press(KeyCode::Char(' '))), Some(refresh()));
}

#[test]
fn a_change_says_that_it_waits() {
    let mut asked = Asked::new();
    asked.type_in("enice 1\n");
    assert_eq!(asked.top.input.footer(), "waits for an answer: set devices/io/nice 1");
}

#[test]
fn a_paused_screen_is_still_asked_for_by_its_key() {
    let mut asked = Asked::new();
    asked.type_in("p");
    assert_eq!(asked.after(Event::Reply(state())), None);
    assert_eq!(asked.after(press(KeyCode::Char(' '))), Some(refresh()));
}

#[test]
fn gone_is_shown_until_the_next_answer() {
    for answer in [state(), Reply::Answered("done".to_owned()), Reply::Answered("no".to_owned())] {
        let mut asked = Asked::new();
        let _ = asked.after(Event::Reply(gone(None)));
        let picture = asked.top.picture();
        assert!(picture.starts_with("GONE  no answer"), "{picture}");
        assert!(picture.contains("app::Write"), "the last state stays: {picture}");
        let _ = asked.after(Event::Reply(answer));
        assert!(asked.top.picture().starts_with("process 7  "), "{}", asked.top.picture());
    }
}

#[test]
fn a_picture_ends_with_its_last_line() {
    let picture = Asked::new().top.picture();
    assert!(picture.lines().count() < usize::from(PICTURE.1), "{picture}");
    assert!(picture.ends_with('\n') && !picture.ends_with("\n\n"), "{picture}");
}

#[test]
fn the_command_ends_with_the_thread_that_asks() {
    let (sender, events) = mpsc::channel();
    let ask = asking::start_asking(&sender, |_| panic!("a defect")).unwrap();
    drop(sender);
    let ended = follow(&mut Top::new(), &events, &ask).unwrap_err();
    assert!(ended.0.contains("'asks' has ended"), "{ended}");
    // The thread has ended before the request.
    let Asked { mut top, ask, requests } = Asked::new();
    top.take_reply(state()).unwrap();
    drop(requests);
    top.requests.refresh();
    assert!(top.ask(&ask).is_err());
}
