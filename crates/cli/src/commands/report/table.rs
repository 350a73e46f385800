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
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", &mut row.iter().map(String::as_str)));
    }
    html + "</tbody></table></div>\n"
}
