//! How attempts end, and which of them count as second runs.

use super::link::Place;
use crate::handler::{Failure, Reply};

/// An outcome that the server does not know yet.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) place: Place,
    /// The id of the job, for its result.
    pub(crate) id: Option<String>,
    pub(crate) attempt: u32,
    pub(crate) twice: Twice,
    pub(crate) end: End,
}

/// Bytes of an exchange that stand for the letters through which a script that is sent again looks: up to
/// 4 MiB of them. So the server is not busy for longer than a heartbeat.
const LETTERS_BYTES: usize = 64 << 10;

impl Outcome {
    /// The bytes that it takes of an exchange.
    pub(super) fn cost(&self) -> usize {
        let looks = |reply: &Reply| self.twice.is_repeated() && reply.has_script();
        let letters = match &self.end {
            End::Done(reply) if looks(reply) => LETTERS_BYTES,
            _ => 0,
        };
        self.end.bytes() + letters
    }
}

/// Whether a completion belongs to a job that ran twice. The server counts each such job once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Twice {
    /// If it is no longer pending: another consumer has run it.
    IfMissing,
    /// An earlier run has begun.
    Yes,
    /// The same, and the server may have executed the completion.
    YesRepeated,
    /// Unknown: the server may have executed the completion.
    Repeated,
}

impl Twice {
    /// For a completion that is sent again.
    pub(crate) fn repeated(self) -> Twice {
        match self {
            Twice::Yes | Twice::YesRepeated => Twice::YesRepeated,
            Twice::IfMissing | Twice::Repeated => Twice::Repeated,
        }
    }

    pub(crate) fn is_repeated(self) -> bool {
        matches!(self, Twice::YesRepeated | Twice::Repeated)
    }

    /// The argument of the scripts.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Twice::IfMissing => "missing",
            Twice::Yes => "all",
            Twice::YesRepeated => "again",
            Twice::Repeated => "none",
        }
    }
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum End {
    Done(Reply),
    Failed(Failure),
    HandBack,
    /// It did not run: it is the retry of this other group.
    Skipped(String),
    /// Another consumer owns the entry: it is forgotten here.
    Lost,
}

impl End {
    /// The bytes that it has for the server.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            End::Done(reply) => {
                let words = reply.result.iter().chain(reply.effect.iter().flatten());
                words.map(Vec::len).sum()
            }
            End::Failed(failure) => failure.text.len(),
            End::HandBack | End::Skipped(_) | End::Lost => 0,
        }
    }
}
