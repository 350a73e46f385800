//! Decimal numbers, parsed exactly as strictly as Redis does.

/// The length of the longest `i64` in decimal, including the sign.
pub const DIGITS_MAX: usize = 20;

/// Parses the text as an `i64`: an optional minus, no leading zero, no plus, no spaces.
///
/// ```
/// use uwork_serve::resp::number::parse;
///
/// assert_eq!(parse(b"-42"), Some(-42));
/// assert_eq!(parse(b"9223372036854775808"), None);
/// assert_eq!(parse(b"007"), None);
/// ```
pub fn parse(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() < DIGITS_MAX => {}
        _ => return None,
    }
    // Accumulates downwards, because the negative range reaches one further than the positive
    // range.
    let mut value: i64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if negative { Some(value) } else { value.checked_neg() }
}

/// A number in decimal, stored without an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Digits {
    /// Right-aligned.
    text: [u8; DIGITS_MAX],
    start: usize,
}

impl Digits {
    /// The number in decimal.
    pub fn of(value: i64) -> Self {
        let (mut text, mut start) = ([0_u8; DIGITS_MAX], DIGITS_MAX);
        let mut rest = value.unsigned_abs();
        loop {
            start -= 1;
            // The remainder is below ten.
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            start -= 1;
            text[start] = b'-';
        }
        Self { text, start }
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// Appends the number's digits.
pub fn write(out: &mut Vec<u8>, value: i64) {
    match u8::try_from(value) {
        // Most lengths are one digit.
        Ok(digit @ 0..10) => out.push(b'0' + digit),
        _ => out.extend_from_slice(Digits::of(value).as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_that_redis_refuses_is_refused() {
        for text in ["", "-", "+1", " 1", "1 ", "01", "-0", "00", "1.0", "9223372036854775808"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(b"-9223372036854775809"), None);
        assert_eq!(parse(b"123456789012345678901234567890"), None);
    }

    proptest! {
        #[test]
        fn parse_restores_a_written_number(value: i64) {
            let mut out = Vec::new();
            write(&mut out, value);
            prop_assert_eq!(std::str::from_utf8(&out).unwrap(), value.to_string());
            prop_assert_eq!(parse(&out), Some(value));
        }

        #[test]
        fn only_the_canonical_form_is_accepted(text in "[-+0-9 ]{0,22}") {
            let canonical = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
            prop_assert_eq!(parse(text.as_bytes()), canonical);
        }
    }
}
