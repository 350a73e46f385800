//! Dead letters.

use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::time::Duration;

use uwork_bridge::{DeadLetter, DeadLetters, Settled};
use uwork_capi::error::{fail, guard, guarded, misuse};
use uwork_capi::memory::{can_create, can_hold};
use uwork_capi::set_errno;

use crate::config::{UwBridgeConfig, checked};
use crate::error::{failed, leaked};
use crate::given::text;

/// Letters of one question to a server.
const PAGE: usize = 64;
/// Bytes of a value in a list; `uwork-bridge.h` says it.
const LISTED_MAX: usize = 4_096;
/// The memory of a page: a letter has six values that are cut.
const PAGE_BYTES: usize = PAGE * LISTED_MAX * 6;

/// The dead letters of the streams of a configuration.
pub struct UwBridgeDead {
    /// Of each stream or shard.
    all: Vec<DeadLetters>,
    /// Where the next page begins: a stream or shard, and the last letter that was read of it.
    at: (usize, Option<String>),
    page: VecDeque<DeadLetter>,
    /// The letter that was returned last.
    lent: Option<Lent>,
}

/// `struct uw_bridge_letter`.
#[repr(C)]
pub struct UwBridgeLetter {
    /// The stream, or the shard.
    pub stream: *const c_char,
    /// The letter's number.
    pub number: *const c_char,
    /// The number of the first entry, or NULL.
    pub entry: *const c_char,
    /// The id, or NULL.
    pub id: *const c_char,
    /// The name of the handler, or NULL.
    pub handler: *const c_char,
    /// The key that chose the shard, or NULL.
    pub key: *const c_char,
    /// The group that has failed, or NULL.
    pub group: *const c_char,
    /// The last error.
    pub error: *const c_char,
    /// The payload, or its first part.
    pub payload: *const c_void,
    /// The bytes at `payload`.
    pub length: usize,
    /// The bytes of the whole payload.
    pub payload_bytes: u64,
    /// The time since the job became a dead letter.
    pub age_ns: u64,
    /// The attempts that have failed.
    pub attempts: c_uint,
    /// The entry in quarantine, or NULL.
    pub quarantine: *const c_char,
}

/// `struct uw_bridge_settled`.
#[repr(C)]
pub struct UwBridgeSettled {
    /// Letters that were replayed or dropped.
    pub settled: u64,
    /// Letters that were left: they are no jobs.
    pub left: u64,
}

/// A letter for C, with what its pointers lead to.
struct Lent {
    letter: UwBridgeLetter,
    _texts: [Option<CString>; 9],
    _payload: Vec<u8>,
}

impl Lent {
    fn new(stream: &str, of: DeadLetter) -> Lent {
        // A text for C ends at its first zero byte.
        let text = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).ok();
        let some = |value: &Option<String>| value.as_deref().and_then(text);
        let texts = [
            text(stream),
            text(&of.number),
            some(&of.entry),
            some(&of.id),
            some(&of.handler),
            some(&of.key),
            some(&of.group),
            text(&of.error),
            some(&of.quarantine),
        ];
        let [stream, number, entry, id, handler, key, group, error, quarantine] =
            texts.each_ref().map(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr()));
        let letter = UwBridgeLetter {
            stream,
            number,
            entry,
            id,
            handler,
            key,
            group,
            error,
            payload: of.payload.as_ptr().cast(),
            length: of.payload.len(),
            payload_bytes: of.payload_bytes,
            age_ns: u64::try_from(of.age.as_nanos()).unwrap_or(u64::MAX),
            attempts: of.attempts,
            quarantine,
        };
        Lent { letter, _texts: texts, _payload: of.payload }
    }
}

impl UwBridgeDead {
    fn lend(&mut self, nth: usize, letter: DeadLetter) -> *const UwBridgeLetter {
        let lent = Lent::new(self.all[nth].stream(), letter);
        &raw const self.lent.insert(lent).letter
    }

