//! The thread of `uwork top` that asks the process. It waits for a stopped or slow process, so that
//! keys never do. One request is outstanding at a time; the others wait in [`Requests`].

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event;

use super::UserError;
use super::view::Answers;
use crate::client::{Client, Failure, PATIENCE, Refused, is_alive};
use crate::commands::process::doctor::names::Kept;
use crate::commands::process::named::command_of;

/// What the process is asked for.
#[derive(Debug, PartialEq)]
pub(super) enum Request {
    /// Its state. Of too many queues, those whose names contain the filter.
    Refresh { filter: String },
    /// A change, as a request of the protocol.
    Change(String),
}

/// What came of a request.
pub(super) enum Reply {
    State(State),
    /// The process answered a change. The text is for the user.
    Answered(String),
    /// The process does not answer, for this reason. `message`: for a change, whether the value may
    /// have changed.
    Gone {
        reason: String,
        message: Option<String>,
    },
    /// There is nothing to show any more.
    Failed(UserError),
}

/// The state of the process.
pub(super) struct State {
    /// The first words of the screen.
    pub(super) title: String,
    pub(super) answers: Answers,
    /// The time since the last answers of the same process.
    pub(super) since: Option<Duration>,
    /// Why there are no queues.
    pub(super) missing: Option<String>,
}

/// What the loop of `uwork top` waits for.
pub(super) enum Event {
    Terminal(io::Result<event::Event>),
    Reply(Reply),
    /// A thread has ended, which panicked.
    Ended(&'static str),
}

/// The requests of the user and of the clock, until the process is asked.
#[derive(Default)]
pub(super) struct Requests {
    is_outstanding: bool,
    changes: VecDeque<String>,
    is_refresh_due: bool,
}

impl Requests {
    pub(super) fn is_outstanding(&self) -> bool {
        self.is_outstanding
    }

    /// Asks for the state. One such request waits at most.
    pub(super) fn refresh(&mut self) {
        self.is_refresh_due = true;
    }

    /// Asks for a change, and for the state after it.
    pub(super) fn change(&mut self, request: String) {
        self.changes.push_back(request);
        self.is_refresh_due = true;
    }

    /// The request to send now: None while an answer is outstanding. Changes come first, in order.
    pub(super) fn next(&mut self, filter: &str) -> Option<Request> {
        if self.is_outstanding {
            return None;
        }
        let request = match self.changes.pop_front() {
            Some(change) => Request::Change(change),
            None if std::mem::take(&mut self.is_refresh_due) => {
                Request::Refresh { filter: filter.to_owned() }
            }
            None => return None,
        };
        self.is_outstanding = true;
        Some(request)
    }

    pub(super) fn answered(&mut self) {
        self.is_outstanding = false;
    }
}

/// Tells the loop that a thread has ended.
struct End(Sender<Event>, &'static str);

impl Drop for End {
    fn drop(&mut self) {
        // The loop may have ended before.
        let _ = self.0.send(Event::Ended(self.1));
    }
}

/// Starts a thread that sends events until the loop has ended. No thread is waited for: the process
/// ends with the loop.
fn start(
    name: &'static str,
    events: &Sender<Event>,
    mut next: impl FnMut() -> Option<Event> + Send + 'static,
) -> Result<(), UserError> {
    let end = End(events.clone(), name);
    let work = move || while next().is_some_and(|event| end.0.send(event).is_ok()) {};
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|error| UserError(format!("a thread: {error}")))
}

/// Starts the thread that answers requests by `answer`.
pub(super) fn start_asking(
    events: &Sender<Event>,
    mut answer: impl FnMut(Request) -> Reply + Send + 'static,
) -> Result<Sender<Request>, UserError> {
    let (ask, requests) = mpsc::channel();
    start("asks", events, move || Some(Event::Reply(answer(requests.recv().ok()?))))?;
    Ok(ask)
}

/// Starts the thread that reads keys. Nothing else reads the terminal from then on.
pub(super) fn start_reading(events: &Sender<Event>) -> Result<(), UserError> {
    start("keys", events, || Some(Event::Terminal(event::read())))
}

/// The connection to the process.
pub(super) struct Asker {
    client: Client,
    title: String,
    /// When the last answers came.
    at: Option<Instant>,
    /// Why the last exchange has failed. The next one needs a new connection: the answer may come
    /// yet.
    gone: Option<String>,
    names: Kept,
    /// Whether the process names its functions: it is of an earlier version, or its files cannot be
    /// read here.
    names_itself: bool,
}

impl Asker {
    pub(super) fn connect(process: &str) -> Result<Asker, UserError> {
        let client = Client::connect(process)?;
        let title = title(&client);
        let names = Kept::default();
        Ok(Asker { client, title, at: None, gone: None, names, names_itself: false })
    }

