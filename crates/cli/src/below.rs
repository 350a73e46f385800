//! The socket of a process that sees other folders than this command, as in a container, by a path below
//! `/proc/PID/root`. The users of the container may have made each link and each file system there.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::commands::process::apart;
use crate::exchange::{Fault, connected};
use crate::folder::{Folder, refused};
use crate::peer::Peer;
use crate::socket_name::process_of;

/// A path in the folders that a process sees.
pub(crate) struct Below {
    process: u32,
    inside: PathBuf,
}

/// What a path below `/proc/PID/root` names there. None for any other path.
pub(crate) fn below(path: &Path) -> Option<Below> {
    let mut parts = path.strip_prefix("/proc").ok()?.components();
    let process = parts.next()?.as_os_str().to_str()?.parse().ok()?;
    let is_root = parts.next()?.as_os_str() == "root";
    is_root.then(|| Below { process, inside: parts.as_path().to_owned() })
}

impl Below {
    /// Connects in the child, which may wait for a file system in the container: a part of the path, and
    /// the look at its rights, may ask the server.
    pub(crate) fn connect(&self, until: Instant) -> Result<UnixStream, Fault> {
        let inside = self.inside.to_str().filter(|path| !path.contains('\n'));
        let inside = inside.ok_or_else(|| refused("it is no socket of uwork".to_owned()))?;
        // The child is to give its reason in time.
        let left_ms = until.saturating_duration_since(Instant::now()).as_millis() * 9 / 10;
        let request = format!("connect {} {left_ms} {inside}", self.process);
        let stream = apart::ask(&request).and_then(|mut answer| answer.stream(until));
        stream.map_err(Fault::from)
    }

    /// The peer is a process of the same container.
    pub(crate) fn check(&self, peer: &Peer) -> Result<(), Fault> {
        let mounts = |process| fs::read_link(format!("/proc/{process}/ns/mnt"));
        let (theirs, ours) = (mounts(peer.process)?, mounts(self.process)?);
        match theirs == ours {
            true => Ok(()),
            false => Err(Fault::Stranger(format!(
                "process {} listens here, and sees other folders than process {}",
                peer.process, self.process
            ))),
        }
    }
}

/// Connects for the request `PID MS PATH`.
pub(crate) fn answer(request: &str) -> io::Result<UnixStream> {
    let mut words = request.splitn(3, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<u32>().ok());
    let (process, ms) = number().zip(number()).ok_or(io::ErrorKind::InvalidInput)?;
    let inside = Path::new(words.next().unwrap_or_default());
    let until = Instant::now() + Duration::from_millis(ms.into());
    let (folder, name) = inside.parent().zip(inside.file_name()).ok_or(io::ErrorKind::NotFound)?;
    let name = Path::new(name);
    if process_of(name).is_none() {
        return Err(refused("it is no socket of uwork".to_owned()));
    }
    let folder = Folder::open_below(Path::new(&format!("/proc/{process}/root")), folder)?;
    connected(folder.socket(name)?.path(), until)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;
    use crate::filter::refuse_here;

    #[test]
    fn only_paths_below_the_root_of_a_process_are_opened_there() {
        let found = below(Path::new("/proc/7/root/run/uwork-0/7-1f.sock")).unwrap();
        assert_eq!((found.process, &*found.inside), (7, Path::new("run/uwork-0/7-1f.sock")));
        for other in ["/proc/self/root/run", "/proc/7/cwd/run", "/run/uwork-0", "proc/7/root/run"] {
            assert!(below(Path::new(other)).is_none(), "{other}");
        }
    }

    #[test]
    fn a_socket_in_a_folder_of_its_user_is_opened_by_no_link() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("uwork");
        fs::create_dir(&folder).unwrap();
        let _listener = UnixListener::bind(folder.join("7.sock")).unwrap();
        symlink(&folder, place.path().join("link")).unwrap();
        symlink("7.sock", folder.join("8.sock")).unwrap();
        symlink(folder.join("7.sock"), folder.join("9.sock")).unwrap();
        let own = std::process::id();
        let opened = |name: &str| {
            let inside = place.path().strip_prefix("/").unwrap().join(name);
            answer(&format!("{own} 60000 {}", inside.display())).is_ok()
        };
        let check = || {
            assert!(opened("uwork/7.sock") && opened("./uwork/../uwork/7.sock"));
            // The root has no parent.
            assert!(opened(&format!(
                "{}{}/uwork/7.sock",
                "../".repeat(64),
                place.path().display()
            )));
            for name in ["link/7.sock", "uwork/8.sock", "uwork/9.sock", "uwork/none.sock", "uwork"]
            {
                assert!(!opened(name), "{name}");
            }
        };
        check();
        // As before Linux 5.6, and in a sandbox.
        for error in [libc::ENOSYS, libc::EPERM] {
            let refused = || {
                refuse_here(libc::SYS_openat2, error);
                check();
            };
            thread::scope(|scope| scope.spawn(refused).join().unwrap());
        }
    }
}
