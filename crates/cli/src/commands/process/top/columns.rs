//! The columns of a table on a screen of any width: which of them are shown, and how wide they are.
//! A column that is shown has room for every number in it, and a gap before it.

use ratatui::layout::Constraint;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use ratatui::widgets::{Row, Table};

use crate::printable::{chars_in_a_line, in_a_line};

/// A column, as far as its width is concerned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// The narrowest width that is useful.
    pub(super) least: usize,
    /// The width that shows everything.
    pub(super) wish: usize,
    /// The order in which columns get room: 0 comes first and is always shown.
    pub(super) rank: u8,
}

impl Column {
    /// A column of one width.
    pub(super) fn fixed(width: usize, rank: u8) -> Column {
        Column { least: width, wish: width, rank }
    }
}

/// The width of each column on a screen of this width; None for those that are left out.
pub(super) fn fit(columns: &[Column], width: usize) -> Vec<Option<usize>> {
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|&place| columns[place].rank);
    let mut widths = vec![None; columns.len()];
    // The gap before the first column is outside of the screen.
    let mut left = width + 1;
    for &place in &order {
        let Column { least, rank, .. } = columns[place];
        // A narrow column of a low rank does not take the place of a wide one before it.
        if least < left || rank == 0 {
            widths[place] = Some(least.min(left.saturating_sub(1)));
            left = left.saturating_sub(least + 1);
        } else {
            break;
        }
    }
    for &place in &order {
        if let Some(taken) = &mut widths[place] {
            let more = columns[place].wish.saturating_sub(*taken).min(left);
            *taken += more;
            left -= more;
        }
    }
    widths
}

/// A table of which the columns that have room are shown. `numbers`: those to the right of their
/// columns.
pub(super) struct Cells {
    pub(super) columns: Vec<Column>,
    pub(super) titles: Vec<String>,
    pub(super) numbers: &'static [usize],
    /// The column of which the end is kept, if it is cut.
    pub(super) kept_end: Option<usize>,
}

impl Cells {
    pub(super) fn table<'a>(
        &self,
        width: u16,
        rows: impl Iterator<Item = (Vec<String>, Style)>,
    ) -> Table<'a> {
        let widths = fit(&self.columns, width.into());
        let shown = |(place, text): (usize, &String)| {
            let width = widths[place]?;
            let text = match self.kept_end {
                Some(end) if end == place => cut_start(text, width),
                _ => cut(text, width),
            };
            let left = match self.numbers.contains(&place) {
                true => width - width_of(&text),
                false => 0,
            };
            Some(format!("{}{text}", " ".repeat(left)))
        };
        let line = |texts: &[String]| Row::new(texts.iter().enumerate().filter_map(shown));
        let rows = rows.map(|(texts, style)| line(&texts).style(style));
        let constraints = widths.iter().flatten().map(|&width| Constraint::Length(width as u16));
        Table::new(rows.collect::<Vec<_>>(), constraints)
            .header(line(&self.titles).style(Style::new().add_modifier(Modifier::BOLD)))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
    }
}

/// The width of the longest of these texts, within bounds.
pub(super) fn longest<'a>(
    texts: impl Iterator<Item = &'a str>,
    least: usize,
    most: usize,
) -> usize {
    let width = |text| start(text, most).map(|(_, cells)| cells).sum();
    texts.map(width).max().unwrap_or(0).clamp(least, most)
}

/// The cells of a text on a screen.
pub(super) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

fn width_of_char(c: char) -> usize {
    width_of(c.encode_utf8(&mut [0; 4]))
}

/// The characters of a text, escaped, with the cells that each takes: up to the first that has no room
/// in this width. A process chooses the length of its texts.
fn start(text: &str, width: usize) -> impl Iterator<Item = (char, usize)> {
    let mut is_full = false;
    let mut taken = 0;
    chars_in_a_line(text).map(|c| (c, width_of_char(c))).take_while(move |&(_, cells)| {
        taken += cells;
        !std::mem::replace(&mut is_full, taken > width)
    })
}

/// The text, escaped and cut to this number of cells. `…` stands for an end that is left out.
pub(in super::super) fn cut(text: &str, width: usize) -> String {
    // `fits`: the bytes that leave a cell for the mark.
    let (mut kept, mut taken, mut fits) = (String::new(), 0, 0);
    for (c, cells) in start(text, width) {
        taken += cells;
        if taken > width {
            kept.truncate(fits);
            kept.extend((width > 0).then_some('…'));
            break;
        }
        kept.push(c);
        if taken < width {
            fits = kept.len();
        }
    }
    kept
}

/// The bytes of a text's end that are looked at. Those of a line of the widest screen are fewer.
const END_MAX: usize = 64 << 10;

/// As [`cut`], but the end is kept: that of a path is what tells it from others. Closures in a path
/// become `{}` first.
pub(super) fn cut_start(text: &str, width: usize) -> String {
    let first = (text.len().saturating_sub(END_MAX)..).find(|&at| text.is_char_boundary(at));
    let first = first.unwrap_or(0);
    let is_all = |line: &str| first == 0 && start_of_end(line, width) == 0;
    let mut line = in_a_line(&text[first..]);
    if !is_all(&line) {
        line = line.replace("{{closure}}", "{}");
    }
    match width {
        _ if is_all(&line) => line,
        0 => String::new(),
        _ => format!("…{}", &line[start_of_end(&line, width - 1)..]),
    }
}

