//! `uwork top` that a signal ends.

use std::os::unix::process::ExitStatusExt;

use rustix::termios::{LocalModes, tcgetattr};

use super::*;

impl Terminal {
    /// Sends the command a signal, and waits until it has ended by it.
    fn end_by(&mut self, signal: Signal) {
        let has_lines =
            |ours: &File| tcgetattr(ours).unwrap().local_modes.contains(LocalModes::ICANON);
        assert!(!has_lines(&self.ours), "keys are read one by one");
        kill_process(Pid::from_child(&self.command), signal).unwrap();
        self.until("the end", |screen| !screen.alternate_screen());
        let status = self.command.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status:?}");
        assert!(has_lines(&self.ours) && !self.parser.screen().hide_cursor(), "{signal:?}");
    }
}

// Catches: a shell whose keys are not shown, after a `kill` or a timeout.
#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let test = "top::ended::a_signal_leaves_the_terminal_as_it_was";
    observed(test, || {
        let _other = Other::start(test, "second");
        let (_queue, socket) = looked_at("ended");
        for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
            Terminal::top(&socket, false).end_by(signal);
        }
        // In the list of processes.
        let mut terminal = Terminal::run(&["top"], false);
        terminal.until("the list", vt100::Screen::alternate_screen);
        terminal.end_by(Signal::TERM);
    });
}
