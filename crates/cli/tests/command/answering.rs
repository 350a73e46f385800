//! A stand-in for a process: a socket with answers of a test's choice.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

/// A socket at which a thread answers all requests, under this process's number.
pub(crate) fn answering(
    answer: impl Fn(&str) -> String + Send + 'static,
) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let say = |text: &str| (&stream).write_all(text.as_bytes()).is_ok();
            let mut is_open = say(&format!("uwork-control 1 {}\n", std::process::id()));
            while is_open && let Some(Ok(request)) = lines.next() {
                is_open = say(&answer(&request));
            }
        }
    });
    (folder, path.to_str().unwrap().to_owned())
}

/// An answer with this text.
pub(crate) fn ok(text: &str) -> String {
    format!("ok {}\n{text}", text.len())
}
