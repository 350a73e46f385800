//! The file systems of this namespace: which of them a stranger serves.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::geteuid;

use crate::peer::read_text;

/// How often the list is read again, at most, for a file system that it lacks: strangers may have
/// many.
const INTERVAL: Duration = Duration::from_millis(100);

/// By number: whether a stranger serves it.
type Mounts = HashMap<u64, bool>;

/// Whether a stranger serves the file system of a file that is open. False, where there is no /proc.
pub(crate) fn is_of_stranger(file: &OwnedFd) -> io::Result<bool> {
    static MOUNTS: Mutex<Option<(Instant, Mounts)>> = Mutex::new(None);
    let about = match read_text(&format!("/proc/self/fdinfo/{}", file.as_raw_fd())) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        about => about?,
    };
    let Some(number) = number_in(&about) else { return Ok(false) };
    let mut mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = mounts.as_ref().is_none_or(|(read_at, mounts)| {
        !mounts.contains_key(&number) && read_at.elapsed() >= INTERVAL
    });
    if is_due {
        let text = read_text("/proc/self/mountinfo")?;
        *mounts = Some((Instant::now(), listed(&text, geteuid().as_raw())));
    }
    let known = mounts.as_ref().and_then(|(_, mounts)| mounts.get(&number));
    Ok(known.copied().unwrap_or(true))
}

/// The number of a file system, in a file of /proc/self/fdinfo.
fn number_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// The file systems in /proc/self/mountinfo. One in user space says which user serves it.
fn listed(text: &str, own: u32) -> Mounts {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        let number = place.split(' ').next()?.parse().ok()?;
        let mut words = kind.split(' ');
        let is_served = words
            .next()
            .is_some_and(|kind| kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse."));
        let mut options = words.nth(1).unwrap_or_default().split(',');
        let user = options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        Some((number, is_served && user.is_none_or(|user: u32| user != 0 && user != own)))
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_in_user_space_is_a_strangers_or_not() {
        let text = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            30 22 0:31 / /tmp/a\\040-\\040b rw - fuse /dev/fuse rw,user_id=70002,group_id=7\n\
            31 22 0:32 / /mnt rw - fuse.sshfs host: rw,user_id=0,group_id=0,allow_other\n\
            32 22 0:33 / /srv/own rw - fuse.x x rw,user_id=7\n\
            33 22 0:34 / /x rw - fuseblk x rw\n34 22 0:35 / /y rw - fusectl x rw,user_id=9\nnone\n";
        let mut found: Vec<_> = listed(text, 7).into_iter().collect();
        found.sort_unstable();
        let expected = [(22, false), (30, true), (31, false), (32, false), (33, true), (34, false)];
        assert_eq!(found, expected);
    }

    #[test]
    fn the_file_systems_here_are_known() {
        for path in ["/", "/proc", "/tmp"] {
            let file = OwnedFd::from(std::fs::File::open(path).unwrap());
            assert!(!is_of_stranger(&file).unwrap(), "{path}");
        }
        assert_eq!(number_in("pos:\t0\nmnt_id:\t29\nino:\t7\n"), Some(29));
    }
}
