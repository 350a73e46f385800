//! What the commands of an exchange are for.

use super::link::{Lost, Place};
use super::outcome::{End, Outcome, Twice};
use super::run::Waiting;
use crate::handler::Reply;
use crate::policy::Fate;

/// What a command of an exchange was for.
pub(super) enum Sent {
    /// Completions of a stream.
    Complete(Vec<Place>, Twice),
    /// Begins that their runs wait for.
    Begin(usize, Vec<Waiting>),
    /// Begins of runs. One that was alone is no longer.
    Record(usize, Vec<Place>),
    /// The sign of life for jobs that were lost.
    Spare(usize, Vec<Lost>),
    /// The connections of the server of a stream.
    Connections(usize),
    /// A completion with effects or a result.
    Effects(Outcome),
    /// A retry or a burial.
    Failed(Outcome, Fate),
    HandBack(Vec<Place>),
    /// Retries of other groups.
    Skip(Vec<(Place, String)>),
    Beat(usize),
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
    Spare,
    Reclaim(usize),
    Promote(usize),
    Sweep,
}

impl Sent {
    pub(super) fn purpose(&self) -> Purpose {
        match self {
            Sent::Complete(..)
            | Sent::Effects(_)
            | Sent::Failed(..)
            | Sent::HandBack(_)
            | Sent::Skip(_) => Purpose::Outcomes,
            Sent::Beat(_) | Sent::Begin(..) | Sent::Record(..) => Purpose::Beats,
            Sent::Spare(..) => Purpose::Spare,
            Sent::Connections(stream) | Sent::Reclaim(stream) => Purpose::Reclaim(*stream),
            Sent::Promote(stream) => Purpose::Promote(*stream),
            Sent::Sweep => Purpose::Sweep,
        }
    }

    /// The outcomes of a command that has to be sent again. `is_repeat`: the server may have executed
    /// it.
    pub(super) fn into_outcomes(self, is_repeat: bool) -> Vec<Outcome> {
        let of = |place, twice, end| Outcome { place, id: None, attempt: 0, twice, end };
        let all = |places: Vec<Place>, twice, end: fn() -> End| {
            places.into_iter().map(|place| of(place, twice, end())).collect()
        };
        let mut outcomes: Vec<Outcome> = match self {
            Sent::Effects(outcome) | Sent::Failed(outcome, _) => vec![outcome],
            Sent::Complete(places, twice) => all(places, twice, || End::Done(Reply::done())),
            Sent::HandBack(places) => all(places, Twice::IfMissing, || End::HandBack),
            Sent::Skip(retries) => {
                let skipped = |(place, group)| of(place, Twice::IfMissing, End::Skipped(group));
                retries.into_iter().map(skipped).collect()
            }
            Sent::Begin(..)
            | Sent::Record(..)
            | Sent::Spare(..)
            | Sent::Connections(_)
            | Sent::Beat(_)
            | Sent::Reclaim(_)
            | Sent::Promote(_)
            | Sent::Sweep => Vec::new(),
        };
        if is_repeat {
            outcomes.iter_mut().for_each(|outcome| outcome.twice = outcome.twice.repeated());
        }
        outcomes
    }
}
