//! The patterns of `CONFIG GET`, with the semantics of Redis.

/// Whether the text contains a special character of a pattern.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[".contains(byte))
}

/// Whether the name matches the pattern, ignoring ASCII case: `*` matches any text, `?` any byte,
/// `[a-z]` any byte of the class, `[^a-z]` any other byte, and `\*` a star.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Where to continue after a mismatch: behind the last star, one byte further in the name.
    let mut retry: Option<(&[u8], &[u8])> = None;
    while let Some((&byte, behind)) = name.split_first() {
        if let [b'*', after @ ..] = pattern {
            (retry, pattern) = (Some((after, name)), after);
        } else if let Some(after) = one(pattern, byte) {
            (pattern, name) = (after, behind);
        } else {
            let Some((after, [_, from @ ..])) = retry else { return false };
            (retry, pattern, name) = (Some((after, from)), after, from);
        }
    }
    pattern.iter().all(|&byte| byte == b'*')
}

/// The rest of the pattern after the element that matches the byte, or `None` if it does not match.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', after @ ..] => Some(after),
        [b'[', b'^', after @ ..] => {
            class(after, byte).and_then(|(fits, after)| (!fits).then_some(after))
        }
        [b'[', after @ ..] => class(after, byte).and_then(|(fits, after)| fits.then_some(after)),
        [b'\\', wanted, after @ ..] | [wanted, after @ ..] => {
            wanted.eq_ignore_ascii_case(&byte).then_some(after)
        }
    }
}

/// Whether the byte is in the class, and the rest of the pattern. A class without a closing bracket
/// extends to the end of the pattern.
fn class(mut class: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let lower = |byte: &u8| byte.to_ascii_lowercase();
    let mut fits = false;
    loop {
        class = match class {
            [] => return Some((fits, class)),
            [b'\\', escaped, after @ ..] => {
                fits |= *escaped == byte;
                after
            }
            [b']', after @ ..] => return Some((fits, after)),
            [first, b'-', last, after @ ..] => {
                let (first, last) = (lower(first), lower(last));
                fits |= (first.min(last)..=first.max(last)).contains(&lower(&byte));
                after
            }
            [wanted, after @ ..] => {
                fits |= wanted.eq_ignore_ascii_case(&byte);
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, name) in [
            ("*", "save"),
            ("SAVE", "save"),
            ("max*", "maxmemory"),
            ("*mem*y", "maxmemory"),
            ("s?ve", "save"),
            ("**", ""),
            ("*a*b", "aab"),
            ("[a-s]av[^x]", "save"),
            ("[S-A]AVE", "save"),
            ("sav[xe", "save"),
            ("\\*a", "*a"),
            ("[\\]]", "]"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("", "a"),
            ("a", ""),
            ("max", "maxmemory"),
            ("?", ""),
            ("*b", "ab "),
            ("sav[^e]", "save"),
            ("sav[]", "save"),
            ("sav[", "save"),
            ("\\*a", "aa"),
            ("save\\", "save"),
            // An empty class matches no byte.
            ("*[]e]", "save]e]"),
        ] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn matching_takes_at_most_pattern_length_times_name_length() {
        let pattern = [b"*a".repeat(2_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(4_000)));
    }
}
