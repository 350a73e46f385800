//! A doubly linked list of items.

use super::Work;
use crate::words::sync::{Link, prefetch};

/// How many strides ahead a walk along a list prefetches.
const PREFETCH_AHEAD: usize = 8;

/// Prefetches an item further along a list whose next step is from `item` to `next`. Items are
/// often elements of an array, so that the distance repeats.
#[inline(always)]
pub(crate) fn prefetch_beyond(item: *const Work, next: *const Work) {
    let stride = next.addr().wrapping_sub(item.addr());
    prefetch(next.wrapping_byte_add(stride.wrapping_mul(PREFETCH_AHEAD)));
}

/// A doubly linked list of items, for lists from which a thread may take an item out of the middle.
///
/// Not synchronised: the holder of the list holds its guard. The `prev` link of the first item is
/// meaningless, so that taking items off the front need not update it.
pub(crate) struct WorkList {
    head: *mut Work,
    tail: *mut Work,
}

// SAFETY: the list's items belong to the holder of the list.
unsafe impl Send for WorkList {}

impl WorkList {
    pub(crate) const fn new() -> WorkList {
        WorkList { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    #[inline]
    pub(crate) fn front(&self) -> *mut Work {
        self.head
    }

    /// # Safety
    /// `item` is live, in no list, and the caller's.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, item: *mut Work) {
        // SAFETY: the caller owns `item`; `tail` is in this list, whose guard the caller holds.
        unsafe {
            (*item).next.set(Link(std::ptr::null_mut()));
            (*item).prev.set(Link(self.tail));
            if self.head.is_null() {
                self.head = item;
            } else {
                (*self.tail).next.set(Link(item));
            }
        }
        self.tail = item;
    }

    /// Takes the first item, or returns null.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> *mut Work {
        let item = self.head;
        if !item.is_null() {
            // SAFETY: `item` is in this list, whose guard the caller holds.
            self.head = unsafe { (*item).next.get().0 };
            // `tail` is meaningless in an empty list.
        }
        item
    }

    /// Takes the last item, or returns null.
    pub(crate) fn pop_back(&mut self) -> *mut Work {
        if self.head.is_null() {
            return std::ptr::null_mut();
        }
        let item = self.tail;
        // SAFETY: `item` is in this list.
        unsafe { self.remove(item) };
        item
    }

    /// # Safety
    /// `item` is in this list.
    pub(crate) unsafe fn remove(&mut self, item: *mut Work) {
        // SAFETY: `item` and its neighbours are in this list, whose guard the caller holds.
        unsafe {
            let (prev, next) = ((*item).prev.get().0, (*item).next.get().0);
            if item == self.head {
                self.head = next;
                return;
            }
            (*prev).next.set(Link(next));
            if next.is_null() {
                self.tail = prev;
            } else {
                (*next).prev.set(Link(prev));
            }
        }
    }

    /// Takes all items.
    pub(crate) fn take(&mut self) -> WorkList {
        std::mem::replace(self, WorkList::new())
    }

    /// Appends a stack from an inbox (last pushed first) in the order of the pushes; `visit` sees
    /// each item. Returns the number of items, and the time that the first one carries.
    ///
    /// # Safety
    /// The stack's items are live, in no list, and the caller's.
    pub(crate) unsafe fn append_stack(
        &mut self,
        stack: *mut Work,
        mut visit: impl FnMut(&Work),
    ) -> (usize, u64) {
        let (mut item, mut newer, mut count) = (stack, std::ptr::null_mut::<Work>(), 0);
        let mut queued_at = std::ptr::null_mut();
        let newest = stack;
        while !item.is_null() {
            // SAFETY: by this function's contract; each item is visited once.
            unsafe {
                let older = (*item).next.get().0;
                prefetch_beyond(item, older);
                (*item).next.set(Link(newer));
                queued_at = (*item).prev.get().0;
                (*item).prev.set(Link(older));
                visit(&*item);
                newer = item;
                item = older;
            }
            count += 1;
        }
        if count > 0 {
            // `newer` is the oldest item now.
            // SAFETY: as above; the tail is in this list.
            unsafe {
                (*newer).prev.set(Link(self.tail));
                if self.head.is_null() {
                    self.head = newer;
                } else {
                    (*self.tail).next.set(Link(newer));
                }
            }
            self.tail = newest;
        }
        (count, queued_at.addr() as u64)
    }

    /// Takes all items up to and including `last`.
    ///
    /// # Safety
    /// `last` is in this list.
    pub(crate) unsafe fn split_front(&mut self, last: *mut Work) -> WorkList {
        let front = WorkList { head: self.head, tail: last };
        // SAFETY: `last` is in this list.
        unsafe {
            self.head = (*last).next.get().0;
            (*last).next.set(Link(std::ptr::null_mut()));
        }
        front
    }

    /// Puts all items of `other` before this list.
    pub(crate) fn prepend(&mut self, mut other: WorkList) {
        other.append(self.take());
        *self = other;
    }

    /// Appends all items of `other`.
    pub(crate) fn append(&mut self, other: WorkList) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        // SAFETY: both ends are in lists that the caller holds.
        unsafe {
            (*self.tail).next.set(Link(other.head));
            (*other.head).prev.set(Link(self.tail));
        }
        self.tail = other.tail;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::words::item::Action;

    unsafe fn nothing(_: NonNull<Work>, _: Action) {}

    fn order(list: &mut WorkList) -> Vec<*mut Work> {
        let mut items = Vec::new();
        loop {
            let item = list.pop_front();
            if item.is_null() {
                return items;
            }
            items.push(item);
        }
    }

    #[test]
    fn list_keeps_its_order_through_every_operation() {
        let items: Vec<Box<Work>> = (0..6).map(|_| Box::new(Work::new(nothing))).collect();
        let at = |i: usize| &*items[i] as *const Work as *mut Work;
        let mut list = WorkList::new();
        // SAFETY: every item is live and inserted once.
        unsafe {
            list.push_back(at(1));
            list.push_back(at(2));
            list.push_back(at(3));
            let mut first = WorkList::new();
            first.push_back(at(0));
            list.prepend(first);
            list.remove(at(2));
            let mut more = WorkList::new();
            more.push_back(at(4));
            more.push_back(at(5));
            list.append(more);
        }
        assert_eq!(list.pop_back(), at(5));
        assert_eq!(order(&mut list), vec![at(0), at(1), at(3), at(4)]);
        assert!(list.is_empty() && list.pop_back().is_null());
    }
}
