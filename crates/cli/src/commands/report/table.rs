//! A plain table.

use std::fmt::Write as _;

use super::escaped;

/// A table with a caption. All columns but the first are numbers.
pub(super) fn table(caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
        cells.fold(String::new(), |mut html, cell| {
            let _ = write!(html, "<{tag}>{}</{tag}>", escaped(cell));
            html
        })
    };
    let mut html = format!(
        "<div class=\"scroll\"><table><caption>{}</caption><thead><tr>{}</tr></thead><tbody>\n",
        escaped(caption),
        cells("th", &mut head.iter().copied())
    );
    for row in rows {
        let row: Vec<String> = row.iter().map(|cell| unbroken(cell)).collect();
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    }
    html + "</tbody></table></div>\n"
}

/// A number stays on the line of its unit.
fn unbroken(cell: &str) -> String {
    let is_number = cell.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first));
    if is_number { cell.replace(' ', "\u{a0}") } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_break_and_text_may() {
        let html = table("a < b", &["x"], &[vec!["a b".to_owned(), "+1.5 %".to_owned()]]);
        assert!(html.contains("<caption>a &lt; b</caption>"), "{html}");
        assert!(html.contains("<td>a b</td><td>+1.5\u{a0}%</td>"), "{html}");
    }
}
