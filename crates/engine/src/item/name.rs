//! The name of an item's function, for dumps and reports.

use std::ptr::NonNull;

use super::{Action, Work, WorkFn};

/// The name of an item's function, for people: they know their own types, and not the functions
/// that an interface derives from them. The function itself gives the name, because any other way
/// would cost the item space, or an entry in a table when the item is made. As a side effect,
/// functions that differ in their names differ in their code, so no linker merges them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemName {
    /// The type that identifies the work: the type that embeds the item, or a closure's.
    pub type_name: &'static str,
    /// Which item of that type, if the type may have several; 0 for the first.
    pub id: u64,
}

impl ItemName {
    /// The name of the items of a type, or of a closure.
    pub fn of_type<T: ?Sized>(id: u64) -> ItemName {
        ItemName { type_name: std::any::type_name::<T>(), id }
    }

    /// Answers [`Action::Name`].
    ///
    /// # Safety
    /// `to` is the pointer that the function received together with that action.
    #[cold]
    pub unsafe fn report(self, to: NonNull<Work>) {
        // SAFETY: by this function's contract: `ask` passes the address of such a value.
        unsafe { to.cast::<Option<ItemName>>().write(Some(self)) };
    }

    /// Asks a function for its name.
    pub(crate) fn ask(func: WorkFn) -> Option<ItemName> {
        let mut name: Option<ItemName> = None;
        // SAFETY: with this action, the function only needs a location to write the name to.
        unsafe { func(NonNull::from(&mut name).cast(), Action::Name) };
        name
    }
}

impl std::fmt::Display for ItemName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.id {
            0 => f.write_str(self.type_name),
            id => write!(f, "{} (item {id})", self.type_name),
        }
    }
}
