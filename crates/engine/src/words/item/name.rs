//! The name of an item's function, for dumps and reports.

use std::any::TypeId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;
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
    /// Tells types with the same name apart: the closures of one function have one. The same in each
    /// run of a program, and another in another build. 0 if the names of types suffice.
    pub number: u16,
}

/// The part of a type's name that stands for a closure, or for an async block.
const CLOSURE: &str = "{{closure}}";

impl ItemName {
    /// The name of the items of a type, or of a closure.
    pub fn of_type<T>(id: u64) -> ItemName {
        let type_name = std::any::type_name::<T>();
        let number = if type_name.contains(CLOSURE) { number_of::<T>() } else { 0 };
        ItemName { type_name, id, number }
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
        f.write_str(self.type_name)?;
        if self.number != 0 {
            write!(f, "#{:04x}", self.number)?;
        }
        match self.id {
            0 => Ok(()),
            id => write!(f, " (item {id})"),
        }
    }
}

/// A type, whatever it borrows.
trait Typed {
    fn id(&self) -> TypeId
    where
        Self: 'static;
}

impl<T> Typed for PhantomData<T> {
    fn id(&self) -> TypeId
    where
        Self: 'static,
    {
        TypeId::of::<T>()
    }
}

/// A number of a type, not 0.
fn number_of<T>() -> u16 {
    let marker = PhantomData::<T>;
    let typed: &dyn Typed = &marker;
    // SAFETY: the two types differ in the lifetime alone, which the method needs for the id and which
    // does not change the id. The marker holds no reference, and is used for the call only.
    let typed: &(dyn Typed + 'static) = unsafe { std::mem::transmute(typed) };
    let mut hasher = DefaultHasher::new();
    typed.id().hash(&mut hasher);
    (hasher.finish() as u16).max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn name<T>(_: &T) -> String {
        ItemName::of_type::<T>(0).to_string()
    }

    #[test]
    fn closures_of_one_function_have_names_of_their_own() {
        let borrowed = String::from("local");
        let (first, second) = (|| borrowed.len(), || borrowed.is_empty());
        let (one, other) = (name(&first), name(&second));
        assert_ne!(one, other);
        assert_eq!((one.clone(), second()), (name(&first), false), "the same each time");
        let (path, number) = one.rsplit_once('#').unwrap();
        assert!(path.ends_with("closures_of_one_function_have_names_of_their_own::{{closure}}"));
        assert_eq!((number.len(), first()), (4, 5));
    }

    #[test]
    fn types_and_functions_have_plain_names() {
        assert_eq!(name(&1_u8), "u8");
        assert_eq!(ItemName::of_type::<u8>(2).to_string(), "u8 (item 2)");
    }
}