/// Where the longest end begins that has room in this width.
fn start_of_end(line: &str, width: usize) -> usize {
    let (mut taken, mut from) = (0, line.len());
    for (at, c) in line.char_indices().rev() {
        taken += width_of_char(c);
        if taken > width {
            break;
        }
        from = at;
    }
    from
}

/// The cells of a part that are kept on a screen of any width.
const PART_MIN: usize = 200;

/// The parts that have room, escaped, in order, with two blanks between them. The first is always there.
pub(super) fn parts_that_fit(parts: &[String], width: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let part: String = start(part, width.max(PART_MIN)).map(|(c, _)| c).collect();
        let gap = if text.is_empty() { "" } else { "  " };
        if !text.is_empty() && width_of(&text) + gap.len() + width_of(&part) > width {
            break;
        }
        text = format!("{text}{gap}{part}");
    }
    text
}

/// The text in lines of this width, broken at blanks. It has four lines at most; what has no room is
/// cut.
pub(super) fn wrapped(text: &str, width: u16) -> Vec<String> {
    const LINES: usize = 4;
    /// A word that is cut takes more of a text than its line.
    const CELLS_MAX: usize = 4096;
    let width = usize::from(width);
    let text: String = start(text, CELLS_MAX).map(|(c, _)| c).collect();
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split(' ') {
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        let is_last = lines.len() + 1 == LINES;
        if line.is_empty() || is_last || width_of(&longer) <= width {
            line = longer;
        } else {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
        }
    }
    lines.push(line);
    lines.iter().map(|line| cut(line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_get_room_by_rank_and_then_grow() {
        let columns =
            [Column { least: 4, wish: 10, rank: 0 }, Column::fixed(6, 2), Column::fixed(3, 1)];
        assert_eq!(fit(&columns, 8), [Some(4), None, Some(3)]);
        assert_eq!(fit(&columns, 15), [Some(4), Some(6), Some(3)]);
        assert_eq!(fit(&columns, 18), [Some(7), Some(6), Some(3)]);
        assert_eq!(fit(&columns, 99), [Some(10), Some(6), Some(3)]);
        assert_eq!(fit(&columns, 2), [Some(2), None, None]);
        assert_eq!(fit(&columns, 0), [Some(0), None, None]);
    }

    #[test]
    fn a_text_is_cut_by_the_cells_that_it_takes() {
        assert_eq!(cut("queue", 5), "queue");
        assert_eq!(cut("queues", 5), "queu…");
        assert_eq!(cut("待機列", 5), "待機…");
        assert_eq!(cut("待機列", 4), "待…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), String::new()));
        assert_eq!(
            (cut("a\u{202e}b\n", 99), longest(["\u{200d}"].into_iter(), 0, 99)),
            ("a\\u202eb\\u000a".to_owned(), 6)
        );
        assert_eq!(cut_start("app::Write", 6), "…Write");
        assert_eq!(cut_start("a待機", 4), "…機");
        assert_eq!(cut_start("app::write::{{closure}}", 14), "app::write::{}");
        assert_eq!(cut_start("app::write::{{closure}}", 12), "…::write::{}");
        assert_eq!((cut_start("ab", 1), cut_start("ab", 0)), ("…".to_owned(), String::new()));
        for text in ["", "a", "a\u{301}", "日", "a\u{1f}", "\u{1f44d}\u{1f3fd}"] {
            for width in 0..12 {
                assert!(width_of(&cut(text, width)) <= width, "{text:?} {width}");
                assert!(width_of(&cut_start(text, width)) <= width, "{text:?} {width}");
            }
        }
    }

    // Catches: work that grows with the square of a text that a process chooses.
    #[test]
    fn of_a_text_of_any_length_as_much_is_looked_at_as_has_room() {
        let marks = format!("a{}", "\u{301}".repeat(4 << 20));
        let bound = 64 * 9 * 2;
        let others = ["x".repeat(8 << 20), "\u{202e}".repeat(2 << 20), "a ".repeat(4 << 20)];
        for text in others.iter().chain([&marks]) {
            assert!(start(text, 64).count() <= bound);
            for cut in [cut(text, 64), cut_start(text, 64), wrapped(text, 64).concat()] {
                assert!(cut.len() <= 4 * bound && width_of(&cut) <= 4 * 64, "{cut}");
            }
            assert_eq!(longest([text.as_str()].into_iter(), 0, 64), 64);
            assert!(parts_that_fit(std::slice::from_ref(text), 64).len() <= 200 * 9 * 2);
        }
    }

    #[test]
    fn a_long_text_is_cut_at_both_ends_as_a_short_one() {
        let text = format!("first{}last", "x".repeat(8 << 20));
        assert_eq!((cut(&text, 8), cut_start(&text, 6)), ("firstxx…".into(), "…xlast".into()));
    }

    #[test]
    fn parts_are_left_out_whole() {
        let parts = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(parts_that_fit(&parts, 9), "one  two");
        assert_eq!(parts_that_fit(&parts, 2), "one");
        assert_eq!(parts_that_fit(&[], 2), "");
    }

    #[test]
    fn a_message_is_broken_at_blanks() {
        assert_eq!(wrapped("GONE  it is gone", 10), ["GONE  it", "is gone"]);
        assert_eq!(wrapped("a long-word b", 6), ["a", "long-…", "b"]);
        assert_eq!(wrapped("1 2 3 4 5", 1), ["1", "2", "3", "…"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
