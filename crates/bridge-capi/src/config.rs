//! `struct uw_bridge_config`: a member that is 0 or NULL leaves its setting at the default.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::{MaybeUninit, offset_of};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use uwork_bridge::{Config, Results, Server};
use uwork_capi::error::{Written, fail, misuse};

use crate::error::failed;
use crate::given::{array, text};

/// The server without a configured one.
const SERVER: &str = "redis://127.0.0.1:6379";

/// `struct uw_bridge_config`.
#[repr(C)]
pub struct UwBridgeConfig {
    /// The size of the structure as the caller was compiled with it.
    pub size: usize,
    /// The addresses of the servers.
    pub servers: *const *const c_char,
    /// Their number.
    pub server_count: usize,
    /// The streams, by falling priority.
    pub streams: *const *const c_char,
    /// Their number.
    pub stream_count: usize,
    /// The number of shards of each stream.
    pub shards: c_uint,
    /// How many jobs run at once.
    pub max_active: c_uint,
    /// The consumer group.
    pub group: *const c_char,
    /// A name for people.
    pub name: *const c_char,
    /// The certificate of the authority, for `rediss://`.
    pub ca_file: *const c_char,
    /// The client's certificate.
    pub cert_file: *const c_char,
    /// Its key.
    pub key_file: *const c_char,
    /// The time without a sign of life after which other consumers take over jobs.
    pub heartbeat_ns: u64,
    /// The time after which an attempt counts as failed.
    pub limit_ns: u64,
    /// The delay before the second attempt.
    pub retry_first_ns: u64,
    /// The longest delay before an attempt.
    pub retry_max_ns: u64,
    /// How long a result stays in its key.
    pub result_key_ns: u64,
    /// About how many results their stream keeps.
    pub result_stream_max: u64,
    /// About how many dead letters are kept.
    pub dead_max: u64,
    /// The memory for payloads that are held.
    pub payload_bytes_max: usize,
    /// The number of attempts after which a job becomes a dead letter.
    pub attempts_max: c_uint,
    /// Entries stay in the stream when they are done.
    pub keep: bool,
    /// A server that forgets jobs is refused.
    pub strict: bool,
    /// A producer's time in which a second job of an id is not added.
    pub window_ns: u64,
    /// The factor of all time limits of exchanges with a server.
    pub patience: c_uint,
}

/// The size of the structure of version 0.2, which ends before `patience`.
const FIRST_SIZE: usize = offset_of!(UwBridgeConfig, patience);

/// The configuration of the caller, whose structure may be an earlier one: members that it lacks are 0.
///
/// # Safety
/// `config` is NULL or points to a configuration as `uwork-bridge.h` describes it.
pub(crate) unsafe fn checked(config: *const UwBridgeConfig) -> Result<UwBridgeConfig, c_int> {
    if config.is_null() {
        return Err(misuse(libc::EINVAL, "the configuration is NULL"));
    }
    // SAFETY: by the caller.
    let size = unsafe { (&raw const (*config).size).read() };
    let known = size_of::<UwBridgeConfig>();
    if ![FIRST_SIZE, known].contains(&size) {
        let text = format!(
            "the configuration's size is {size} bytes and not {known}; begin with \
             UW_BRIDGE_CONFIG_INIT"
        );
        return Err(fail(libc::EINVAL, text));
    }
    let mut given = MaybeUninit::<UwBridgeConfig>::zeroed();
    // SAFETY: the caller's structure has this size, which is not larger than that of the copy.
    unsafe { ptr::copy_nonoverlapping(config.cast::<u8>(), given.as_mut_ptr().cast(), size) };
    if size == FIRST_SIZE {
        // In that version these bytes were padding, which no program writes.
        // SAFETY: within the copy.
        unsafe { (&raw mut (*given.as_mut_ptr()).strict).write(false) };
    }
    // SAFETY: pointers, numbers and truth values, all of them written or zero.
    Ok(unsafe { given.assume_init() })
}

