//! Handlers: the functions that run jobs, by name.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;
use uwork::{AffinityScope, AffinityScopeChoice};

use crate::exec::Exec;
use crate::job::Job;
use crate::producer::JOB_MAX;

/// The words of a command: a script passes them on its stack, which has 8000 places.
const WORDS_MAX: usize = 7_000;

/// What a handler returns for a job that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub(crate) result: Option<Vec<u8>>,
    pub(crate) effect: Option<Vec<Vec<u8>>>,
    /// How often an effect was given.
    effects: usize,
    /// The handler's name, for the report of an effect that fails.
    pub(crate) handler: Option<String>,
}

impl Reply {
    /// Done, without a result.
    pub fn done() -> Reply {
        Reply::default()
    }

    /// Done, with a result for [`Results`](crate::Results). Without a place for results it is
    /// dropped.
    pub fn result(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { result: Some(bytes.into()), ..Reply::default() }
    }

    /// Sets the command that the server runs in one step with the acknowledgement, if and only if this
    /// attempt acknowledges the job. In a cluster its keys have the tag of the stream, as
    /// `balance:{jobs}:7`. A command that fails has changed nothing: the attempt has failed, and the job
    /// is tried again. A right that the user lacks fails no attempt: the consumer reports it, holds the
    /// job, and asks again.
    ///
    /// Several changes are a script: `EVAL`, its text, the number of keys, the keys, the arguments.
    /// It checks before it writes. A script that fails keeps what it has written, so its job becomes
    /// a dead letter in the same step, and no run repeats the writes.
    ///
    /// A job has one effect, of 1 to 7000 words: with another number it becomes a dead letter.
    ///
    /// ```
    /// use uwork_bridge::Reply;
    /// let one = Reply::done().effect(["INCRBY", "balance:7", "100"]);
    /// let move_100 = "redis.call('DECRBY', KEYS[1], 100) redis.call('INCRBY', KEYS[2], 100)";
    /// let both = Reply::done().effect(["EVAL", move_100, "2", "balance:7", "balance:8"]);
    /// # drop((one, both));
    /// ```
    #[must_use]
    pub fn effect<W: Into<Vec<u8>>>(mut self, words: impl IntoIterator<Item = W>) -> Reply {
        self.effect = Some(words.into_iter().map(Into::into).collect());
        self.effects += 1;
        self
    }

    /// Whether the effect is a script.
    pub(crate) fn has_script(&self) -> bool {
        let first = self.effect.iter().flatten().next();
        first.is_some_and(|word| word.eq_ignore_ascii_case(b"EVAL"))
    }

    /// Refuses effects that no server can run as one. Their job would be held for ever, or repeat a
    /// part of them.
    fn checked(self) -> Result<Reply, Failure> {
        let refused = |text: String| Err(Failure::dead(text));
        if self.effects > 1 {
            return refused(format!(
                "a job has {} effects: allowed is 1, a command or a script (EVAL)",
                self.effects
            ));
        }
        let values = self.result.iter().map(|result| ("result", result));
        let words = self.effect.iter().flatten().map(|word| ("word of an effect", word));
        for (what, value) in values.chain(words) {
            // A server ends the connection without an answer, and so all outcomes beside it.
            if value.len() > JOB_MAX {
                let bytes = value.len();
                return refused(format!("a {what} has {bytes} bytes: allowed are {JOB_MAX}"));
            }
        }
        let Some(words) = &self.effect else { return Ok(self) };
        if !(1..=WORDS_MAX).contains(&words.len()) {
            let words = words.len();
            return refused(format!("an effect has {words} words: allowed are 1 to {WORDS_MAX}"));
        }
        if self.has_script() {
            let keys = words.get(2).and_then(|word| std::str::from_utf8(word).ok());
            let keys = keys.and_then(|text| text.parse::<usize>().ok());
            if keys.is_none_or(|keys| keys > words.len() - 3) {
                let text = "an effect is EVAL, a text, the number of keys, the keys, the arguments";
                return refused(text.to_owned());
            }
        }
        Ok(self)
    }
}

/// Why a handler has failed. Any error type converts into a failure that is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) text: String,
    pub(crate) is_final: bool,
    /// The job goes back without an attempt.
    pub(crate) is_not_now: bool,
    /// Why the consumer fetches no job now.
    pub(crate) pause: Option<String>,
}

impl Failure {
    /// A failure that is tried again after a delay.
    pub fn again(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), is_final: false, is_not_now: false, pause: None }
    }

    /// A failure that no further attempt can mend: the job becomes a dead letter at once.
    pub fn dead(text: impl Into<String>) -> Failure {
        Failure { is_final: true, ..Failure::again(text) }
    }

    /// This consumer cannot run jobs now, for a reason that is not the job's: a program that does not
    /// exist any more, a database that does not answer. The job goes back to its stream without an
    /// attempt, and other consumers may take it. This one reports the text, hands back what it holds,
    /// and fetches nothing; from time to time, at the latest after 2 s, it tries a single job. When that
    /// job has returned without this failure, or has run for 2 s, it fetches again.
    pub fn not_now(text: impl Into<String>) -> Failure {
        let failure = Failure::again(text);
        Failure { is_not_now: true, pause: Some(failure.text.clone()), ..failure }
    }

    /// The same, after which the consumer pauses for this reason as after [`Failure::not_now`].
    pub(crate) fn with_pause(self, reason: &str) -> Failure {
        Failure { pause: Some(reason.to_owned()), ..self }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::again(error.to_string())
    }
}

