//! Names of functions, from the program's debug information or symbol table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uwork_engine::host::Frame;

use crate::Event;
use crate::descriptor::own_table;

/// Held while names are looked up. The resolver has a lock that no fork handler knows; a child
/// forked meanwhile would find it held for ever.
static RESOLVES: Mutex<()> = Mutex::new(());

/// See [`hold`].
pub(crate) type Held = MutexGuard<'static, ()>;

/// No thread looks names up while this is held. Takes up to some hundred milliseconds if a lookup
/// is in progress. Call it without any of the engine's locks held.
pub(crate) fn hold() -> Held {
    locked(&RESOLVES)
}

/// A call of the resolver.
type Call = Box<dyn FnOnce() + Send>;

/// A call that the resolver's thread is to make.
struct Post {
    /// `None`, with the event set: the thread ends.
    call: Mutex<Option<Call>>,
    is_due: Event,
    is_done: Event,
}

impl Post {
    /// Makes each call.
    fn serve(&self) {
        loop {
            self.is_due.wait(None);
            let Some(call) = locked(&self.call).take() else { return };
            // The message of a panic was printed.
            catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(std::mem::forget);
            set(&self.is_done);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(event: &Event) {
    // SAFETY: it is live.
    unsafe { Event::set(event) };
}

/// Calls the resolver, which opens and closes files by the standard library: on a thread with a table of
/// descriptors of its own, of which the program closes none, and which closes none of the program's. It
/// is empty, so that no file of the program's stays open by it. The thread is made by the first call, and
/// ends with this value.
///
/// Neither thread uses thread-local data with a destructor meanwhile, as channels and threads of the
/// standard library do. For the first such data a thread takes a lock of the dynamic linker's, which
/// `dlopen` holds while constructors run. A constructor that forks waits for [`RESOLVES`].
pub(super) struct Apart {
    post: Option<Arc<Post>>,
}

impl Drop for Apart {
    fn drop(&mut self) {
        self.post.iter().for_each(|post| set(&post.is_due));
    }
}

impl Apart {
    pub(super) fn new() -> Apart {
        Apart { post: None }
    }

    /// What `resolve` returns there, or on the calling thread if the system refuses one more.
    fn run<R: Send + 'static>(&mut self, resolve: impl Fn() -> R + Clone + Send + 'static) -> R {
        let _held = hold();
        let Some(post) = self.post() else { return resolve() };
        let result = Arc::new(Mutex::new(None));
        let (there, stores) = (resolve.clone(), result.clone());
        let call = move || {
            let resolved = there();
            *locked(&stores) = Some(resolved);
        };
        *locked(&post.call) = Some(Box::new(call));
        set(&post.is_due);
        post.is_done.wait(None);
        let resolved = locked(&result).take();
        resolved.unwrap_or_else(resolve)
    }

    /// The place for a call, whose thread exists.
    fn post(&mut self) -> Option<&Post> {
        if self.post.is_none() {
            let post = Post { call: Mutex::new(None), is_due: Event::new(), is_done: Event::new() };
            let post = Arc::new(post);
            let serves = post.clone();
            let main = move || {
                own_table();
                serves.serve();
            };
            self.post = crate::thread::start_plain("uw/names", main).ok().map(|()| post);
        }
        self.post.as_deref()
    }

    /// See [`name`](super::name).
    pub(super) fn name(&mut self, address: usize) -> Option<String> {
        self.run(move || {
            let mut name = None;
            // The resolver expects a return address and looks up the byte before it.
            let after = std::ptr::without_provenance_mut(address.wrapping_add(1));
            backtrace::resolve(after, |symbol| {
                // The outermost function comes last, after functions that were inlined at its first
                // instruction.
                name = symbol.name().map(|name| format!("{name:#}")).or(name.take());
            });
            name
        })
    }
}

/// A position in a function, as found on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The instruction there is the next to run.
    At(usize),
    /// The instruction before it is a call in progress.
    ReturnTo(usize),
}

impl Place {
    /// A frame with the address alone.
    pub(crate) fn unnamed(self) -> Frame {
        let (Place::At(address) | Place::ReturnTo(address)) = self;
        Frame { address, symbol: None, location: None }
    }
}

/// The path of a source file, without the prefix that shows where the standard library was built.
fn shortened(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    rest.map_or(file, |(_, path)| path)
}

/// The functions at these positions, the innermost of each first: several if some were inlined, a
/// frame without a name if nothing is known. As [`name`](super::name).
pub(crate) fn frames(places: Vec<Place>) -> Vec<Frame> {
    Apart::new().run(move || places.iter().copied().flat_map(frames_at).collect())
}

fn frames_at(place: Place) -> Vec<Frame> {
    let (address, resolved) = match place {
        Place::At(address) => (address, address.wrapping_add(1)),
        Place::ReturnTo(address) => (address, address),
    };
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(resolved), |symbol| {
        let file = symbol.filename().map(|file| file.display().to_string());
        let location =
            file.zip(symbol.lineno()).map(|(file, line)| format!("{}:{line}", shortened(&file)));
        let symbol = symbol.name().map(|name| format!("{name:#}"));
        frames.push(Frame { address, symbol, location });
    });
    if frames.is_empty() {
        frames.push(place.unnamed());
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: a thread for each function of a dump.
    #[test]
    fn all_lookups_of_a_resolver_are_on_one_thread_and_not_the_callers() {
        let mut apart = Apart::new();
        let threads: Vec<_> = (0..3).map(|_| apart.run(crate::thread::id)).collect();
        assert_eq!(threads, [threads[0]; 3]);
        assert_ne!(threads[0], crate::thread::id());
    }
}
