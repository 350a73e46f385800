//! The names of a stream's keys, and the shard of a job. Pure functions.
//!
//! All keys of a stream have its hash tag, so they are on one node of a cluster and one script may
//! use them.

/// The keys that belong to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The stream itself.
    pub(crate) stream: String,
    /// Jobs for later: a sorted set, by the server's time in milliseconds.
    pub(crate) delayed: String,
    /// The dead-letter stream.
    pub(crate) dead: String,
    /// Counters, a hash.
    pub(crate) stats: String,
    /// Results, a stream.
    pub(crate) results: String,
    /// A key that is written and never exists: its writes are seen by transactions.
    pub(crate) guard: String,
    prefix: String,
}

impl Keys {
    pub(crate) fn of(stream: &str) -> Keys {
        let prefix =
            if hash_tag(stream).is_some() { stream.to_owned() } else { format!("{{{stream}}}") };
        Keys {
            stream: stream.to_owned(),
            delayed: format!("{prefix}:delayed"),
            dead: format!("{prefix}:dead"),
            stats: format!("{prefix}:stats"),
            results: format!("{prefix}:results"),
            guard: format!("{prefix}:guard"),
            prefix,
        }
    }

    /// The mark that a job of this id was pushed within the window.
    pub(crate) fn id(&self, id: &str) -> String {
        format!("{}{id}", self.marks())
    }

    /// What the marks of ids begin with.
    pub(crate) fn marks(&self) -> String {
        format!("{}:id:", self.prefix)
    }

    /// The result of a job.
    pub(crate) fn result(&self, id: &str) -> String {
        format!("{}:result:{id}", self.prefix)
    }
}

/// The part of a key that decides its slot, if the key has such a part.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// Why a stream in so many shards may not have this name. All other keys of `{jobs}` would be those of
/// `jobs`.
pub(crate) fn refusal_of(stream: &str, shards: u32) -> Option<String> {
    let name = shard_name(stream, 0, shards);
    if name.is_empty() {
        return Some(format!("{stream:?} is no name of a stream: at least one character"));
    }
    let is_tag = hash_tag(&name).is_some_and(|tag| name.len() == tag.len() + 2);
    is_tag.then(|| {
        format!("{stream:?} is no name of a stream: at least one character beside the {{tag}}")
    })
}

/// The slot of a key in a cluster: CRC-16 (XMODEM) of its hash tag, or of all of it.
pub(crate) fn slot(key: &str) -> u16 {
    let crc = hash_tag(key).unwrap_or(key).bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16_384
}

/// The name of a shard of a stream. A stream with a single shard has its own name.
pub(crate) fn shard_name(stream: &str, shard: u32, shards: u32) -> String {
    match (shards, hash_tag(stream)) {
        (..=1, _) => stream.to_owned(),
        (_, Some(_)) => format!("{stream}.{shard}"),
        // The tag is the number, so the shards of several streams with one number share a node.
        (_, None) => format!("{stream}.{{{shard}}}"),
    }
}

/// The shard of a key: FNV-1a, which every producer computes alike.
pub(crate) fn shard_of(key: &str, shards: u32) -> u32 {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The remainder is less than `shards`.
    (hash % u64::from(shards.max(1))) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_stream_have_one_hash_tag() {
        let keys = Keys::of("jobs");
        assert_eq!(keys.delayed, "{jobs}:delayed");
        assert_eq!(keys.id("7"), "{jobs}:id:7");
        let tagged = Keys::of("high.{3}");
        assert_eq!(tagged.dead, "high.{3}:dead");
        assert_eq!(hash_tag(&tagged.dead), Some("3"));
        assert_eq!(hash_tag("a{}b"), None);
    }

    #[test]
    fn a_name_that_is_nothing_but_a_tag_is_refused() {
        assert!(refusal_of("{jobs}", 1).unwrap().ends_with("beside the {tag}"));
        assert!(refusal_of("", 1).unwrap().ends_with("at least one character"));
        assert_eq!(Keys::of("{jobs}").delayed, Keys::of("jobs").delayed, "this is why");
        for (name, shards) in
            [("jobs", 1), ("{jobs}x", 1), ("x{jobs}", 1), ("{}", 1), ("{jobs}", 2)]
        {
            assert_eq!(refusal_of(name, shards), None, "{name}");
        }
    }

    #[test]
    fn shards_of_two_streams_with_one_number_share_a_slot() {
        assert_eq!(shard_name("jobs", 0, 1), "jobs");
        assert_eq!(hash_tag(&shard_name("jobs", 3, 8)), hash_tag(&shard_name("high", 3, 8)));
        assert_ne!(hash_tag(&shard_name("jobs", 3, 8)), hash_tag(&shard_name("jobs", 4, 8)));
    }

    #[test]
    fn a_slot_is_that_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn keys_spread_over_all_shards() {
        let mut counts = [0; 8];
        (0..8_000).for_each(|n| counts[shard_of(&format!("user:{n}"), 8) as usize] += 1);
        assert!(counts.iter().all(|&count| (800..1_200).contains(&count)), "{counts:?}");
        assert_eq!(shard_of("user:1", 1), 0);
    }
}