    pub(super) fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Refresh { filter } => self.refresh(&filter),
            Request::Change(request) => self.change(&request),
        }
    }

    /// Connects anew after a failure. The error is the reason. Another process may have the number of
    /// one that has ended: its counters begin anew.
    fn reconnect(&mut self) -> Result<(), String> {
        if self.gone.is_none() {
            return Ok(());
        }
        let client = self.client.reopen(PATIENCE)?;
        if !client.is_of_same_process(&self.client) {
            (self.title, self.at) = (title(&client), None);
            (self.names, self.names_itself) = (Kept::default(), false);
        }
        (self.client, self.gone) = (client, None);
        Ok(())
    }

    fn gone(&mut self, reason: String, message: Option<String>) -> Reply {
        // Of a process that has ended, the first reason says the most.
        if self.gone.is_none() || is_alive(self.client.process()) {
            self.gone = Some(reason.clone());
        }
        Reply::Gone { reason: self.gone.clone().unwrap_or(reason), message }
    }

    /// A process that does not answer is asked again each time.
    fn refresh(&mut self, filter: &str) -> Reply {
        if let Err(reason) = self.reconnect() {
            return self.gone(reason, None);
        }
        // The first round has the deadline of the connect.
        if self.at.is_some() {
            self.client.renew();
        }
        let mut missing = None;
        match self.ask(filter, &mut missing) {
            Ok(answers) => {
                let now = Instant::now();
                let since = self.at.replace(now).map(|at| now.duration_since(at));
                Reply::State(State { title: self.title.clone(), answers, since, missing })
            }
            Err(Failure::Gone(reason)) => self.gone(reason, None),
            Err(refused) => Reply::Failed(refused.into()),
        }
    }

    fn change(&mut self, request: &str) -> Reply {
        if let Err(reason) = self.reconnect() {
            return self.gone(reason, Some(format!("nothing changed: {request}")));
        }
        self.client.renew();
        match self.client.ask(request) {
            Ok(_) => Reply::Answered(format!("done: {request}")),
            Err(Failure::Refused(refused)) => Reply::Answered(refused.reason),
            Err(Failure::Gone(reason)) => {
                self.gone(reason, Some(format!("the value may have changed: {request}")))
            }
        }
    }

    fn ask(&mut self, filter: &str, missing: &mut Option<String>) -> Result<Answers, Failure> {
        let status = self.client.ask("status")?;
        let queues = match self.client.ask("queues") {
            Err(Failure::Refused(refused)) => self.ask_filtered(filter, refused, missing)?,
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
    fn ask_filtered(
        &mut self,
        filter: &str,
        mut refused: Refused,
        missing: &mut Option<String>,
    ) -> Result<String, Failure> {
        if !filter.is_empty() {
            match self.client.ask(&format!("queues {filter}")) {
                Err(Failure::Refused(again)) => refused = again,
                answer => return answer,
            }
        }
        *missing = Some(format!("{}: / and a part of the names", refused.reason));
        Ok(String::new())
    }
}

fn title(client: &Client) -> String {
    let number = client.process();
    format!("process {number} {}", command_of(number).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_answer_that_comes_late_is_not_that_to_the_next_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let accept = || {
                let (mut stream, _) = listener.accept().unwrap();
                writeln!(stream, "uwork-control 1 {}", std::process::id()).unwrap();
                let mut requests = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                move |answer: &[u8]| {
                    requests.read_line(&mut line).unwrap();
                    if answer.is_empty() {
                        // The client has given up when it closes the connection.
                        let _ = requests.read_to_end(&mut Vec::new());
                    }
                    let _ = stream.write_all(if answer.is_empty() { b"ok 0\n" } else { answer });
                    std::mem::take(&mut line)
                }
            };
            let first = accept()(b"");
            let mut answer = accept();
            [first, answer(b"err invalid no\n"), answer(b"ok 0\n")].concat()
        });
        let mut asker = Asker::connect(path.to_str().unwrap()).unwrap();
        let mut change = |value: u32| match asker.answer(Request::Change(format!("set a {value}")))
        {
            Reply::Answered(message) => message,
            Reply::Gone { message, .. } => format!("gone: {}", message.unwrap()),
            Reply::State(_) | Reply::Failed(_) => panic!("no answer to a change"),
        };
        assert_eq!(change(1), "gone: the value may have changed: set a 1");
        assert_eq!(change(2), "no");
        assert_eq!(change(3), "done: set a 3");
        assert_eq!(server.join().unwrap(), "set a 1\nset a 2\nset a 3\n");
    }
}
