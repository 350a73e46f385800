//! What is queued: operations, and the tokens by which their completions are known.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{opcode, squeue};

use super::{GROUP, Reactor};
use crate::linux::task::NOTICE;
#[cfg(doc)]
use crate::ring::{Builder, Completion};

/// The highest token that an operation may have. What is above says what kind of operation it was.
pub const TOKEN_MAX: u64 = (1 << 62) - 1;
pub(super) const KIND: u64 = !TOKEN_MAX;
pub(super) const ACCEPT: u64 = 1 << 62;
const RECEIVE: u64 = 2 << 62;
/// Operations of the reactor itself, and messages of others ([`NOTICE`]).
pub(super) const OWN: u64 = 3 << 62;
/// The poll of the eventfd.
pub(super) const POLL: u64 = OWN | 1;
/// A cancellation.
const CANCEL: u64 = OWN | 2;

const _: () = assert!(NOTICE & KIND == OWN && NOTICE != POLL && NOTICE != CANCEL);

impl Reactor {
    pub(super) fn poll_descriptor(&mut self) -> io::Result<()> {
        let fd = self.target.descriptor()?.as_raw_fd();
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build();
        // SAFETY: no memory is involved; the descriptor stays as long as the target.
        unsafe { self.queue(poll.user_data(POLL))? };
        self.poll_ended = false;
        Ok(())
    }

    /// Queues any operation. It is submitted by the next wait, or when the queue is full.
    ///
    /// # Errors
    /// `InvalidInput` for a token above [`TOKEN_MAX`]; otherwise what submitting says, where the queue was full.
    ///
    /// # Safety
    /// Whatever memory the operation uses stays, and is touched by nobody else, until it has completed. If it selects a
    /// buffer (`IOSQE_BUFFER_SELECT`), then of group 0, which is the reactor's.
    pub unsafe fn push(&mut self, operation: squeue::Entry) -> io::Result<()> {
        check(operation.get_user_data())?;
        // SAFETY: by this function's contract.
        unsafe { self.queue(operation) }
    }

    /// # Safety
    /// As [`Reactor::push`].
    unsafe fn queue(&mut self, operation: squeue::Entry) -> io::Result<()> {
        // SAFETY: by this function's contract.
        if unsafe { self.ring.submission().push(&operation) }.is_err() {
            self.submit()?;
            // SAFETY: as above.
            let pushed = unsafe { self.ring.submission().push(&operation) };
            pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        }
        Ok(())
    }

    /// Accepts connections, one completion for each
    /// ([`Completion::into_fd`](crate::ring::Completion::into_fd)), until it fails or is cancelled
    /// ([`Completion::more`](crate::ring::Completion::more)).
    ///
    /// Submits what is queued, and this. Without a descriptor left (`EMFILE`) it ends at once, and connections wait:
    /// queue it again when one was closed, not before.
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn accept_multi(&mut self, listener: &impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(listener.as_fd().as_raw_fd());
        let flags = libc::SOCK_CLOEXEC;
        let accept = opcode::AcceptMulti::new(fd).flags(flags).build();
        // SAFETY: no memory is involved.
        unsafe { self.queue(accept.user_data(ACCEPT | check(token)?))? };
        self.submit_all()
    }

    /// Receives into the reactor's buffers, one completion for each
    /// ([`Completion::into_buffer`](crate::ring::Completion::into_buffer)), until the stream ends, an error, a lack of
    /// buffers, or a cancellation ([`Completion::more`](crate::ring::Completion::more)). Submits what is queued, and
    /// this.
    ///
    /// # Errors
    /// As [`Reactor::push`]. Without [`Builder::buffers`](super::Builder::buffers) the operation completes with
    /// `ENOBUFS`.
    pub fn recv_multi(&mut self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let receive = opcode::RecvMulti::new(fd, GROUP).build();
        // SAFETY: the memory is that of the registered buffers.
        unsafe { self.queue(receive.user_data(RECEIVE | check(token)?))? };
        self.submit_all()
    }

