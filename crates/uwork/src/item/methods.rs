//! The methods that handles of items share. They are written once here, and are inherent methods of
//! each handle, so that its documentation lists them.
//!
//! A handle has a field `raw`, which begins with the engine's item, and a method `work` for it.

/// Questions about an item of any kind.
macro_rules! query_methods {
    () => {
        /// The address of the engine's item, with the provenance of the whole handle.
        fn raw(&self) -> std::ptr::NonNull<uwork_engine::Work> {
            std::ptr::NonNull::from(&self.raw).cast()
        }

        /// Whether the item is pending: queued, armed, or waiting for a grace period. An item that
        /// only runs is not pending. The answer may be out of date on return.
        pub fn is_pending(&self) -> bool {
            self.work().is_pending()
        }

        /// Whether the item is pending, and whether it runs. Both hold for an item that was queued
        /// again while it runs. The answer may be out of date on return.
        pub fn busy(&self) -> crate::Busy {
            uwork_linux::engine().busy(self.work())
        }

        /// The item's identity, to be compared with [`current_work`](crate::current_work) and with
        /// those of other items.
        pub fn id(&self) -> crate::WorkId {
            crate::WorkId::of(self.work())
        }

        /// The description that the item set for its run
        /// ([`set_worker_desc`](crate::set_worker_desc)); None if it does not run or has set none.
        pub fn description(&self) -> Option<String> {
            uwork_linux::engine().description(self.work())
        }
    };
}

/// The methods of a handle that users embed in values of a type `T`, whatever the kind of item, and
/// its common traits.
macro_rules! embedded_methods {
    ($handle:ident) => {
        impl<T: crate::WorkItem<ID>, const ID: u64> $handle<T, ID> {
            crate::item::query_methods!();

            fn take_back(&self, was_pending: bool) -> Option<T::Pointer> {
                let value = || crate::item::container::<T, ID>(self.raw());
                // SAFETY: the item was removed from its list, timer or wait: this call owns the
                // queue's pointer.
                was_pending.then(|| unsafe { crate::WorkPointer::from_raw(value()) })
            }

            /// Makes a pending item idle, without waiting for a run in progress: takes it off its
            /// queue, disarms its timer, or ends its wait for a grace period. If the item was
            /// pending, the queue's pointer is returned.
            pub fn cancel(&self) -> Option<T::Pointer> {
                // SAFETY: live, as this is a reference, and only ever queued on the process's
                // engine.
                let was_pending = unsafe { uwork_linux::engine().cancel(self.raw()) };
                self.take_back(was_pending)
            }

            /// As [`cancel`](Self::cancel), and waits for a run in progress: afterwards the item is
            /// neither pending nor running. Attempts to queue it during the wait are refused. A
            /// call from inside the item itself does not wait. Async code calls it by
            /// [`unblock`](crate::unblock).
            ///
            /// # Errors
            /// The disable depth is at its maximum.
            ///
            /// # Panics
            /// In a thread hook, which must not wait.
            pub fn cancel_sync(&self) -> Result<Option<T::Pointer>, crate::DisableDepthError> {
                uwork_linux::engine().assert_outside_hooks();
                // SAFETY: as in `cancel`.
                let was_pending = unsafe { uwork_linux::engine().cancel_sync(self.raw()) };
                Ok(self.take_back(was_pending.map_err(crate::DisableDepthError)?))
            }

            /// Keeps the item from being queued and armed until it was enabled as often as
            /// disabled, and cancels it.
            ///
            /// # Errors
            /// The disable depth is at its maximum.
            pub fn disable(&self) -> Result<Option<T::Pointer>, crate::DisableDepthError> {
                // SAFETY: as in `cancel`.
                let was_pending = unsafe { uwork_linux::engine().disable(self.raw()) };
                Ok(self.take_back(was_pending.map_err(crate::DisableDepthError)?))
            }

            /// As [`disable`](Self::disable), and waits for a run in progress.
            ///
            /// # Errors
            /// The disable depth is at its maximum.
            ///
            /// # Panics
            /// In a thread hook, which must not wait.
            pub fn disable_sync(&self) -> Result<Option<T::Pointer>, crate::DisableDepthError> {
                uwork_linux::engine().assert_outside_hooks();
                // SAFETY: as in `cancel`.
                let was_pending = unsafe { uwork_linux::engine().disable_sync(self.raw()) };
                Ok(self.take_back(was_pending.map_err(crate::DisableDepthError)?))
            }

            /// Undoes one disable. True if the item can be queued again; this call does not queue
            /// it.
            ///
            /// # Errors
            /// The item is not disabled.
            pub fn enable(&self) -> Result<bool, crate::DisableDepthError> {
                // SAFETY: as in `cancel`.
                unsafe { uwork_linux::engine().enable(self.raw()) }
                    .map_err(crate::DisableDepthError)
            }
        }

        impl<T: crate::WorkItem<ID>, const ID: u64> Default for $handle<T, ID> {
            fn default() -> Self {
                Self::new()
            }
        }

        impl<T, const ID: u64> std::fmt::Debug for $handle<T, ID> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($handle))
                    .field("pending", &self.work().is_pending())
                    .field("disable_depth", &self.work().disable_depth())
                    .finish()
            }
        }
    };
}

pub(crate) use {embedded_methods, query_methods};