    fn next(&mut self) -> Result<*const UwBridgeLetter, c_int> {
        while self.at.0 < self.all.len() {
            let (nth, after) = (self.at.0, self.at.1.as_deref());
            if self.page.is_empty() {
                can_hold(PAGE_BYTES)?;
                let page = self.all[nth].page(after, PAGE, LISTED_MAX);
                self.page = page.map_err(|error| failed(&error))?.into();
            }
            match self.page.pop_front() {
                Some(letter) => {
                    self.at.1 = Some(letter.number.clone());
                    return Ok(self.lend(nth, letter));
                }
                None => self.at = (nth + 1, None),
            }
        }
        self.at = (0, None);
        Ok(ptr::null())
    }

    /// The stream or shard of a letter, its number, and the bytes of its payload.
    fn find(&mut self, name: &str) -> Result<(usize, String, u64), c_int> {
        let (stream, number) = match name.rsplit_once('/') {
            Some((stream, number)) => (Some(stream), number),
            None => (None, name),
        };
        let mut found = Vec::new();
        for (nth, letters) in self.all.iter_mut().enumerate() {
            if stream.is_none_or(|stream| stream == letters.stream()) {
                let bytes = letters.payload_bytes(number).map_err(|error| failed(&error))?;
                found.extend(bytes.map(|bytes| (nth, number.to_owned(), bytes)));
            }
        }
        match found.len() {
            0 => Err(fail(libc::ENOENT, format!("there is no dead letter {name}"))),
            1 => Ok(found.remove(0)),
            _ => Err(fail(
                libc::EINVAL,
                format!("{name} is the number of several letters: give STREAM/NUMBER"),
            )),
        }
    }

    fn get(&mut self, name: &str) -> Result<*const UwBridgeLetter, c_int> {
        let (nth, number, bytes) = self.find(name)?;
        // The reply, and the copy for the caller.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        can_hold(bytes.saturating_mul(3).saturating_add(PAGE_BYTES))?;
        match self.all[nth].get(&number).map_err(|error| failed(&error))? {
            Some(letter) => Ok(self.lend(nth, letter)),
            None => Err(fail(libc::ENOENT, format!("there is no dead letter {name}"))),
        }
    }

    /// Settles a letter, or all. Adds to `sum` what is settled, also before an error.
    fn settle(
        &mut self,
        name: Option<&str>,
        is_replay: bool,
        sum: &mut UwBridgeSettled,
    ) -> Result<(), c_int> {
        let mut add = |part: &Settled| {
            sum.settled += part.settled;
            sum.left += part.left;
        };
        let Some(name) = name else {
            for letters in &mut self.all {
                let part = match is_replay {
                    true => letters.replay_all(),
                    false => letters.remove_all(),
                };
                match part {
                    Ok(part) => add(&part),
                    Err(error) => {
                        add(&error.settled());
                        return Err(failed(&error));
                    }
                }
            }
            return Ok(());
        };
        let (nth, number, _) = self.find(name)?;
        let letters = &mut self.all[nth];
        let settled = match is_replay {
            true => letters.replay(&number),
            false => letters.remove(&number),
        };
        match settled {
            Ok(true) => {
                sum.settled += 1;
                Ok(())
            }
            Ok(false) => Err(fail(libc::ENOENT, format!("{name} is no job, or is gone meanwhile"))),
            Err(error) => {
                add(&error.settled());
                Err(failed(&error))
            }
        }
    }
}

