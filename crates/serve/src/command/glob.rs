//! Patterns as `CONFIG GET` takes them.

/// Whether the name, in upper or lower case, fits the pattern: `*` stands for any text, `?` for any byte.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Where to go on after a mismatch: behind the last star, one byte further in the name.
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if byte.eq_ignore_ascii_case(&name[n]) => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((after_star, from)) => {
                    (p, n) = (after_star, from + 1);
                    retry = Some((after_star, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_stand_for_text() {
        for (pattern, name) in [
            ("*", "save"),
            ("SAVE", "save"),
            ("max*", "maxmemory"),
            ("*mem*y", "maxmemory"),
            ("s?ve", "save"),
            ("**", ""),
            ("*a*b", "aab"),
        ] {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("a", ""), ("max", "maxmemory"), ("?", ""), ("*b", "ab ")]
        {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_stars_costs_no_more_than_its_length_times_the_names() {
        let pattern = [b"*a".repeat(2_000), b"b".to_vec()].concat();
        assert!(!matches(&pattern, &b"a".repeat(4_000)));
    }
}
