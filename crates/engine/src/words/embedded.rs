//! Items that users embed in values of their own types: the way from the value to the item and
//! back, and the macros that describe the field.

use std::ptr::NonNull;

/// The item at `offset` in `value`. Exposes the provenance of the whole value, for [`container`].
///
/// # Safety
/// `value` is live, and has an item of type `W` at `offset`.
pub unsafe fn field<T, W>(value: NonNull<T>, offset: usize) -> NonNull<W> {
    let _ = value.as_ptr().expose_provenance();
    // SAFETY: by this function's contract, the item lies within the value.
    unsafe { value.byte_add(offset).cast() }
}

/// The value whose item at `offset` is `item`. The caller may hold a reference to the item alone:
/// the provenance of the value was exposed by [`field`].
///
/// # Safety
/// `item` is the item at `offset` in a live `T`.
pub unsafe fn container<T, W>(item: NonNull<W>, offset: usize) -> NonNull<T> {
    let value = std::ptr::with_exposed_provenance_mut(item.addr().get() - offset);
    // SAFETY: by this function's contract, it is the address of a value.
    unsafe { NonNull::new_unchecked(value) }
}

/// Implements a trait whose constant `OFFSET` is the offset of a field of a given type:
/// `[parameters] Type { field: FieldType } Trait`.
#[doc(hidden)]
#[macro_export]
macro_rules! __impl_offset {
    ([$($parameter:tt)*] $type:ty { $field:ident: $item:ty } $($trait:tt)+) => {
        // SAFETY: the offset is that of the field, whose type is checked here.
        unsafe impl<$($parameter)*> $($trait)+ for $type {
            const OFFSET: usize = {
                // To a raw pointer, so that nothing is dereferenced on the way.
                let _ = |value: &Self| -> *const $item { &value.$field };
                ::core::mem::offset_of!(Self, $field)
            };
        }
    };
}

/// Calls a macro with `[parameters] rest` for `[macro] impl<parameters> rest`, or for `[macro] impl
/// rest`. Macros have no matcher for generic parameters, so this one counts angle brackets: its third
/// list has a `<` for each one that is open.
#[doc(hidden)]
#[macro_export]
macro_rules! __split_generics {
    ([$($macro:tt)+] impl < $($rest:tt)+) => {
        $crate::__split_generics!(@count [$($macro)+] [] [] $($rest)+);
    };
    ([$($macro:tt)+] impl $($rest:tt)+) => {
        $($macro)+!([] $($rest)+);
    };
    (@count [$($macro:tt)+] [$($seen:tt)*] [] > $($rest:tt)+) => {
        $($macro)+!([$($seen)*] $($rest)+);
    };
    (@count [$($macro:tt)+] [$($seen:tt)*] [<] >> $($rest:tt)+) => {
        $($macro)+!([$($seen)* >] $($rest)+);
    };
    (@count $macro:tt [$($seen:tt)*] [< $($open:tt)*] > $($rest:tt)+) => {
        $crate::__split_generics!(@count $macro [$($seen)* >] [$($open)*] $($rest)+);
    };
    (@count $macro:tt [$($seen:tt)*] [< < $($open:tt)*] >> $($rest:tt)+) => {
        $crate::__split_generics!(@count $macro [$($seen)* >>] [$($open)*] $($rest)+);
    };
    (@count $macro:tt [$($seen:tt)*] [$($open:tt)*] < $($rest:tt)+) => {
        $crate::__split_generics!(@count $macro [$($seen)* <] [< $($open)*] $($rest)+);
    };
    (@count $macro:tt [$($seen:tt)*] [$($open:tt)*] << $($rest:tt)+) => {
        $crate::__split_generics!(@count $macro [$($seen)* <<] [< < $($open)*] $($rest)+);
    };
    (@count $macro:tt [$($seen:tt)*] $open:tt $next:tt $($rest:tt)+) => {
        $crate::__split_generics!(@count $macro [$($seen)* $next] $open $($rest)+);
    };
}
