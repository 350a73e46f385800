//! Splits a Rust file into code and comments, and finds the lines that are tests.
//!
//! It works on the text and not on the token stream, because half of the rules concern comments.

use proc_macro2::Span;
use syn::Token;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::Visit;

/// Replaces each character of a string's content in `code`: neither blank nor part of a word.
const IN_STRING: char = '\u{b7}';

pub(crate) struct RustText {
    /// The text with comments blanked and string contents replaced. Line numbers are preserved.
    pub(crate) code: String,
    /// The text with everything except comments blanked.
    pub(crate) comments: String,
    pub(crate) syntax: Result<syn::File, syn::Error>,
    tests: TestLines,
}

impl RustText {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let syntax = syn::parse_file(text);
        let mut tests = TestLines { whole_file: is_test_path(path), ranges: Vec::new() };
        if let Ok(file) = &syntax {
            tests.visit_file(file);
        }
        Self { code, comments, syntax, tests }
    }

    /// Whether line `line` is compiled for tests only.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        let inside = |&(first, last): &(usize, usize)| (first..=last).contains(&line);
        self.tests.whole_file || self.tests.ranges.iter().any(inside)
    }
}

fn is_test_path(path: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    stem == "tests" || path.split('/').rev().skip(1).any(|folder| folder == "tests")
}

/// Finds the items that are compiled only for tests.
struct TestLines {
    whole_file: bool,
    ranges: Vec<(usize, usize)>,
}

impl TestLines {
    fn add_if_test(&mut self, attributes: &[syn::Attribute], span: Span) {
        if attributes.iter().any(is_test_attribute) {
            self.ranges.push((span.start().line, span.end().line));
        }
    }
}

fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args().is_ok_and(|condition| demands_test(&condition))
        }
        _ => false,
    }
}

/// Whether a `cfg` condition holds only in tests: `test` itself, or one part of an `all`.
fn demands_test(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<syn::Meta, Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(demands_test))
        }
        _ => false,
    }
}

impl<'ast> Visit<'ast> for TestLines {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.add_if_test(&item.attrs, item.span());
        syn::visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_if_test(&item.attrs, item.span());
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.add_if_test(&item.attrs, item.span());
    }
}

/// Splits `text` into code and comments of the same layout.
fn split(text: &str) -> (String, String) {
    let mut splitter =
        Splitter { rest: text, code: String::new(), comments: String::new(), after_word: false };
    while !splitter.rest.is_empty() {
        splitter.step();
    }
    (splitter.code, splitter.comments)
}

struct Splitter<'a> {
    rest: &'a str,
    code: String,
    comments: String,
    /// Whether the last character of code belongs to a word, so that `br"` in `abr"` starts nothing.
    after_word: bool,
}

impl Splitter<'_> {
    fn step(&mut self) {
        let rest = self.rest;
        if rest.starts_with("//") {
            self.take_comment(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.take_comment(block_comment_length(rest));
        } else if let Some(quotes) = raw_string_quotes(rest).filter(|_| !self.after_word) {
            let closing = format!("\"{}", "#".repeat(quotes.hashes));
            let body = &rest[quotes.opening..];
            let content = body.find(&closing).unwrap_or(body.len());
            self.take_string(quotes.opening, content, closing.len());
        } else if let Some(body) = rest.strip_prefix('"') {
            self.take_string(1, content_length(body, '"'), 1);
        } else if is_char_literal(rest) {
            self.take_string(1, content_length(&rest[1..], '\''), 1);
        } else {
            self.take_code(rest.chars().next().map_or(0, char::len_utf8));
        }
    }

    fn take_code(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.code.push_str(taken);
        self.comments.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' }));
        self.after_word = taken.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        self.rest = rest;
    }

    fn take_comment(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.code.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' }));
        self.comments.push_str(taken);
        self.after_word = false;
        self.rest = rest;
    }

    fn take_string(&mut self, opening: usize, content: usize, closing: usize) {
        self.take_code(opening);
        let (taken, rest) = self.rest.split_at(content);
        self.code.extend(taken.chars().map(|c| if c == '\n' { c } else { IN_STRING }));
        self.comments.extend(taken.chars().map(|c| if c == '\n' { c } else { ' ' }));
        self.rest = rest;
        self.take_code(closing);
    }
}

/// The length of the block comment at the start of `text`. Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

struct RawQuotes {
    /// Bytes up to and including the opening quote.
    opening: usize,
    hashes: usize,
}

fn raw_string_quotes(text: &str) -> Option<RawQuotes> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        text.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['"', '#']))
    })?;
    let rest = &text[prefix.len()..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let is_string = rest[hashes..].starts_with('"');
    is_string.then_some(RawQuotes { opening: prefix.len() + hashes + 1, hashes })
}

/// The number of bytes up to the closing `quote`, skipping escaped characters.
fn content_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at,
            _ => {}
        }
    }
    text.len()
}

/// A quote starts a character literal or a lifetime. A lifetime has no closing quote after one
/// character.
fn is_char_literal(text: &str) -> bool {
    let mut characters = text.chars();
    if characters.next() != Some('\'') {
        return false;
    }
    characters.next() == Some('\\') || characters.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::{RustText, split};

    #[test]
    fn comments_leave_the_code() {
        let (code, comments) = split("a /* b /* c */ d */ e // f\ng");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>(), ["a", "e", "g"]);
        assert!(comments.contains("b /* c */ d") && comments.contains("// f"));
        assert_eq!(code.lines().count(), comments.lines().count());
    }

    #[test]
    fn the_content_of_a_string_is_not_code() {
        for text in [
            r#"f("x // \" y")"#,
            "f(r#\"x \" y\"#)",
            "f(b\"x y\")",
            "f(br\"x\\\", 'x')",
            "f('\\'', \"x\")",
        ] {
            let (code, comments) = split(text);
            assert!(!code.contains(['x', 'y']), "{text}: {code}");
            assert!(code.starts_with("f(") && code.ends_with(')'), "{text}: {code}");
            assert_eq!(comments.trim(), "", "{text}");
        }
    }

    #[test]
    fn a_lifetime_opens_no_literal() {
        let (code, _) = split("fn f<'a>(x: &'a str) -> &'a str { x } // it's");
        assert_eq!(code.trim_end(), "fn f<'a>(x: &'a str) -> &'a str { x }");
    }

    #[test]
    fn a_raw_identifier_opens_no_string() {
        let (code, _) = split("let r#fn = attr\"x\";");
        assert!(code.starts_with("let r#fn = attr\""));
    }

    #[test]
    fn test_modules_and_test_files_are_test_lines() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n#[cfg(not(test))]\nfn c() {}\n";
        let rust = RustText::new("crates/engine/src/pool.rs", text);
        let tests: Vec<usize> = (1..=7).filter(|&line| rust.is_test(line)).collect();
        assert_eq!(tests, [2, 3, 4, 5]);
        for condition in ["all(test, not(loom))", "all(unix, all(loom, test))"] {
            let text = format!("#[cfg({condition})]\nmod tests {{}}\n");
            assert!(RustText::new("a.rs", &text).is_test(2), "{condition}");
        }
        for condition in ["any(test, loom)", "not(test)", "feature = \"test\""] {
            let text = format!("#[cfg({condition})]\nmod tests {{}}\n");
            assert!(!RustText::new("a.rs", &text).is_test(2), "{condition}");
        }
        assert!(RustText::new("crates/engine/tests/flush.rs", text).is_test(1));
        assert!(RustText::new("crates/engine/src/pool/tests.rs", text).is_test(1));
        assert!(!RustText::new("crates/engine/src/latests.rs", text).is_test(1));
    }
}
