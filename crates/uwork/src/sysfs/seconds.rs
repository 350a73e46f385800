//! Durations in the format of the tree: seconds, with decimals where needed.

use std::time::Duration;

/// Decimals of a second that are kept.
const DECIMALS: usize = 9;

pub(super) fn format(time: Duration) -> String {
    let nanos = format!("{:0DECIMALS$}", time.subsec_nanos());
    match nanos.trim_end_matches('0') {
        "" => time.as_secs().to_string(),
        decimals => format!("{}.{decimals}", time.as_secs()),
    }
}

/// Digits, and a point with up to nine more.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > DECIMALS {
        return None;
    }
    let nanos = format!("{decimals:0<DECIMALS$}").parse().ok()?;
    Some(Duration::new(whole.parse::<u32>().ok()?.into(), nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_formatted_as_they_are_parsed() {
        for text in ["0", "30", "0.05", "4294967295.999999999", "1.5"] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
        assert_eq!(parse("2.500"), Some(Duration::from_millis(2_500)));
        let wrong = ["", ".", "1.", ".5", "-1", "+1", "1e3", "inf", "4294967296", "0.0000000001"];
        wrong.iter().for_each(|text| assert_eq!(parse(text), None, "{text}"));
    }
}
