//! Functions and their names.

use super::{Awaited, Dump, Function, ItemDump, Items, QueueDump, RunningInfo, Stall, WorkerDump};
use crate::words::item::ItemFn;

impl Function {
    /// An item's function, without its name.
    pub(crate) fn of(func: ItemFn) -> Function {
        Function { address: func.identity(), name: None }
    }

    /// The function with this identity, with its name if it has one.
    ///
    /// # Safety
    /// The identity belongs to an item's function.
    pub(crate) unsafe fn at(identity: usize) -> Function {
        let mut function = Function { address: identity, name: None };
        // SAFETY: by this function's contract.
        unsafe { function.ask() };
        function
    }

    /// Queries the function for its name, unless the name is known. Replaces the identity by the
    /// address.
    ///
    /// # Safety
    /// The address is the identity of an item's function, or `ask` was called before.
    unsafe fn ask(&mut self) {
        if self.name.is_some() {
            return;
        }
        // SAFETY: by this function's contract. A function that was queried before without a name
        // counts as foreign, and foreign functions are not called.
        let func = unsafe { ItemFn::from_identity(self.address) };
        self.name = func.name().map(|name| name.to_string());
        self.address = func.address();
    }
}

/// The address of an item in the dump, and its function.
type Shown<'a> = (&'a mut usize, &'a mut Function);

/// Maps a pending or running item to the item and function that the dump shows instead, by address.
pub type StandsFor<'a> = &'a mut dyn FnMut(usize) -> Option<(usize, usize)>;

fn name_functions_in<'a>(
    shown: impl Iterator<Item = Shown<'a>>,
    name: &mut impl FnMut(usize) -> Option<String>,
) {
    shown.for_each(|(_, function)| function.name_by(name));
}

/// # Safety
/// The functions are as the engine collected them.
unsafe fn ask_all<'a>(shown: impl Iterator<Item = Shown<'a>>) {
    // SAFETY: the engine collects functions from items, and from slots, which get them from items.
    shown.for_each(|(_, function)| unsafe { function.ask() });
}

fn replace_all<'a>(shown: impl Iterator<Item = Shown<'a>>, represented_item: StandsFor<'_>) {
    for (item, function) in shown {
        if let Some((meant, address)) = represented_item(*item) {
            *item = meant;
            *function = Function { address, name: None };
        }
    }
}

impl Dump {
    /// Names the functions that have no name. `name` is called once for each place that shows such
    /// a function.
    pub fn name_functions(&mut self, mut name: impl FnMut(usize) -> Option<String>) {
        name_functions_in(self.shown(), &mut name);
    }

    /// Replaces items that stand for other items by those other items.
    pub fn replace_items(&mut self, represented_item: StandsFor<'_>) {
        replace_all(self.shown(), represented_item);
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

    /// Queries all functions for their names.
    ///
    /// # Safety
    /// The dump is as the engine has collected it.
    pub(crate) unsafe fn ask_functions(&mut self) {
        // SAFETY: by this function's contract.
        unsafe { ask_all(self.shown()) };
    }
}

impl QueueDump {
    /// Names the functions that have no name, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        name_functions_in(self.shown(), name);
    }

    /// As [`Dump::replace_items`].
    pub fn replace_items(&mut self, represented_item: StandsFor<'_>) {
        replace_all(self.shown(), represented_item);
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let rescued = self.rescuer.as_mut().and_then(|rescuer| rescuer.running.as_mut());
        let rescued = rescued.and_then(RunningInfo::shown);
        self.pwqs.iter_mut().flat_map(|pwq| pwq.pending.shown()).chain(rescued)
    }

    /// As [`Dump::ask_functions`].
    ///
    /// # Safety
    /// As [`Dump::ask_functions`].
    pub(crate) unsafe fn ask_functions(&mut self) {
        // SAFETY: by this function's contract.
        unsafe { ask_all(self.shown()) };
    }
}

impl Stall {
    /// Names the functions that have no name, as [`Dump::name_functions`].
    pub fn name_functions(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        name_functions_in(self.shown(), name);
    }

    /// As [`Dump::replace_items`].
    pub fn replace_items(&mut self, represented_item: StandsFor<'_>) {
        replace_all(self.shown(), represented_item);
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
    /// As [`Dump::ask_functions`].
    pub(crate) unsafe fn ask_functions(&mut self) {
        // SAFETY: by this function's contract.
        unsafe { ask_all(self.shown()) };
    }

    fn shown(&mut self) -> impl Iterator<Item = Shown<'_>> {
        let running = self.running.as_mut().and_then(RunningInfo::shown);
        running.into_iter().chain(self.scheduled.shown()).chain(self.deferred.shown())
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
    /// Names the function by its address, unless it has a name.
    pub fn name_by(&mut self, name: &mut impl FnMut(usize) -> Option<String>) {
        if self.name.is_none() {
            self.name = name(self.address);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::words::item::{Action, ItemName, Work, WorkFn};

    struct First;

    unsafe fn first(work: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
        // SAFETY: called to get the name.
        unsafe { ItemName::of_type::<First>(0).report(work) };
    }

    unsafe fn other(work: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
        // SAFETY: called to get the name.
        unsafe { ItemName::of_type::<First>(3).report(work) };
    }

    unsafe fn silent(_: NonNull<Work>, action: Action) {
        assert_eq!(action, Action::Name);
    }

    #[test]
    fn functions_have_names() {
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
        assert_eq!(
            asked(silent),
            "from outside",
            "a function without a name gets one by its address"
        );
    }

    #[test]
    fn items_are_shown_as_the_items_that_they_stand_for() {
        let item = |address| ItemDump { address, function: Function { address: 1, name: None } };
        let mut items = Items { total: 2, first: vec![item(0x10), item(0x20)] };
        replace_all(items.shown(), &mut |item| (item == 0x20).then_some((0x22, 3)));
        name_functions_in(items.shown(), &mut |address| (address == 3).then(|| "meant".to_owned()));
        assert_eq!(items.first[0], item(0x10));
        let function = Function { address: 3, name: Some("meant".to_owned()) };
        assert_eq!(items.first[1], ItemDump { address: 0x22, function });
    }
}
