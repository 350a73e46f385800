//! Functions and their names.

use super::{Awaited, Dump, Function, Items, QueueDump, Stall, WorkerDump};
use crate::function::ItemFn;

impl Function {
    /// An item's function, without its name.
    pub(crate) fn of(func: ItemFn) -> Function {
        Function { address: func.identity(), name: None }
    }

    /// The function of this identity, with its name if it tells one.
    ///
    /// # Safety
    /// It is that of an item's function.
    pub(crate) unsafe fn at(identity: usize) -> Function {
        let mut function = Function { address: identity, name: None };
        // SAFETY: by this function's contract.
        unsafe { function.ask() };
        function
    }

    /// Asks the function for its name, if it has none yet. Its identity becomes an address.
    ///
    /// # Safety
    /// The address is the identity of an item's function, or was asked before.
    unsafe fn ask(&mut self) {
        if self.name.is_some() {
            return;
        }
        // SAFETY: by this function's contract. One that was asked before, and had nothing to say, is taken for a
        // foreign one, which is not asked.
        let func = unsafe { ItemFn::known_as(self.address) };
        self.name = func.name().map(|name| name.to_string());
        self.address = func.address();
    }
}

impl Dump {
    /// Gives names to functions that have none. `name` is asked once for each place that shows such a
    /// function.
    pub fn name_functions(&mut self, mut name: impl FnMut(usize) -> Option<String>) {
        self.functions().for_each(|function| function.name_by(&mut name));
    }

    /// All functions that are shown.
    fn functions(&mut self) -> impl Iterator<Item = &mut Function> {
        let queues = self.queues.iter_mut().flat_map(QueueDump::functions);
        let armed = self.pools.iter_mut().flat_map(|pool| {
            let armed = pool.armed.iter_mut().map(|armed| &mut armed.item.function);
            armed.chain(pool.workers.iter_mut().flat_map(WorkerDump::functions))
        });
        let helpers = self.helpers.iter_mut().flat_map(WorkerDump::functions);
        queues.chain(armed).chain(helpers)
    }

    /// Asks all functions for their names.
    ///
    /// # Safety
    /// The dump is as the engine has collected it.
    pub(super) unsafe fn ask_functions(&mut self) {
        // SAFETY: the engine finds functions in items and in slots, which have them from items.
        self.functions().for_each(|function| unsafe { function.ask() });
    }
}

impl QueueDump {
    /// Gives names to functions that have none, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        self.functions().for_each(|function| function.name_by(name));
    }

    fn functions(&mut self) -> impl Iterator<Item = &mut Function> {
        let rescued = self.rescuer.as_mut().and_then(|rescuer| rescuer.running.as_mut());
        let rescued = rescued.and_then(|running| running.function.as_mut());
        self.pwqs.iter_mut().flat_map(|pwq| pwq.pending.functions()).chain(rescued)
    }

    /// As [`Dump::ask_functions`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn ask_functions(&mut self) {
        // SAFETY: as there.
        self.functions().for_each(|function| unsafe { function.ask() });
    }
}

impl Stall {
    /// Gives names to functions that have none, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        let workers = self.workers.iter_mut().flat_map(|worker| worker.worker.functions());
        let deadlock = self.deadlock.iter_mut().flat_map(|item| {
            let awaited = match &mut item.waits_for {
                Awaited::Pending { function, .. } => function.as_mut(),
                Awaited::Running | Awaited::Queue(_) => None,
            };
            std::iter::once(&mut item.function).chain(awaited)
        });
        workers.chain(deadlock).for_each(|function| function.name_by(name));
    }
}

impl WorkerDump {
    /// As [`Dump::ask_functions`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn ask_functions(&mut self) {
        // SAFETY: as there.
        self.functions().for_each(|function| unsafe { function.ask() });
    }

    fn functions(&mut self) -> impl Iterator<Item = &mut Function> {
        let running = self.running.as_mut().and_then(|running| running.function.as_mut());
        running.into_iter().chain(self.behind.functions()).chain(self.set_aside.functions())
    }
}

impl Items {
    fn functions(&mut self) -> impl Iterator<Item = &mut Function> {
        self.first.iter_mut().map(|item| &mut item.function)
    }
}

impl Function {
    fn name_by(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        if self.name.is_none() {
            self.name = name(self.address);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::work::{Action, ItemName, Work, WorkFn};

    struct First;

    unsafe fn first(work: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
        // SAFETY: asked for it.
        unsafe { ItemName::of_type::<First>(0).tell(work) };
    }

    unsafe fn other(work: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
        // SAFETY: asked for it.
        unsafe { ItemName::of_type::<First>(3).tell(work) };
    }

    unsafe fn silent(_: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
    }

    #[test]
    fn functions_tell_what_they_are_called() {
        let asked = |func: WorkFn| {
            let identity = ItemFn::new(func).identity();
            let mut function = Function::of(ItemFn::new(func));
            // SAFETY: functions of items.
            unsafe { function.ask() };
            // SAFETY: as above.
            assert_eq!(function, unsafe { Function::at(identity) });
            function.name_by(&mut |address| {
                assert_eq!(address, func as usize);
                Some("from outside".to_owned())
            });
            function.name.unwrap()
        };
        let type_name = std::any::type_name::<First>();
        assert_eq!(asked(first), type_name);
        assert_eq!(asked(other), format!("{type_name} (item 3)"));
        assert_eq!(asked(silent), "from outside", "who says nothing gets a name by address");
    }
}
