//! A Markdown parser limited to the needs of the rules: links, anchors, code spans, tables and
//! fenced blocks, with line numbers.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::numbered;

#[derive(Default)]
pub(crate) struct Markdown {
    pub(crate) links: Vec<(usize, String)>,
    /// The valid fragments of links to this file: slugs of headings, and explicit ids.
    pub(crate) anchors: BTreeSet<String>,
    /// Inline code.
    pub(crate) spans: Vec<(usize, String)>,
    pub(crate) fences: Vec<Fence>,
    /// Table rows, the header first; cells are trimmed.
    pub(crate) tables: Vec<Vec<(usize, Vec<String>)>>,
}

/// A fenced block of code.
pub(crate) struct Fence {
    /// The word after the opening fence, or an empty string.
    pub(crate) language: String,
    pub(crate) lines: Vec<(usize, String)>,
}

impl Markdown {
    pub(crate) fn new(text: &str) -> Self {
        let mut markdown = Self::default();
        let mut slugs = BTreeMap::new();
        let mut open_fence: Option<(String, Fence)> = None;
        let mut in_table = false;
        for (line, text) in numbered(text) {
            if let Some((marker, fence)) = &mut open_fence {
                if text.trim() == marker.as_str() {
                    markdown.fences.extend(open_fence.take().map(|(_, fence)| fence));
                } else {
                    fence.lines.push((line, text.to_owned()));
                }
                continue;
            }
            let trimmed = text.trim_start();
            if let Some(marker) = fence_marker(trimmed) {
                let language = trimmed[marker.len()..].trim().to_owned();
                open_fence = Some((marker, Fence { language, lines: Vec::new() }));
                continue;
            }
            let prose = markdown.take_spans(line, text);
            markdown.take_links(line, &prose);
            markdown.take_anchors(text, &mut slugs);
            if !trimmed.starts_with('|') {
                in_table = false;
                continue;
            }
            if !in_table {
                markdown.tables.push(Vec::new());
            }
            in_table = true;
            if let Some(table) = markdown.tables.last_mut() {
                table.extend(cells(trimmed).map(|cells| (line, cells)));
            }
        }
        markdown.fences.extend(open_fence.map(|(_, fence)| fence));
        markdown
    }

    /// Records inline code, and returns the line with the code blanked.
    fn take_spans(&mut self, line: usize, text: &str) -> String {
        let mut prose = String::new();
        let mut rest = text;
        while let Some(start) = rest.find('`') {
            let ticks = rest[start..].chars().take_while(|&c| c == '`').count();
            let marker = "`".repeat(ticks);
            let body = &rest[start + ticks..];
            let Some(end) = body.find(&marker) else { break };
            self.spans.push((line, body[..end].trim().to_owned()));
            prose.push_str(&rest[..start]);
            prose.extend(std::iter::repeat_n(' ', end + 2 * ticks));
            rest = &body[end + ticks..];
        }
        prose + rest
    }

    fn take_links(&mut self, line: usize, prose: &str) {
        for (at, _) in prose.match_indices("](") {
            let target = prose[at + 2..].split([')', ' ']).next().unwrap_or_default();
            self.links.push((line, target.trim_matches(['<', '>']).to_owned()));
        }
        for opening in ["src=\"", "href=\""] {
            for (at, _) in prose.match_indices(opening) {
                let target = prose[at + opening.len()..].split('"').next().unwrap_or_default();
                self.links.push((line, target.to_owned()));
            }
        }
        if let Some((_, target)) = prose.split_once("]: ").filter(|_| prose.starts_with('[')) {
            let target = target.split_whitespace().next().unwrap_or_default();
            self.links.push((line, target.trim_matches(['<', '>']).to_owned()));
        }
    }

    fn take_anchors(&mut self, text: &str, slugs: &mut BTreeMap<String, usize>) {
        let level = text.chars().take_while(|&c| c == '#').count();
        if (1..=6).contains(&level) && text[level..].starts_with(' ') {
            let slug = slug(&text[level..]);
            let count = slugs.entry(slug.clone()).or_default();
            self.anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
            *count += 1;
        }
        for opening in ["id=\"", "name=\""] {
            for (at, _) in text.match_indices(opening) {
                let id = text[at + opening.len()..].split('"').next().unwrap_or_default();
                self.anchors.insert(id.to_owned());
            }
        }
    }
}

fn fence_marker(trimmed: &str) -> Option<String> {
    let mark = ['`', '~'].into_iter().find(|&mark| trimmed.starts_with(mark))?;
    let length = trimmed.chars().take_while(|&c| c == mark).count();
    // Three marks that are closed on the same line are inline code.
    let opens = length >= 3 && !trimmed[length..].contains(mark);
    opens.then(|| mark.to_string().repeat(length))
}

/// The cells of a table row; `None` for the ruler below the header.
fn cells(row: &str) -> Option<Vec<String>> {
    let inner = row.trim().trim_start_matches('|').trim_end_matches('|');
    let is_ruler = inner.chars().all(|c| matches!(c, '-' | ':' | '|' | ' '));
    let escaped_pipe = "\u{0}";
    let unescape = |cell: &str| cell.replace(escaped_pipe, "|").trim().to_owned();
    (!is_ruler).then(|| inner.replace("\\|", escaped_pipe).split('|').map(unescape).collect())
}

/// The anchor that forges generate for a heading: lower case, words joined by hyphens, without
/// punctuation.
fn slug(heading: &str) -> String {
    let mut text = heading.trim().trim_end_matches('#').trim().to_owned();
    // Only the text of a link in a heading counts.
    while let Some(middle) = text.find("](") {
        let Some(end) = text[middle..].find(')') else { break };
        text.replace_range(middle..=middle + end, "");
    }
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::{Markdown, slug};

    #[test]
    fn links_of_every_form_are_found() {
        let text =
            "see [a](x.md) and ![b](y.png \"t\")\n\n[c]: z.md\n<img src=\"w.svg\">\n`[d](no.md)`\n";
        let links: Vec<String> =
            Markdown::new(text).links.into_iter().map(|(_, target)| target).collect();
        assert_eq!(links, ["x.md", "y.png", "z.md", "w.svg"]);
    }

    #[test]
    fn a_fence_hides_links_and_headings() {
        let markdown = Markdown::new("```sh\n# not a heading\n[a](b)\n```\n# One\n");
        assert!(markdown.links.is_empty());
        assert_eq!(markdown.anchors.iter().collect::<Vec<_>>(), ["one"]);
        assert_eq!(markdown.fences[0].language, "sh");
        assert_eq!(markdown.fences[0].lines[0], (2, "# not a heading".to_owned()));
    }

    #[test]
    fn slugs_match_those_of_the_forges() {
        assert_eq!(slug(" 3. Affinity scopes: `cache_shard`!"), "3-affinity-scopes-cache_shard");
        assert_eq!(slug(" See [the guide](guide.md)"), "see-the-guide");
        let markdown = Markdown::new("# Same\n# Same\n<a id=\"by-hand\"></a>\n");
        let anchors: Vec<_> = markdown.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["by-hand", "same", "same-1"]);
    }

    #[test]
    fn tables_are_split_into_cells() {
        let markdown = Markdown::new("| a | b |\n|---|:-:|\n| `x` | y \\| z |\n\n| c |\n");
        assert_eq!(markdown.tables.len(), 2);
        assert_eq!(markdown.tables[0][1], (3, vec!["`x`".to_owned(), "y | z".to_owned()]));
    }
}