type Handler = dyn Fn(&Job) -> Result<Reply, Failure> + Send + Sync;

/// The handlers of a consumer, by name.
///
/// ```
/// use uwork_bridge::{Failure, Handlers, Reply};
/// #[derive(serde::Deserialize)]
/// struct Mail { to: String }
/// let handlers = Handlers::new()
///     .add("raw", |job| Ok(Reply::result(job.payload().to_vec())))
///     .typed("mail", |mail: Mail, _job| {
///         if mail.to.contains('@') { Ok(()) } else { Err(Failure::dead("no address")) }
///     });
/// assert_eq!(handlers.names(), ["mail", "raw"]);
/// ```
#[derive(Default)]
pub struct Handlers {
    by_name: HashMap<String, Box<Handler>>,
    other: Option<Box<Handler>>,
    starts_commands: bool,
}

impl Handlers {
    /// No handlers.
    pub fn new() -> Handlers {
        Handlers::default()
    }

    /// Adds a handler of raw payloads. A later handler replaces an earlier one of the same name.
    #[must_use]
    pub fn add(
        mut self,
        name: impl Into<String>,
        run: impl Fn(&Job) -> Result<Reply, Failure> + Send + Sync + 'static,
    ) -> Handlers {
        self.by_name.insert(name.into(), Box::new(run));
        self
    }

    /// Adds a handler of payloads in JSON. A payload that is not a `T` makes the job a dead letter.
    /// The handler's value, unless it is `()`, is the result, in JSON.
    #[must_use]
    pub fn typed<T, R>(
        self,
        name: impl Into<String>,
        run: impl Fn(T, &Job) -> Result<R, Failure> + Send + Sync + 'static,
    ) -> Handlers
    where
        T: DeserializeOwned,
        R: Serialize,
    {
        self.add(name, move |job| {
            let payload = serde_json::from_slice(job.payload())
                .map_err(|error| Failure::dead(format!("the payload is not valid: {error}")))?;
            let value = serde_json::to_vec(&run(payload, job)?)
                .map_err(|error| Failure::dead(format!("the result is not valid: {error}")))?;
            Ok(if value == b"null" { Reply::done() } else { Reply::result(value) })
        })
    }

    /// Sets the handler of all jobs whose name no other handler has, and of jobs without a name.
    #[must_use]
    pub fn otherwise(
        mut self,
        run: impl Fn(&Job) -> Result<Reply, Failure> + Send + Sync + 'static,
    ) -> Handlers {
        self.other = Some(Box::new(run));
        self
    }

    /// As [`Handlers::otherwise`] with a command. The consumer's queue has the scope `system` then: a
    /// process inherits the CPUs of the worker that starts it, and it should have all of them.
    #[must_use]
    pub fn otherwise_exec(mut self, exec: Exec) -> Handlers {
        self.starts_commands = true;
        self.otherwise(move |job| exec.run(job))
    }

    /// The affinity scope that the handlers need.
    pub(crate) fn scope(&self) -> AffinityScopeChoice {
        if self.starts_commands {
            AffinityScopeChoice::Explicit(AffinityScope::System)
        } else {
            AffinityScopeChoice::Default
        }
    }

    /// The names, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.other.is_none()
    }

    /// Runs a job. A panic is a failure.
    pub(crate) fn run(&self, job: &Job) -> Result<Reply, Failure> {
        let named = job.handler().and_then(|name| self.by_name.get(name));
        let Some(handler) = named.or(self.other.as_ref()) else {
            let name = job.handler().unwrap_or_default();
            let known = self.names().join(", ");
            // A consumer with more handlers may take the next attempt.
            return Err(Failure::again(format!(
                "no handler is named {name:?}; this consumer has {known}"
            )));
        };
        let ran = catch_unwind(AssertUnwindSafe(|| handler(job))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            // A payload may panic when it is dropped, and so may that panic's payload. A panic that
            // left this function would leave the job without an outcome.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            dropped.unwrap_or_else(std::mem::forget);
            Err(Failure::again(format!("the handler panicked: {}", text.unwrap_or_default())))
        });
        ran.and_then(Reply::checked)
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers")
            .field("names", &self.names())
            .field("otherwise", &self.other.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_servers_limit_make_a_dead_letter() {
        let large = || vec![0; JOB_MAX + 1];
        for (reply, what) in [
            (Reply::result(large()), "a result has 535822337 bytes: allowed are 535822336"),
            (Reply::done().effect([b"SET".to_vec(), large()]), "a word of an effect has 535822337"),
        ] {
            let failure = reply.checked().unwrap_err();
            assert!(failure.is_final && failure.text.starts_with(what), "{}", failure.text);
        }
    }
}