    /// Submits until nothing is queued. What was queued with a borrowed descriptor's number is so taken by the kernel
    /// while the descriptor is borrowed: later the number may be another file's.
    fn submit_all(&mut self) -> io::Result<()> {
        loop {
            // An error is one of the ring itself, which then submits nothing later either.
            self.submit()?;
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            // The kernel has no memory for it now.
            std::thread::yield_now();
        }
    }

    /// Sends. All of it, unless the socket fails (`MSG_WAITALL`), without a signal for a closed one (`MSG_NOSIGNAL`).
    ///
    /// # Errors
    /// As [`Reactor::push`]. `InvalidInput` for 2 GiB and more, which no single operation sends.
    ///
    /// # Safety
    /// The bytes stay, unchanged, until the operation has completed. The socket stays open until it was submitted.
    pub unsafe fn send(
        &mut self,
        socket: &impl AsFd,
        bytes: *const [u8],
        token: u64,
    ) -> io::Result<()> {
        let send = sending(socket, bytes, 0)?.build();
        // SAFETY: by this function's contract.
        unsafe { self.queue(send.user_data(check(token)?)) }
    }

    /// Sends what the socket takes at once. It is over once it was submitted ([`Reactor::all_submitted`]), and the
    /// memory may be used again; a completion tells of it only where not all was sent: how much was, or `EAGAIN` for
    /// nothing. So one system call sends and waits. For up to 1 GiB: of more, the kernel may leave some out and not say
    /// so.
    ///
    /// # Errors
    /// As [`Reactor::send`].
    ///
    /// # Safety
    /// The bytes stay, unchanged, and the socket stays open, until the operation was submitted.
    pub unsafe fn try_send(
        &mut self,
        socket: &impl AsFd,
        bytes: *const [u8],
        token: u64,
    ) -> io::Result<()> {
        // Never left for later, and less than all is a failure, which is told.
        let send =
            sending(socket, bytes, libc::MSG_DONTWAIT)?.build().flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: by this function's contract.
        unsafe { self.queue(send.user_data(check(token)?)) }
    }

    /// Cancels the operations with this token, of every kind. They complete with `ECANCELED`, or with what came first.
    /// [`Reactor::cancel_recv`] and [`Reactor::cancel_accept`] are cheaper where the kind is known.
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn cancel(&mut self, token: u64) -> io::Result<()> {
        [0, ACCEPT, RECEIVE].into_iter().try_for_each(|kind| self.cancel_kind(kind, token))
    }

    /// Cancels what [`Reactor::recv_multi`] has begun with this token, and nothing else. As [`Reactor::cancel`].
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn cancel_recv(&mut self, token: u64) -> io::Result<()> {
        self.cancel_kind(RECEIVE, token)
    }

    /// Cancels what [`Reactor::accept_multi`] has begun with this token, and nothing else. As [`Reactor::cancel`].
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn cancel_accept(&mut self, token: u64) -> io::Result<()> {
        self.cancel_kind(ACCEPT, token)
    }

    fn cancel_kind(&mut self, kind: u64, token: u64) -> io::Result<()> {
        let matching = CancelBuilder::user_data(kind | check(token)?).all();
        let cancel = opcode::AsyncCancel2::new(matching).build();
        // SAFETY: no memory is involved.
        unsafe { self.queue(cancel.user_data(CANCEL)) }
    }
}

/// Sends all of it or fails, without a signal for a closed socket.
fn sending(socket: &impl AsFd, bytes: *const [u8], flags: i32) -> io::Result<opcode::Send> {
    let fd = Fd(socket.as_fd().as_raw_fd());
    let send = opcode::Send::new(fd, bytes.cast(), sendable(bytes.len())?);
    Ok(send.flags(flags | libc::MSG_WAITALL | libc::MSG_NOSIGNAL))
}

/// So many bytes, where one operation can send them: the kernel's count of them is signed.
fn sendable(len: usize) -> io::Result<u32> {
    i32::try_from(len).map(i32::cast_unsigned).map_err(|_| {
        let what = format!("{len} bytes: at most {} can be sent at once", i32::MAX);
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

/// A token that is allowed.
fn check(token: u64) -> io::Result<u64> {
    if token > TOKEN_MAX {
        let what = format!("token {token}: at most {TOKEN_MAX} is allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(token)
}
