//! The operations that can be queued, and the tokens that identify their completions.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{opcode, squeue};

use crate::task::NOTICE;

use super::{GROUP, Reactor};
#[cfg(doc)]
use crate::ring::{Builder, Completion};

/// The highest token that an operation may have. The bits above it hold the kind of operation.
pub const TOKEN_MAX: u64 = (1 << 62) - 1;
pub(super) const KIND: u64 = !TOKEN_MAX;
pub(super) const ACCEPT: u64 = 1 << 62;
const RECEIVE: u64 = 2 << 62;
/// Operations of the reactor itself, and messages from other threads ([`NOTICE`]).
pub(super) const OWN: u64 = 3 << 62;
/// The poll of the eventfd.
pub(super) const POLL: u64 = OWN | 1;
/// A cancellation.
const CANCEL: u64 = OWN | 2;

const _: () = assert!(NOTICE & KIND == OWN && NOTICE != POLL && NOTICE != CANCEL);

impl Reactor {
    pub(super) fn poll_descriptor(&mut self) -> io::Result<()> {
        self.target.open_descriptor()?;
        let fd = self.target.descriptor().expect("it was made").as_raw_fd();
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build();
        // SAFETY: no memory is involved; the descriptor stays as long as the target.
        unsafe { self.queue(poll.user_data(POLL))? };
        self.poll_ended = false;
        Ok(())
    }

    /// Queues any operation. It is submitted by the next wait, or when the queue is full.
    ///
    /// # Errors
    /// `InvalidInput` for a token above [`TOKEN_MAX`]; otherwise the error of a submit, if the
    /// queue was full.
    ///
    /// # Safety
    /// The memory that the operation uses stays valid, and no other code accesses it, until the
    /// operation has completed. An operation that selects a buffer (`IOSQE_BUFFER_SELECT`) selects
    /// it from group 0, which is the reactor's.
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
    /// Submits it together with all queued operations. Without a free descriptor (`EMFILE`) the
    /// operation ends at once, and connections wait: queue it again when a descriptor was closed,
    /// not before. A connection that is not taken is closed with its completion, unless it may be
    /// another socket of the program's by then: one with another address than the listener has
    /// (`IP_TRANSPARENT`) stays open.
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn accept_multi(&mut self, listener: &impl AsFd, token: u64) -> io::Result<()> {
        let number = listener.as_fd().as_raw_fd();
        let (fd, flags) = (Fd(number), libc::SOCK_CLOEXEC);
        let accept = opcode::AcceptMulti::new(fd).flags(flags).build();
        // SAFETY: no memory is involved.
        unsafe { self.queue(accept.user_data(ACCEPT | check(token)?))? };
        self.accepts.begin(token, number);
        self.submit_all()
    }

    /// Receives into the reactor's buffers, one completion for each
    /// ([`Completion::into_buffer`](crate::ring::Completion::into_buffer)). It ends with the
    /// stream, an error, a lack of buffers, or a cancellation
    /// ([`Completion::more`](crate::ring::Completion::more)). Submits it together with all queued
    /// operations.
    ///
    /// # Errors
    /// As [`Reactor::push`]. Without [`Builder::buffers`](super::Builder::buffers) the operation
    /// completes with `ENOBUFS`.
    pub fn recv_multi(&mut self, socket: &impl AsFd, token: u64) -> io::Result<()> {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let receive = opcode::RecvMulti::new(fd, GROUP).build();
        // SAFETY: the memory is that of the registered buffers.
        unsafe { self.queue(receive.user_data(RECEIVE | check(token)?))? };
        self.submit_all()
    }

    /// Submits until the queue is empty. The operations name descriptors by number, which the
    /// kernel must resolve while the descriptor is borrowed: later the number may belong to another
    /// file.
    fn submit_all(&mut self) -> io::Result<()> {
        loop {
            // An error concerns the ring itself, which then cannot submit anything later either.
            self.submit()?;
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            // The kernel has no memory for it now.
            std::thread::yield_now();
        }
    }

    /// Sends all of `bytes`, unless the socket fails (`MSG_WAITALL`); raises no signal for a closed
    /// socket (`MSG_NOSIGNAL`).
    ///
    /// # Errors
    /// As [`Reactor::push`]. `InvalidInput` for 2 GiB and more, which no single operation sends.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the operation has completed. The socket stays open
    /// until it was submitted.
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

    /// Sends as many bytes as the socket accepts without waiting.
    ///
    /// The operation ends when it is submitted ([`Reactor::all_submitted`]); from then on the
    /// memory may be reused. If all bytes are sent, there is no completion. Otherwise the
    /// completion has the number of bytes sent, or `EAGAIN` if that is none. So a reactor that
    /// sends and then waits makes one system call for both. Buffers may have up to 1 GiB: of a
    /// larger one the kernel may send a part and report no error.
    ///
    /// # Errors
    /// As [`Reactor::send`].
    ///
    /// # Safety
    /// The bytes stay valid and unchanged, and the socket stays open, until the operation was
    /// submitted.
    pub unsafe fn try_send(
        &mut self,
        socket: &impl AsFd,
        bytes: *const [u8],
        token: u64,
    ) -> io::Result<()> {
        // Never deferred by the kernel; a short send counts as a failure, which has a completion.
        let send =
            sending(socket, bytes, libc::MSG_DONTWAIT)?.build().flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: by this function's contract.
        unsafe { self.queue(send.user_data(check(token)?)) }
    }

    /// Cancels the operations with this token, of every kind. They complete with `ECANCELED`, or
    /// with their own outcome if that came first. [`Reactor::cancel_recv`] and
    /// [`Reactor::cancel_accept`] are cheaper where the kind is known.
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn cancel(&mut self, token: u64) -> io::Result<()> {
        [0, ACCEPT, RECEIVE].into_iter().try_for_each(|kind| self.cancel_kind(kind, token))
    }

    /// Cancels the receive of [`Reactor::recv_multi`] with this token, and nothing else. As
    /// [`Reactor::cancel`].
    ///
    /// # Errors
    /// As [`Reactor::push`].
    pub fn cancel_recv(&mut self, token: u64) -> io::Result<()> {
        self.cancel_kind(RECEIVE, token)
    }

    /// Cancels the accept of [`Reactor::accept_multi`] with this token, and nothing else. As
    /// [`Reactor::cancel`].
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

/// A send of all bytes or a failure, without a signal for a closed socket.
fn sending(socket: &impl AsFd, bytes: *const [u8], flags: i32) -> io::Result<opcode::Send> {
    let fd = Fd(socket.as_fd().as_raw_fd());
    let send = opcode::Send::new(fd, bytes.cast(), sendable(bytes.len())?);
    Ok(send.flags(flags | libc::MSG_WAITALL | libc::MSG_NOSIGNAL))
}

/// The length, if one operation can send it: the kernel's count is signed.
fn sendable(len: usize) -> io::Result<u32> {
    i32::try_from(len).map(i32::cast_unsigned).map_err(|_| {
        let what = format!("{len} bytes: at most {} can be sent at once", i32::MAX);
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}

/// Checks the range of a token.
fn check(token: u64) -> io::Result<u64> {
    if token > TOKEN_MAX {
        let what = format!("token {token}: at most {TOKEN_MAX} is allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(token)
}
