//! Entries that the server has delivered, read as they arrive: those for which the consumer has
//! memory, and of the others the ids.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::link::Link;
use super::memory::Share;
use super::shared::Shared;
use crate::job::{Entry, EntryId, Fields};
use crate::policy::Deliveries;
use crate::resp::{Head, Replies};

/// What an entry takes beside its fields: its places in the tables and in the queue.
const ENTRY_BYTES: usize = 512;
/// Bytes that have arrived since entries were admitted last, and after which those at hand are: a
/// reply may be long.
const ADMIT_AFTER: usize = 1 << 20;

/// Entries of one reply. What is left when it is dropped has no memory any more.
pub(super) struct Delivered {
    shared: Arc<Shared>,
    share: Share,
    pub(super) entries: Vec<Entry>,
    /// The bytes that they have taken.
    bytes: usize,
    /// The bytes that have arrived, taken or not, and those of the largest entry.
    arrived: usize,
    pub(super) largest: usize,
    /// When the reply began.
    pub(super) since: Instant,
    /// The reply with these entries was lost, and another consumer, or another thread of this one, may
    /// have had them since.
    pub(super) are_orphans: bool,
    /// Where they get heartbeats while they arrive, and those that do.
    keeps_alive: Option<(Arc<Link>, usize)>,
    alive: Vec<EntryId>,
}

impl Delivered {
    /// For a reply that begins to arrive.
    pub(super) fn new(shared: &Arc<Shared>, share: Share) -> Delivered {
        Delivered {
            shared: shared.clone(),
            share,
            entries: Vec::new(),
            bytes: 0,
            arrived: 0,
            largest: 0,
            since: Instant::now(),
            are_orphans: false,
            keeps_alive: None,
            alive: Vec::new(),
        }
    }

    /// The same, whose entries get the heartbeats of another thread from the moment on in which their
    /// ids are known: their fields may take longer than a heartbeat.
    pub(super) fn kept_alive(link: &Arc<Link>, stream: usize) -> Delivered {
        let mut delivered = Delivered::new(&link.shared, Share::Reader);
        delivered.keeps_alive = Some((link.clone(), stream));
        delivered
    }

    /// Reads `count` entries, and calls `admit` with those at hand from time to time, and at the end.
    /// Each is an id and fields, or an id, its counter and fields.
    pub(super) fn read(
        mut self,
        replies: &mut Replies<'_>,
        count: usize,
        counter: u64,
        mut admit: impl FnMut(Delivered),
    ) -> io::Result<()> {
        for _ in 0..count {
            self.read_entry(replies, counter)?;
            if self.arrived >= ADMIT_AFTER {
                let mut rest = Delivered::new(&self.shared, self.share);
                (rest.since, rest.are_orphans) = (self.since, self.are_orphans);
                rest.keeps_alive.clone_from(&self.keeps_alive);
                admit(std::mem::replace(&mut self, rest));
            }
        }
        admit(self);
        Ok(())
    }

    /// The same, for a caller that keeps them all.
    pub(super) fn read_entries(
        &mut self,
        replies: &mut Replies<'_>,
        count: usize,
    ) -> io::Result<()> {
        (0..count).try_for_each(|_| self.read_entry(replies, 1))
    }

    fn read_entry(&mut self, replies: &mut Replies<'_>, counter: u64) -> io::Result<()> {
        let parts = replies.array()?;
        let id = match replies.head()? {
            Head::Bytes(length) => replies.short(length)?.and_then(EntryId::parse),
            other => replies.skip(other).map(|()| None)?,
        };
        let counter = match parts {
            3 => replies.int()?.cast_unsigned(),
            _ => counter,
        };
        match (replies.head()?, id) {
            (Head::Array(words), Some(id)) => {
                if let Some((link, stream)) = &self.keeps_alive {
                    link.begin_arrival((*stream, id));
                    self.alive.push(id);
                }
                let (fields, bytes) = self.read_fields(replies, words)?;
                self.entries.push(Entry { id, of: Deliveries::read(counter), fields, bytes });
                Ok(())
            }
            // Deleted while it was pending.
            (other, _) => replies.skip(other),
        }
    }

    /// Reads names and values, and returns the fields and the bytes that they take. None if there is
    /// no memory for them.
    fn read_fields(
        &mut self,
        replies: &mut Replies<'_>,
        words: usize,
    ) -> io::Result<(Option<Fields>, usize)> {
        let (mut fields, mut own, mut size) = (Some(Fields::default()), 0, ENTRY_BYTES);
        if !self.take(&mut own, ENTRY_BYTES) {
            fields = None;
        }
        for _ in 0..words / 2 {
            let name = match replies.head()? {
                Head::Bytes(length) => replies.short(length)?.and_then(Fields::known),
                other => replies.skip(other).map(|()| None)?,
            };
            let (name, length) = match (replies.head()?, name) {
                (Head::Bytes(length), Some(name)) => (name, length),
                (other, _) => {
                    replies.skip(other)?;
                    continue;
                }
            };
            // The table of held jobs has a copy of the id.
            let bytes = if name == b'i' { 2 * length } else { length };
            size += bytes;
            match &mut fields {
                Some(fields) if self.take(&mut own, bytes) => {
                    fields.set(name, replies.bytes(length)?);
                }
                _ => {
                    fields = None;
                    self.give(std::mem::take(&mut own));
                    replies.skip(Head::Bytes(length))?;
                }
            }
        }
        self.arrived += size;
        self.largest = self.largest.max(size);
        Ok((fields.map(Fields::of_entry), own))
    }

