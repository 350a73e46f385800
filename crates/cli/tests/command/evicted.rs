//! Commands whose idle connections a process closes, as others need their places.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use uwork::control;

use crate::observed::{looked_at, observed};
use crate::process::text;

/// A socket at which this process answers as many requests of each client, and then closes the connection
/// with a last word.
fn closes_after(requests: usize, last_word: &'static str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut answers = vec![format!("uwork-control 1 {}\n", std::process::id())];
            answers.extend(std::iter::repeat_n(String::new(), requests));
            let mut lines = lines.map_while(Result::ok);
            for (number, answer) in answers.iter_mut().enumerate() {
                if number > 0 {
                    let Some(request) = lines.next() else { break };
                    *answer = control::answer(&request);
                }
                if number == requests {
                    answer.push_str(last_word);
                }
                // The client may have ended.
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (folder, path.to_str().unwrap().to_owned())
}

// Catches: the last word of a process to an idle client, taken for the answer to the next request.
#[test]
fn commands_connect_anew_where_their_idle_connections_were_closed() {
    observed("evicted::commands_connect_anew_where_their_idle_connections_were_closed", || {
        let (_queue, _) = looked_at("comes-again");
        for word in ["err closed it was idle\n", "err refused it was idle\n"] {
            let (_folder, socket) = closes_after(1, word);
            let tables = text(&["monitor", "-i", "0.01", "-c", "3", &socket, "^comes-again$"]);
            assert_eq!(tables.matches("comes-again ").count(), 3, "{tables}");
            // Two rounds of three requests.
            let (_folder, socket) = closes_after(3, word);
            let picture = text(&["top", "-i", "0.05", &socket]);
            assert!(picture.contains("comes-again") && !picture.contains("GONE"), "{picture}");
        }
    });
}
