//! Process groups: their CPU time, and their end.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The command leads a process group of its own, which ends with this process.
pub(super) fn lead(command: &mut Command) {
    command.process_group(0);
    // SAFETY: only this one system call is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}

/// A process group.
#[derive(Clone, Copy)]
pub(super) struct Group(u32);

impl Group {
    pub(super) fn of(leader: u32) -> Group {
        Group(leader)
    }

    /// The CPU time of its processes, and of those that they have waited for.
    pub(super) fn cpu(self) -> Duration {
        let Ok(folder) = fs::read_dir("/proc") else { return Duration::ZERO };
        let ticks: u64 = folder
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
            .filter_map(|stat| self.ticks(&stat))
            .sum();
        // SAFETY: the call has no preconditions.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Duration::from_secs_f64(ticks as f64 / per_second.max(1) as f64)
    }

    /// The clock ticks of a process of this group, by its line in /proc.
    fn ticks(self, stat: &str) -> Option<u64> {
        // The name in parentheses may have spaces.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
        (number(2)? == u64::from(self.0)).then_some(())?;
        // utime, stime, cutime, cstime.
        (11..15).map(number).sum()
    }

    /// Kills all its processes.
    pub(super) fn kill(self) {
        self.signal(libc::SIGKILL);
    }

    /// Stops all its processes.
    pub(super) fn pause(self) {
        self.signal(libc::SIGSTOP);
    }

    /// Continues them after a stop.
    pub(super) fn resume(self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(self, signal: libc::c_int) {
        // SAFETY: a negative number means the group; its leader was not waited for, so it is this
        // group. The call fails only if it has ended.
        unsafe { libc::kill(-self.0.cast_signed(), signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_count_for_the_group_only() {
        let stat = "17 (a b) c) S 1 42 42 0 -1 4194304 0 0 0 0 1 2 3 4 20 0 1 0 5";
        assert_eq!(Group::of(42).ticks(stat), Some(10));
        assert_eq!(Group::of(17).ticks(stat), None);
    }
}
