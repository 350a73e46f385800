//! The engine's reports of its accesses become time of the thread that makes them.

use std::panic::Location;
use std::rc::Rc;

use uwork_engine::sync::{self, Recorder, set_recorder};
use uwork_policy::topology::Topology;

use super::bill::{Bill, Use};
use super::{Cost, Costs, heap};
use crate::host::VirtualHost;
use crate::play::{Run, play_on};
use crate::script::Script;

/// While this lives, the engine's accesses on the calling thread cost time on a machine.
pub struct Recording(Option<Rc<dyn Recorder>>);

impl Recording {
    /// Gives the host's machine this bill, and has accesses charged to it.
    #[must_use = "accesses cost time only while it lives"]
    pub fn start(host: &VirtualHost, bill: Bill) -> Recording {
        host.start_bill(bill);
        heap::record(true);
        Recording(set_recorder(Some(Rc::new(host.clone()))))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = set_recorder(self.0.take());
        heap::record(false);
    }
}

/// Plays a script on this machine, where instructions take time.
///
/// # Errors
/// The script asks for CPUs that the machine does not have.
pub fn play(script: &Script, machine: &Topology, costs: &Costs) -> Result<Run, String> {
    let bill = Bill::new(machine, costs.clone());
    play_on(script, machine, |host| Recording::start(host, bill))
}

impl Recorder for VirtualHost {
    fn uses(&self, address: usize, how: sync::Use, here: &'static Location<'static>) {
        let how = match how {
            sync::Use::Read => Use::Read,
            sync::Use::Write => Use::Write,
            sync::Use::Update => Use::Update,
        };
        self.use_line(address, how, here);
    }

    fn fences(&self) {
        self.await_stores();
        self.charge(Cost::Locked);
    }

    fn takes(&self, lock: usize, here: &'static Location<'static>) {
        let spin_ns = self.figure(Cost::Spin);
        self.take_lock(lock, spin_ns, here);
    }

    fn releases(&self, lock: usize, here: &'static Location<'static>) {
        // An exchange tells whether a thread sleeps for the lock.
        self.release_lock(lock, Use::Update, here);
    }
}
