//! The parts of the server, each on and off: the configurations that the cases `series` and
//! `series-p16` compare.
//!
//! Part by part: foreign keys in place against foreign keys handed over; a dedicated receiver against
//! threads that receive for their own connections; combined replies against replies under a lock,
//! and replies that return to the receiver; small and large socket buffers against the system's;
//! memory that is freed against memory that is kept.

/// The configuration without flags, to which the others are compared.
pub(super) const DEFAULT: &str = "default";

/// Each configuration's name, and its flags for `uwork-lab serve`. Parts that need hand-overs have
/// two threads with keys, and are to be compared with `handed-over`.
pub(super) const PARTS: [(&str, &[&str]); 10] = [
    (DEFAULT, &[]),
    ("small-sockets", &["--send-buffer", "16k", "--receive-buffer", "16k"]),
    ("large-sockets", &["--send-buffer", "4m", "--receive-buffer", "4m"]),
    ("freed", &["--spares", "freed"]),
    ("threads2", &["--threads", "2"]),
    ("handed-over", &["--threads", "2", "--foreign-keys", "handed-over"]),
    (
        "handed-over-freed",
        &["--threads", "2", "--foreign-keys", "handed-over", "--spares", "freed"],
    ),
    ("combined", &["--threads", "2", "--receiver", "dedicated", "--replies", "combined"]),
    ("locked", &["--threads", "2", "--receiver", "dedicated", "--replies", "locked"]),
    ("returned", &["--threads", "2", "--receiver", "dedicated", "--replies", "returned"]),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;
    use uwork_serve::{ForeignKeys, Receiver, Replies, Spares};

    use super::*;
    use crate::UserError;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: crate::serve::Args,
    }

    fn config(flags: &[&str]) -> uwork_serve::Config {
        let line = Line::try_parse_from([&["serve"], flags].concat()).unwrap();
        line.args.config().unwrap_or_else(|UserError(text)| panic!("{text}"))
    }

    #[test]
    fn the_server_accepts_every_part_and_no_two_are_the_same() {
        let names: BTreeSet<&str> = PARTS.iter().map(|&(name, _)| name).collect();
        assert_eq!(names.len(), PARTS.len());
        let set = PARTS.iter().map(|(_, flags)| {
            let config = config(flags);
            // The default depends on the machine: with four CPUs it is two threads.
            let threads = if flags.contains(&"--threads") { config.threads } else { 0 };
            let sockets = (config.send_buffer, config.receive_buffer);
            format!(
                "{threads} {:?} {:?} {:?} {:?} {sockets:?}",
                config.foreign_keys, config.receiver, config.replies, config.spares
            )
        });
        assert_eq!(set.collect::<BTreeSet<String>>().len(), PARTS.len());
        let (name, flags) = PARTS[0];
        assert_eq!((name, flags.len()), (DEFAULT, 0));
    }

    #[test]
    fn each_part_changes_what_its_name_says() {
        for (name, flags) in PARTS {
            let config = config(flags);
            let is_dedicated = ["combined", "locked", "returned"].contains(&name);
            assert_eq!(config.receiver == Receiver::Dedicated, is_dedicated, "{name}");
            let is_handed_over = config.foreign_keys == ForeignKeys::HandedOver;
            assert_eq!(is_handed_over, name.starts_with("handed-over"), "{name}");
            let replies = match name {
                "locked" => Replies::Locked,
                "returned" => Replies::Returned,
                _ => Replies::Combined,
            };
            assert_eq!(config.replies, replies, "{name}");
            assert_eq!(config.spares == Spares::Freed, name.ends_with("freed"), "{name}");
            let has_size = name.ends_with("-sockets");
            assert_eq!(config.send_buffer.is_some(), has_size, "{name}");
            assert_eq!(config.receive_buffer.is_some(), has_size, "{name}");
        }
    }
}