    /// Entries that were read, with their payloads counted.
    #[cfg(test)]
    pub(super) fn with(shared: &Arc<Shared>, entries: Vec<Entry>) -> Delivered {
        let mut delivered = Delivered::new(shared, Share::Reader);
        delivered.entries = entries;
        for entry in &mut delivered.entries {
            let payload = entry.fields.as_ref().and_then(|fields| fields.payload.as_ref());
            entry.bytes = payload.map_or(0, Vec::len);
            assert!(shared.memory.take(Share::Reader, 0, entry.bytes));
            delivered.bytes += entry.bytes;
        }
        delivered
    }

    /// Takes bytes for the entry that is read. If reading it fails, the drop gives them back.
    fn take(&mut self, own: &mut usize, bytes: usize) -> bool {
        let is_taken = self.shared.memory.take(self.share, *own, bytes);
        if is_taken {
            *own += bytes;
            self.bytes += bytes;
        }
        is_taken
    }

    fn give(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.shared.memory.give(bytes);
    }

    /// Leaves the bytes of an entry to the caller, which gives them back.
    pub(super) fn leave(&mut self, bytes: usize) -> usize {
        self.bytes -= bytes;
        bytes
    }
}

impl Delivered {
    /// The entries have arrived.
    pub(super) fn end_arrivals(&mut self) {
        if let Some((link, stream)) = &self.keeps_alive {
            link.end_arrivals(self.alive.drain(..).map(|id| (*stream, id)));
        }
    }
}

impl Drop for Delivered {
    fn drop(&mut self) {
        self.entries.clear();
        self.shared.memory.give(self.bytes);
        self.end_arrivals();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io::Read;
    use std::sync::Mutex;

    use super::*;
    use crate::config::Config;
    use crate::handler::{Handlers, Reply};
    use crate::report::Reporter;
    use crate::resp::Arrived;
    use crate::server::Server;

    /// A reply in parts, and whether its entry is alive at each read.
    struct Parts<'a>(VecDeque<&'static [u8]>, &'a Link, &'a Mutex<Vec<bool>>);

    impl Read for Parts<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.2.lock().unwrap().push(self.1.alive_of(0).contains(&EntryId(7, 0)));
            let part = self.0.front_mut().ok_or(io::ErrorKind::ConnectionReset)?;
            let count = part.read(bytes)?;
            self.0.retain(|part| !part.is_empty());
            Ok(count)
        }
    }

    #[test]
    fn an_entry_is_kept_alive_from_its_id_on_until_it_is_held_or_lost() {
        const HEAD: &[u8] = b"*2\r\n$3\r\n7-0\r\n*2\r\n$1\r\np\r\n$5\r\nab";
        for (rest, is_held) in [(Some(&b"cde\r\n"[..]), true), (None, false)] {
            let config = Config::new(Server::new("redis://127.0.0.1:1").unwrap(), "jobs");
            let queue = uwork::Queue::builder(format!("arrives-{is_held}")).build().unwrap();
            // It goes on when the test is over.
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let gate = Mutex::new(gate);
            let handlers = Handlers::new().otherwise(move |_| {
                let _ = gate.lock().unwrap().recv();
                Ok(Reply::done())
            });
            let reporter = Reporter::new(|_| {});
            let shared = Shared::new(config, handlers, queue, "me".to_owned(), reporter);
            let link = Link::new(Arc::new(shared), &["jobs".to_owned()]);
            let alive = Mutex::new(Vec::new());
            let parts = std::iter::once(HEAD).chain(rest).collect();
            let (mut arrived, mut parts) = (Arrived::nothing(), Parts(parts, &link, &alive));
            let delivered = Delivered::kept_alive(&link, 0);
            let mut replies = Replies::new(&mut arrived, &mut parts);
            let read = delivered.read(&mut replies, 1, 1, |found| link.admit(0, found));
            assert_eq!(read.is_ok(), is_held);
            let alive = alive.lock().unwrap();
            assert!(!alive[0] && alive[1..].iter().all(|&is| is), "while its payload arrives");
            assert_eq!(link.alive_of(0).len(), usize::from(is_held));
            assert_eq!(link.held_of(0).len(), usize::from(is_held));
            drop(open);
        }
    }
}
