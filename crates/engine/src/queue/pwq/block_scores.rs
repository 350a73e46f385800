//! Which functions of a queue's items are presumed to block.

use uwork_policy::blocking::{PRESUME_BLOCKED_AFTER, block_score_after};

use crate::words::sync::Hint;

/// How many functions of a queue have a score. A queue rarely has more that block.
const FUNCTIONS_MAX: usize = 4;

/// For each of a few functions, how many of its runs in a row were found blocked. A function is named
/// by its identity ([`ItemFn::identity`](crate::words::item::ItemFn::identity)).
///
/// All of this is hints. A race of two writers costs a count, or gives a function the score of
/// another one; runs that were presumed to block are measured, so a wrong score does not last.
pub(crate) struct BlockScores {
    /// 1 if some function is presumed to block, else 0.
    any: Hint,
    scores: [Score; FUNCTIONS_MAX],
}

struct Score {
    /// The function's identity; 0 if there is none.
    func: Hint,
    /// As [`block_score_after`] counts.
    score: Hint,
}

impl BlockScores {
    pub(super) fn new() -> BlockScores {
        let score = |_| Score { func: Hint::new(0), score: Hint::new(0) };
        BlockScores { any: Hint::new(0), scores: std::array::from_fn(score) }
    }

    /// Forgets all: the pwq serves another queue.
    pub(super) fn clear(&self) {
        self.any.set(0);
        self.scores.iter().for_each(|score| score.func.set(0));
    }

    /// Whether some function is presumed to block.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.get() != 0
    }

    /// The score of this function, if its next run is presumed to block.
    pub(crate) fn presumed(&self, func: usize) -> Option<u32> {
        self.of(func).map(Score::get).filter(|&score| score >= PRESUME_BLOCKED_AFTER)
    }

    /// Takes a run of this function into account that was found blocked, or was presumed to block and
    /// did not.
    #[cold]
    pub(crate) fn note(&self, func: usize, blocked: bool) {
        let Some(score) = self.of(func).or_else(|| blocked.then(|| self.begin(func))) else {
            return;
        };
        score.score.set(block_score_after(score.get(), blocked) as usize);
        let any = self.scores.iter().any(|score| score.get() >= PRESUME_BLOCKED_AFTER);
        self.any.set(any.into());
    }

    fn of(&self, func: usize) -> Option<&Score> {
        self.scores.iter().find(|score| score.func.get() == func)
    }

    /// Begins to count for a function, in the place of the one with the least score.
    fn begin(&self, func: usize) -> &Score {
        let [first, others @ ..] = &self.scores;
        let lesser = |least: &Score, other: &Score| other.get() < least.get();
        let least = others
            .iter()
            .fold(first, |least, other| if lesser(least, other) { other } else { least });
        least.func.set(0);
        least.score.set(0);
        least.func.set(func);
        least
    }
}

impl Score {
    fn get(&self) -> u32 {
        if self.func.get() == 0 { 0 } else { self.score.get() as u32 }
    }
}
