//! What an exchange fetches: delayed jobs that are due, jobs of dead consumers.

use std::time::Instant;

use redis::Cmd;

use super::Committer;
use crate::consumer::commands as command_of;
use crate::consumer::memory::Share;
use crate::consumer::schedule::{PROMOTE_EVERY, SWEEP_EVERY, patience, reclaim_every};
use crate::consumer::sent::Sent;
use crate::scripts::{SCRIPTS, call, ms};

/// Entries of one reclaim.
const RECLAIM_MAX: usize = 100;
/// Bytes of one reclaim, or one entry: the committer gives no heartbeat while it reads them.
const RECLAIM_BYTES_MAX: usize = 4 << 20;
/// Delayed jobs that one command makes ready.
const PROMOTE_MAX: usize = 100;

impl Committer {
    /// Delayed jobs that are due, jobs of dead consumers, dead consumers.
    pub(super) fn add_fetches(
        &mut self,
        now: Instant,
        commands: &mut Vec<Cmd>,
        sent: &mut Vec<Sent>,
    ) {
        let link = self.link.clone();
        let shared = &link.shared;
        let sweep = now >= self.next.sweep;
        for (stream, (_, keys)) in link.streams.iter().enumerate() {
            if now >= self.next.promote[stream] {
                self.next.promote[stream] = now + PROMOTE_EVERY;
                let keys = [&keys.delayed, &keys.stream, &keys.dead];
                let mut command = call(&SCRIPTS.promote, &keys);
                command.arg(PROMOTE_MAX);
                commands.push(command);
                sent.push(Sent::Promote(stream));
            }
            if self.next.may_reclaim(now) {
                self.add_reclaim(now, stream, commands, sent);
            } else {
                // New entries are fetched meanwhile.
                self.end_orphans_first(stream);
            }
            if sweep {
                let idle_ms = ms(shared.config.heartbeat * 10);
                commands.push(command_of::leave(&link, stream, idle_ms, None));
                sent.push(Sent::Sweep);
            }
        }
        if sweep {
            self.next.sweep = now + SWEEP_EVERY;
        }
    }

    /// Jobs of dead consumers of a stream, if a look for them is due.
    fn add_reclaim(
        &mut self,
        now: Instant,
        stream: usize,
        commands: &mut Vec<Cmd>,
        sent: &mut Vec<Sent>,
    ) {
        let (shared, keys) = (&self.link.shared, &self.link.streams[stream].1);
        let is_due = now >= self.next.reclaim[stream];
        let is_owed = self.owed[stream] && shared.room_now() > 0;
        if !is_due && !is_owed {
            return;
        }
        let heartbeat = shared.config.heartbeat;
        if is_due {
            self.next.reclaim[stream] = now + reclaim_every(heartbeat);
        }
        let is_refused = self.link.refusal.is_on();
        let kept = shared.kept_from(&self.link);
        let room = match is_refused {
            true => 0,
            false => shared.room_for_orphans().saturating_sub(kept).min(RECLAIM_MAX),
        };
        let bytes = shared.memory.left(Share::Orphans);
        // Consumers with room in their window look first.
        let patience = patience(heartbeat, shared.room_now() > 0);
        // Another look goes with the outcomes of the jobs that have the memory.
        self.owed[stream] = shared.memory.left(Share::Reader) == 0;
        if room == 0 || bytes == 0 {
            if shared.is_slow() && !is_refused && bytes > 0 {
                // Its turn comes with a free place, before the readers fill that.
                self.first[stream] = true;
                self.link.set_orphans_first(true);
                self.waits = true;
            } else {
                shared.leave_line(&self.link);
            }
            return;
        }
        if self.suspects.needs_connections(stream) {
            commands.push(redis::cmd("CLIENT").arg("LIST").clone());
            sent.push(Sent::Connections(stream));
        }
        let mut command = call(&SCRIPTS.reclaim, &[&keys.stream, &keys.stats]);
        command.arg(&shared.config.group).arg(&shared.consumer);
        command.arg(ms(heartbeat + patience));
        command.arg(&self.cursors[stream]).arg(room);
        command.arg(bytes.div_ceil(self.link.streams.len()).min(RECLAIM_BYTES_MAX));
        command.arg(shared.config.attempts_max);
        command.arg(u8::from(shared.may_run_alone() && self.takes_one(now)));
        command.arg(self.next.reclaim_until_ms());
        for ((_, id), seen, is_dead) in self.suspects.known(stream) {
            command.arg(id.to_string()).arg(&seen.owner).arg(seen.before_ms);
            command.arg(is_dead.map_or("-", |is| if is { "dead" } else { "lives" }));
        }
        commands.push(command);
        sent.push(Sent::Reclaim(stream));
    }
}
