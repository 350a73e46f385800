//! What the commands of an exchange are for.

use super::link::{End, Outcome, Place};
use crate::handler::Reply;
use crate::policy::Fate;

/// What a command of an exchange was for.
pub(super) enum Sent {
    /// Completions of a stream.
    Complete(Vec<Place>),
    /// A completion with effects or a result.
    Effects(Outcome),
    /// A retry or a burial.
    Failed(Outcome, Fate),
    HandBack(Vec<Place>),
    Beat(usize),
    /// A sign of life without entries.
    Present,
    Reclaim(usize),
    Promote(usize),
    Sweep,
}

/// What the server grants or refuses as a whole. Those of one stream have its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// The connection, and faults of the node, which concern all commands.
    Exchange,
    Outcomes,
    Beats,
    Reclaim(usize),
    Promote(usize),
    Sweep,
}

impl Sent {
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Sent::Complete(_) | Sent::Effects(_) | Sent::Failed(..) | Sent::HandBack(_) => {
                Purpose::Outcomes
            }
            Sent::Beat(_) | Sent::Present => Purpose::Beats,
            Sent::Reclaim(stream) => Purpose::Reclaim(*stream),
            Sent::Promote(stream) => Purpose::Promote(*stream),
            Sent::Sweep => Purpose::Sweep,
        }
    }

    /// The outcomes of a command that has to be sent again.
    pub(super) fn into_outcomes(self) -> Vec<Outcome> {
        let all = |places: Vec<Place>, end: fn() -> End| {
            let outcome = |place| Outcome { place, id: None, attempt: 0, end: end() };
            places.into_iter().map(outcome).collect()
        };
        match self {
            Sent::Effects(outcome) | Sent::Failed(outcome, _) => vec![outcome],
            Sent::Complete(places) => all(places, || End::Done(Reply::done())),
            Sent::HandBack(places) => all(places, || End::HandBack),
            Sent::Beat(_) | Sent::Present | Sent::Reclaim(_) | Sent::Promote(_) | Sent::Sweep => {
                Vec::new()
            }
        }
    }
}
