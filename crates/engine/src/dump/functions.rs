//! Functions and their names.

use super::{Awaited, Dump, Function, ItemDump, Items, QueueDump, RunningInfo, Stall, WorkerDump};
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

/// An item that is shown, by its address, and its function.
type Shown<'a> = (&'a mut usize, &'a mut Function);

/// What a pending or running item is shown as instead: its address, and that of its function.
pub type StandsFor<'a> = &'a mut dyn FnMut(usize) -> Option<(usize, usize)>;

fn name_all<'a>(
    shown: impl Iterator<Item = Shown<'a>>,
    name: &mut impl FnMut(usize) -> Option<String>,
) {
    shown.for_each(|(_, function)| function.name_by(name));
}

/// # Safety
/// The functions are as the engine has found them.
unsafe fn ask_all<'a>(shown: impl Iterator<Item = Shown<'a>>) {
    // SAFETY: the engine finds functions in items and in slots, which have them from items.
    shown.for_each(|(_, function)| unsafe { function.ask() });
}

fn replace_all<'a>(shown: impl Iterator<Item = Shown<'a>>, stands_for: StandsFor<'_>) {
    for (item, function) in shown {
        if let Some((meant, address)) = stands_for(*item) {
            *item = meant;
            *function = Function { address, name: None };
        }
    }
}

impl Dump {
    /// Gives names to functions that have none. `name` is asked once for each place that shows such a
    /// function.
    pub fn name_functions(&mut self, mut name: impl FnMut(usize) -> Option<String>) {
        name_all(self.shown(), &mut name);
    }

    /// Shows items that stand for others as those.
    pub fn replace_items(&mut self, stands_for: StandsFor<'_>) {
        replace_all(self.shown(), stands_for);
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let queues = self.queues.iter_mut().flat_map(QueueDump::shown);
        let armed = self.pools.iter_mut().flat_map(|pool| {
            let armed = pool.armed.iter_mut().map(|armed| armed.item.shown());
            armed.chain(pool.workers.iter_mut().flat_map(WorkerDump::shown))
        });
        let helpers = self.helpers.iter_mut().flat_map(WorkerDump::shown);
        queues.chain(armed).chain(helpers)
    }

    /// Asks all functions for their names.
    ///
    /// # Safety
    /// The dump is as the engine has collected it.
    pub(super) unsafe fn ask_functions(&mut self) {
        // SAFETY: by this function's contract.
        unsafe { ask_all(self.shown()) };
    }
}

impl QueueDump {
    /// Gives names to functions that have none, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        name_all(self.shown(), name);
    }

    /// As [`Dump::replace_items`].
    pub fn replace_items(&mut self, stands_for: StandsFor<'_>) {
        replace_all(self.shown(), stands_for);
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let rescued = self.rescuer.as_mut().and_then(|rescuer| rescuer.running.as_mut());
        let rescued = rescued.and_then(RunningInfo::shown);
        self.pwqs.iter_mut().flat_map(|pwq| pwq.pending.shown()).chain(rescued)
    }

    /// As [`Dump::ask_functions`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn ask_functions(&mut self) {
        // SAFETY: as there.
        unsafe { ask_all(self.shown()) };
    }
}

impl Stall {
    /// Gives names to functions that have none, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        name_all(self.shown(), name);
    }

    /// As [`Dump::replace_items`].
    pub fn replace_items(&mut self, stands_for: StandsFor<'_>) {
        replace_all(self.shown(), stands_for);
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let workers = self.workers.iter_mut().flat_map(|worker| worker.worker.shown());
        let deadlock = self.deadlock.iter_mut().flat_map(|item| {
            let awaited = match &mut item.waits_for {
                Awaited::Pending { address, function: Some(function), .. } => {
                    Some((address, function))
                }
                Awaited::Pending { function: None, .. } | Awaited::Running | Awaited::Queue(_) => {
                    None
                }
            };
            std::iter::once((&mut item.address, &mut item.function)).chain(awaited)
        });
        workers.chain(deadlock)
    }
}

impl WorkerDump {
    /// As [`Dump::ask_functions`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn ask_functions(&mut self) {
        // SAFETY: as there.
        unsafe { ask_all(self.shown()) };
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let running = self.running.as_mut().and_then(RunningInfo::shown);
        running.into_iter().chain(self.behind.shown()).chain(self.set_aside.shown())
    }
}

impl RunningInfo {
    fn shown(&mut self) -> Option<Shown<'_>> {
        self.item.as_mut().zip(self.function.as_mut())
    }
}

impl ItemDump {
    fn shown(&mut self) -> Shown<'_> {
        (&mut self.address, &mut self.function)
    }
}

impl Items {
    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        self.first.iter_mut().map(ItemDump::shown)
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

    #[test]
    fn items_that_stand_for_others_are_shown_as_those() {
        let item = |address| ItemDump { address, function: Function { address: 1, name: None } };
        let mut items = Items { total: 2, first: vec![item(0x10), item(0x20)] };
        replace_all(items.shown(), &mut |item| (item == 0x20).then_some((0x22, 3)));
        name_all(items.shown(), &mut |address| (address == 3).then(|| "meant".to_owned()));
        assert_eq!(items.first[0], item(0x10));
        let function = Function { address: 3, name: Some("meant".to_owned()) };
        assert_eq!(items.first[1], ItemDump { address: 0x22, function });
    }
}
