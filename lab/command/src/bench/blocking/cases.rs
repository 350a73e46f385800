//! The cases and their sizes.

use std::time::Duration;

use super::obstacles::Kind;

/// The names of the cases, in the order in which they run.
pub(super) const ALL: [&str; 9] =
    ["sleep", "sleep-busy", "pipe", "lock", "fault", "mixed", "burst", "flood", "busy"];

/// Whether another process keeps all CPUs busy meanwhile.
pub(super) fn is_busy(case: &str) -> bool {
    matches!(case, "sleep-busy" | "busy")
}

/// The kinds of blocking calls in a case; empty if its items do not block.
pub(super) fn kinds(case: &str) -> &'static [Kind] {
    match case {
        "sleep" | "sleep-busy" | "burst" => &[Kind::Sleep],
        "pipe" => &[Kind::Pipe],
        "lock" => &[Kind::Lock],
        "fault" => &[Kind::Fault],
        "mixed" => &[Kind::Sleep, Kind::Pipe, Kind::Lock, Kind::Fault],
        _ => &[],
    }
}

const BUSY: &str = "while another process keeps all CPUs busy";

/// The description above the table.
pub(super) fn about(case: &str, quick: bool) -> String {
    let size = Size::of(quick);
    match case {
        "burst" => format!(
            "{} items submitted at once, each sleeping {} ms, at most {BURST_AT_ONCE} running at a time",
            size.burst_items,
            BURST_SLEEP.as_millis()
        ),
        "flood" => "short items that do not block; declared: without detection".to_owned(),
        "busy" => format!("the same, {BUSY}"),
        case => {
            let what = match case {
                "sleep" | "sleep-busy" => "sleeps",
                "pipe" => "reads an empty pipe",
                "lock" => "locks a held mutex",
                "fault" => "touches a missing page",
                _ => "does one of these in turn",
            };
            let end = match case {
                "sleep" => "",
                "sleep-busy" => &format!(", {BUSY}"),
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

/// Maximum number of items that block at once: enough to keep two CPUs busy with the short items.
pub(super) const AT_ONCE: usize = 64;
/// The blocking time of items in the first five cases.
pub(super) const BLOCK: Duration = Duration::from_millis(1);
pub(super) const SHORT_PER_BLOCK: usize = 10;
/// The blocking time for latency measurements. It is long, so that a slow detection is not mistaken
/// for the end of the block.
pub(super) const LONG_BLOCK: Duration = Duration::from_millis(20);
pub(super) const BURST_SLEEP: Duration = Duration::from_millis(10);
pub(super) const BURST_AT_ONCE: usize = 256;

/// The sizes that `--quick` reduces.
pub(super) struct Size {
    /// Number of blocking items that are submitted at once, together with their short items.
    pub(super) chunk: usize,
    /// Chunks run for this long.
    pub(super) chunks_for: Duration,
    /// The maximum and the minimum number of latencies in a sample, and the time limit between the
    /// two.
    pub(super) latencies: (usize, usize),
    pub(super) latencies_for: Duration,
    pub(super) burst_items: usize,
    /// Items of each producer, and the number of floods.
    pub(super) flood_items: usize,
    pub(super) floods: usize,
    /// Duration of the floods beside the busy process.
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