/// Creates a handle to the dead letters of all streams of a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_create(config: *const UwBridgeConfig) -> *mut UwBridgeDead {
    let body = || {
        can_create()?;
        // SAFETY: by uwork-bridge.h.
        let (config, servers, streams) = unsafe {
            let config = checked(config)?;
            let (servers, streams) = (config.servers()?, config.streams()?);
            (config, servers, streams)
        };
        let of_stream = |stream: &String| DeadLetters::of_shards(&servers, stream, config.shards());
        let letters = |letters: DeadLetters| match config.window_ns {
            0 => letters,
            window_ns => letters.window(Duration::from_nanos(window_ns)),
        };
        let all = streams.iter().flat_map(of_stream).map(letters).collect();
        Ok(UwBridgeDead { all, at: (0, None), page: VecDeque::new(), lent: None })
    };
    leaked(guarded(body).and_then(|made| made))
}

/// Destroys such a handle. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_destroy(dead: *mut UwBridgeDead) {
    if !dead.is_null() {
        // SAFETY: from `uw_bridge_dead_create`, and destroyed once (uwork-bridge.h).
        let dead = unsafe { Box::from_raw(dead) };
        let _ = guarded(|| drop(dead));
    }
}

/// A letter for C, or NULL with `errno`.
///
/// # Safety
/// `dead` is NULL, or from `uw_bridge_dead_create`, not destroyed, and used by one thread at a time.
unsafe fn lent(
    dead: *mut UwBridgeDead,
    body: impl FnOnce(&mut UwBridgeDead) -> Result<*const UwBridgeLetter, c_int>,
) -> *const UwBridgeLetter {
    // SAFETY: by the caller.
    let found = match unsafe { dead.as_mut() } {
        Some(dead) => guarded(|| body(dead)).and_then(|found| found),
        None => Err(misuse(libc::EINVAL, "the dead letters are NULL")),
    };
    // NULL without an error is the end of a list.
    set_errno(found.as_ref().map_or_else(|code| -code, |_| 0));
    found.unwrap_or(ptr::null())
}

/// The next letter.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_next(dead: *mut UwBridgeDead) -> *const UwBridgeLetter {
    // SAFETY: by uwork-bridge.h.
    unsafe { lent(dead, UwBridgeDead::next) }
}

/// The letter with a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_get(
    dead: *mut UwBridgeDead,
    number: *const c_char,
) -> *const UwBridgeLetter {
    let body = |dead: &mut UwBridgeDead| {
        // SAFETY: by uwork-bridge.h.
        let number = unsafe { text("the number of a letter", number) }?;
        let number =
            number.ok_or_else(|| misuse(libc::EINVAL, "the number of a letter is NULL"))?;
        dead.get(&number)
    };
    // SAFETY: by uwork-bridge.h.
    unsafe { lent(dead, body) }
}

/// # Safety
/// As for the two functions that call it.
unsafe fn settle(
    dead: *mut UwBridgeDead,
    number: *const c_char,
    counts: *mut UwBridgeSettled,
    is_replay: bool,
) -> c_int {
    // SAFETY: by the caller.
    let Some(dead) = (unsafe { dead.as_mut() }) else {
        return misuse(libc::EINVAL, "the dead letters are NULL");
    };
    let mut sum = UwBridgeSettled { settled: 0, left: 0 };
    let mut body = || {
        // SAFETY: by the caller.
        let number = unsafe { text("the number of a letter", number) }?;
        dead.settle(number.as_deref(), is_replay, &mut sum)
    };
    let code = guard(|| body().err().unwrap_or(0));
    // SAFETY: NULL or a valid place, by the caller.
    if let Some(counts) = unsafe { counts.as_mut() } {
        *counts = sum;
    }
    code
}

/// Moves a letter, or all, back to the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_replay(
    dead: *mut UwBridgeDead,
    number: *const c_char,
    counts: *mut UwBridgeSettled,
) -> c_int {
    // SAFETY: by uwork-bridge.h.
    unsafe { settle(dead, number, counts, true) }
}

/// Removes a letter, or all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_dead_drop(
    dead: *mut UwBridgeDead,
    number: *const c_char,
    counts: *mut UwBridgeSettled,
) -> c_int {
    // SAFETY: by uwork-bridge.h.
    unsafe { settle(dead, number, counts, false) }
}
