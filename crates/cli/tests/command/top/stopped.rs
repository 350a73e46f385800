//! `uwork top` beside a process that is stopped, or answers late.

use super::*;

/// `uwork top`, whose process was asked and does not answer until the returned connection is used.
fn asked() -> io::Result<(Terminal, UnixStream, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path)?;
    let terminal = Terminal::start(path.to_str().unwrap(), false);
    let mut stream = accepted(&listener);
    writeln!(stream, "uwork-control 1 {}", std::process::id())?;
    let mut requests = BufReader::new(stream.try_clone()?);
    // Two rounds of three requests; the third round waits.
    for _ in 0..6 {
        let request = next_line(&mut requests)?;
        stream.write_all(control::answer(&request).as_bytes())?;
    }
    assert_eq!(next_line(&mut requests)?, "status");
    Ok((terminal, stream, folder))
}

#[test]
fn keys_have_an_effect_before_the_process_answers() {
    observed("top::stopped::keys_have_an_effect_before_the_process_answers", || {
        let (_queue, _) = looked_at("top-held");
        let press = || {
            let (mut terminal, stream, folder) = asked()?;
            for (key, effect) in [("s", "busy↓"), ("?", "ask the process at once")] {
                terminal.press(key);
                let parts = [effect, "GONE"];
                terminal.until(effect, |screen| {
                    parts.iter().any(|part| screen.contents().contains(part))
                });
                // This process, which got no CPU for the key, is given up before its effect.
                if terminal.shows("GONE") {
                    return Err(io::Error::other(format!("{terminal:?}")));
                }
            }
            Ok((terminal, stream, folder))
        };
        let (mut terminal, stream, _folder) = until(press, |_| true);
        terminal.press("xq");
        terminal.until("the end", |screen| !screen.alternate_screen());
        assert!(terminal.command.wait().unwrap().success());
        drop(stream);
    });
}

#[test]
fn a_stopped_process_is_shown_as_gone_until_it_goes_on() {
    let test = "top::stopped::a_stopped_process_is_shown_as_gone_until_it_goes_on";
    observed(test, || {
        let other = Other::start(test, "stops");
        let mut terminal = Terminal::top(&other.socket, false);
        terminal.until_shown("stops ");
        other.stop();
        terminal.until_shown("is stopped: `kill -CONT");
        terminal.press("enice 1\r");
        terminal.until_shown("nothing changed: set devices/stops/nice 1");
        other.go_on();
        terminal.until("no longer gone", |screen| !screen.contents().contains("GONE"));
        // The answer is that to this request, not one that came late.
        terminal.set("bogus 3", "no such attribute");
        assert!(!terminal.shows("done: "), "{terminal:?}");
        terminal.set("max_active 3", "done: set devices/stops/max_active 3");
        terminal.quit();
    });
}