impl UwBridgeConfig {
    /// # Safety
    /// As for [`checked`].
    pub(crate) unsafe fn servers(&self) -> Result<Vec<Server>, c_int> {
        // SAFETY: by the caller.
        let mut urls = unsafe { texts("servers", self.servers, self.server_count) }?;
        if urls.is_empty() {
            urls.push(SERVER.to_owned());
        }
        // SAFETY: by the caller.
        let (authority, certificate, key) = unsafe {
            (
                text("ca_file", self.ca_file)?,
                text("cert_file", self.cert_file)?,
                text("key_file", self.key_file)?,
            )
        };
        let server = |url: &String| {
            Server::new(url)?.patience(self.patience).certificate_files(
                authority.as_deref().map(Path::new),
                certificate.as_deref().map(Path::new),
                key.as_deref().map(Path::new),
            )
        };
        urls.iter().map(|url| server(url).map_err(|error| failed(&error))).collect()
    }

    /// # Safety
    /// As for [`checked`].
    pub(crate) unsafe fn streams(&self) -> Result<Vec<String>, c_int> {
        // SAFETY: by the caller.
        let streams = unsafe { texts("streams", self.streams, self.stream_count) }?;
        if streams.is_empty() {
            return Err(fail(libc::EINVAL, "no stream is given: at least 1 is needed"));
        }
        Ok(streams)
    }

    pub(crate) fn shards(&self) -> u32 {
        self.shards.max(1)
    }

    /// # Safety
    /// As for [`checked`].
    pub(crate) unsafe fn settings(&self) -> Result<Config, c_int> {
        // SAFETY: by the caller.
        let (mut servers, streams) = unsafe { (self.servers()?, self.streams()?) };
        let mut config = Config::new(servers.remove(0), streams[0].clone());
        config.servers.append(&mut servers);
        config.streams = streams;
        config.shards = self.shards();
        // SAFETY: by the caller.
        let (group, name) = unsafe { (text("group", self.group)?, text("name", self.name)?) };
        config.group = group.unwrap_or(config.group);
        config.name = name.unwrap_or(config.name);
        // The bridge would report another number.
        if c_int::try_from(self.max_active).is_err() {
            let given = Written(self.max_active);
            let text = format!("max_active {given}: allowed are 1 to 2048");
            return Err(fail(libc::EINVAL, text));
        }
        set(&mut config.max_active, self.max_active);
        set(&mut config.attempts_max, self.attempts_max);
        set(&mut config.payload_bytes_max, self.payload_bytes_max);
        set_time(&mut config.heartbeat, self.heartbeat_ns);
        set_time(&mut config.backoff.first, self.retry_first_ns);
        set_time(&mut config.backoff.max, self.retry_max_ns);
        config.limit = (self.limit_ns != 0).then(|| Duration::from_nanos(self.limit_ns));
        config.results = match (self.result_key_ns, self.result_stream_max) {
            (0, 0) => Results::Dropped,
            (life_ns, 0) => Results::Key(Duration::from_nanos(life_ns)),
            (0, max) => Results::Stream(max),
            _ => {
                let text = "result_key_ns and result_stream_max are given; allowed is 1 of them";
                return Err(fail(libc::EINVAL, text));
            }
        };
        config.keep = self.keep;
        config.strict = self.strict;
        config.dead_max = self.dead_max;
        Ok(config)
    }
}

fn set<T: Default + PartialEq>(setting: &mut T, given: T) {
    if given != T::default() {
        *setting = given;
    }
}

fn set_time(setting: &mut Duration, given_ns: u64) {
    set(setting, Duration::from_nanos(given_ns));
}

/// # Safety
/// As for [`array`] and [`text`].
unsafe fn texts(
    what: &str,
    first: *const *const c_char,
    count: usize,
) -> Result<Vec<String>, c_int> {
    // SAFETY: by the caller.
    let pointers = unsafe { array(what, first, count) }?;
    let one = |&pointer: &*const c_char| {
        // SAFETY: by the caller.
        unsafe { text(what, pointer) }?
            .ok_or_else(|| misuse(libc::EINVAL, format!("a text of {what} is NULL")))
    };
    pointers.iter().map(one).collect()
}
