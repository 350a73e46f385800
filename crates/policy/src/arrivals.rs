//! When the items of a list were queued, known from a few of them.
//!
//! To read a clock for each item would cost as much as to queue it. So only an item that finds its
//! inbox empty carries the time. When the inbox is moved to the list, that item is the first of
//! those moved: a *mark*. The items between two marks are taken for evenly spread.

/// The most marks that are kept. When there are more, every second one is dropped.
const MARKS_MAX: usize = 8;

/// The place of an item in the order of arrival, and when it was queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark {
    place: u64,
    at_ns: u64,
}

/// See the module.
///
/// ```
/// use uwork_policy::arrivals::Arrivals;
///
/// let mut arrivals = Arrivals::default();
/// arrivals.moved(0, 1_000); // The first item was queued at 1 us.
/// arrivals.looked(10, 2_000); // Nine more were there at 2 us.
/// assert_eq!(arrivals.queued_at(0), Some(1_000));
/// assert_eq!(arrivals.queued_at(5), Some(1_500));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    marks: [Mark; MARKS_MAX],
    len: usize,
    /// Every item before this place was queued by that time.
    end: Mark,
}

impl Arrivals {
    /// Items were moved to the list. The first of them has this place in the order of arrival, and
    /// was queued at `at_ns`.
    #[inline]
    pub fn moved(&mut self, place: u64, at_ns: u64) {
        if self.len == MARKS_MAX {
            for kept in 1..MARKS_MAX / 2 {
                self.marks[kept] = self.marks[2 * kept];
            }
            self.len = MARKS_MAX / 2;
        }
        self.marks[self.len] = Mark { place, at_ns };
        self.len += 1;
    }

    /// At `now_ns` every item before `place` is in the list.
    #[inline]
    pub fn looked(&mut self, place: u64, now_ns: u64) {
        self.end = Mark { place, at_ns: now_ns };
    }

    /// About when the item with this place was queued, if that is known. Forgets what is known of
    /// earlier items only.
    #[inline]
    pub fn queued_at(&mut self, place: u64) -> Option<u64> {
        let later = self.marks[..self.len].iter().take_while(|mark| mark.place <= place).count();
        if later > 1 {
            self.marks.copy_within(later - 1..self.len, 0);
            self.len -= later - 1;
        }
        let first = *self.marks[..self.len].first()?;
        if place <= first.place {
            return Some(first.at_ns);
        }
        let next = if self.len > 1 { self.marks[1] } else { self.end };
        if next.place <= place {
            return Some(first.at_ns.max(next.at_ns));
        }
        let span = u128::from(next.at_ns.saturating_sub(first.at_ns));
        let share = span * u128::from(place - first.place) / u128::from(next.place - first.place);
        Some(first.at_ns + share as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_without_a_mark() {
        let mut arrivals = Arrivals::default();
        arrivals.looked(3, 10);
        assert_eq!(arrivals.queued_at(2), None);
    }

    #[test]
    fn marks_are_exact_and_what_lies_between_is_spread() {
        let mut arrivals = Arrivals::default();
        arrivals.moved(0, 100);
        arrivals.moved(4, 200);
        arrivals.looked(6, 300);
        assert_eq!(
            [0, 1, 4, 5].map(|place| arrivals.clone().queued_at(place).unwrap()),
            [100, 125, 200, 250]
        );
        assert_eq!(arrivals.queued_at(9), Some(300), "a place that was not looked at");
        assert_eq!(arrivals.queued_at(0), Some(200), "given back: the earliest that is known");
    }

    #[test]
    fn a_long_backlog_is_known_to_a_quarter_of_its_wait() {
        let mut arrivals = Arrivals::default();
        for place in 0..1_000 {
            arrivals.moved(place, place * place);
            arrivals.looked(place + 1, place * place);
        }
        for place in 0..1_000 {
            let found = arrivals.queued_at(place).unwrap();
            assert!(found.abs_diff(place * place) <= 1_000 * 1_000 / 4, "{place}: {found}");
        }
    }

    #[test]
    fn clocks_that_disagree_do_no_harm() {
        let mut arrivals = Arrivals::default();
        arrivals.moved(0, 500);
        arrivals.looked(4, 400);
        assert_eq!(arrivals.queued_at(2), Some(500));
    }
}
