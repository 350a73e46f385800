//! The cases, and how large each is.

use std::time::Duration;

use super::obstacles::Kind;

/// Their names, in the order in which they run.
pub(super) const ALL: [&str; 8] =
    ["sleep", "pipe", "lock", "fault", "mixed", "burst", "flood", "busy"];

/// What the items of a case block in; none where they do not.
pub(super) fn kinds(case: &str) -> &'static [Kind] {
    match case {
        "sleep" | "burst" => &[Kind::Sleep],
        "pipe" => &[Kind::Pipe],
        "lock" => &[Kind::Lock],
        "fault" => &[Kind::Fault],
        "mixed" => &[Kind::Sleep, Kind::Pipe, Kind::Lock, Kind::Fault],
        _ => &[],
    }
}

/// For the line above the table.
pub(super) fn about(case: &str, quick: bool) -> String {
    let size = Size::of(quick);
    match case {
        "burst" => format!(
            "{} items at once that each sleep {} ms, at most {BURST_AT_ONCE} of them at a time",
            size.burst_items,
            BURST_SLEEP.as_millis()
        ),
        "flood" => {
            "short items, none of which blocks; declared is the tier switched off".to_owned()
        }
        "busy" => "the same, while another process uses all CPUs".to_owned(),
        case => {
            let what = match case {
                "sleep" => "sleeps",
                "pipe" => "reads an empty pipe",
                "lock" => "locks a held mutex",
                "fault" => "touches a missing page",
                _ => "does one of these in turn",
            };
            let end = match case {
                "sleep" => "",
                "mixed" => ", which ends, unless it is a sleep, when that has started",
                _ => ", which ends when that has started",
            };
            format!(
                "one item {what} for {} ms, then {SHORT_PER_BLOCK} compute for microseconds; us: from the \
                 beginning of a block of {} ms to the start of the item behind it{end}; latencies: how many of \
                 these",
                BLOCK.as_millis(),
                LONG_BLOCK.as_millis()
            )
        }
    }
}

/// Items that block at once, at most: enough to keep two CPUs busy with the short ones.
pub(super) const AT_ONCE: usize = 64;
/// Of the items of the first five cases.
pub(super) const BLOCK: Duration = Duration::from_millis(1);
pub(super) const SHORT_PER_BLOCK: usize = 10;
/// Where latencies are taken, so that a slow detection is not taken for a block's end.
pub(super) const LONG_BLOCK: Duration = Duration::from_millis(20);
pub(super) const BURST_SLEEP: Duration = Duration::from_millis(10);
pub(super) const BURST_AT_ONCE: usize = 256;

/// What `--quick` makes smaller.
pub(super) struct Size {
    /// Items that block, submitted at once together with their short ones.
    pub(super) chunk: usize,
    /// Chunks are run until this is over.
    pub(super) chunks_for: Duration,
    /// The most and the fewest latencies of a sample, and when to stop between these.
    pub(super) latencies: (usize, usize),
    pub(super) latencies_for: Duration,
    pub(super) burst_items: usize,
    /// Items of each producer, and how many floods.
    pub(super) flood_items: usize,
    pub(super) floods: usize,
    /// Floods beside the other process go on for so long.
    pub(super) busy_for: Duration,
}

impl Size {
    pub(super) fn of(quick: bool) -> Self {
        let ms = Duration::from_millis;
        if quick {
            Self {
                chunk: 128,
                chunks_for: ms(30),
                latencies: (200, 5),
                latencies_for: ms(150),
                burst_items: 1_000,
                flood_items: 20_000,
                floods: 3,
                busy_for: ms(200),
            }
        } else {
            Self {
                chunk: 512,
                chunks_for: ms(250),
                latencies: (1_000, 20),
                latencies_for: ms(1_500),
                burst_items: 10_000,
                flood_items: 200_000,
                floods: 15,
                busy_for: ms(1_000),
            }
        }
    }
}
