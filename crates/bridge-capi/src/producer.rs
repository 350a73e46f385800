//! Producers.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use uwork_bridge::{Producer, Push, Pushed};
use uwork_capi::error::{fail, guard, guarded, misuse};
use uwork_capi::memory::{can_create, can_hold};

use crate::config::{UwBridgeConfig, checked};
use crate::error::{failed, leaked};
use crate::given::{array, bytes, text};

/// A producer.
pub struct UwBridgeProducer(Producer);

/// `struct uw_bridge_push`.
#[repr(C)]
pub struct UwBridgePush {
    /// The payload.
    pub payload: *const c_void,
    /// Its length.
    pub length: usize,
    /// The name of the handler, or NULL.
    pub handler: *const c_char,
    /// The id, or NULL.
    pub id: *const c_char,
    /// The key that chooses the shard, or NULL.
    pub key: *const c_char,
    /// The delay before the job becomes ready.
    pub delay_ns: u64,
}

/// The memory of a job beside its payload: its texts are short.
const FOR_EACH_JOB: usize = 4 << 10;

/// `enum uw_bridge_pushed`.
const ADDED: c_int = 0;
const DELAYED: c_int = 1;
const DUPLICATE: c_int = 2;

impl UwBridgePush {
    /// # Safety
    /// The members are as `uwork-bridge.h` describes them.
    unsafe fn read(&self) -> Result<Push, c_int> {
        // SAFETY: by the caller.
        let (payload, handler, id, key) = unsafe {
            (
                bytes("the payload", self.payload, self.length)?,
                text("the name of a handler", self.handler)?,
                text("the id", self.id)?,
                text("the key", self.key)?,
            )
        };
        let mut push = Push::new(payload).delay(Duration::from_nanos(self.delay_ns));
        if let Some(handler) = handler {
            push = push.handler(handler);
        }
        if let Some(id) = id {
            push = push.id(id);
        }
        if let Some(key) = key {
            push = push.key(key);
        }
        Ok(push)
    }
}

/// Creates a producer for the first stream of a configuration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_producer_create(
    config: *const UwBridgeConfig,
) -> *mut UwBridgeProducer {
    let body = || {
        can_create()?;
        // SAFETY: by uwork-bridge.h.
        let (config, servers, streams) = unsafe {
            let config = checked(config)?;
            let (servers, streams) = (config.servers()?, config.streams()?);
            (config, servers, streams)
        };
        let producer = Producer::new(servers, &streams[0], config.shards());
        let mut producer = producer.map_err(|error| failed(&error))?;
        if config.strict {
            let found = producer.look().map_err(|error| failed(&error))?;
            if !found.is_empty() {
                return Err(fail(libc::EPROTO, found.join("; ")));
            }
        }
        Ok(UwBridgeProducer(match config.window_ns {
            0 => producer,
            window_ns => producer.window(Duration::from_nanos(window_ns)),
        }))
    };
    leaked(guarded(body).and_then(|made| made))
}

/// Adds jobs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_push(
    producer: *mut UwBridgeProducer,
    first: *const UwBridgePush,
    count: usize,
    outcomes: *mut c_int,
) -> c_int {
    // SAFETY: NULL, or from `uw_bridge_producer_create`, not destroyed, and used by one thread at a
    // time (uwork-bridge.h).
    let Some(producer) = (unsafe { producer.as_mut() }) else {
        return misuse(libc::EINVAL, "the producer is NULL");
    };
    let mut body = || {
        // SAFETY: by uwork-bridge.h.
        let jobs = unsafe { array("the jobs", first, count) }?;
        // The payloads are copied, and then written into the buffer of an exchange.
        let payloads = jobs.iter().fold(0, |sum: usize, job| sum.saturating_add(job.length));
        can_hold(payloads.saturating_mul(3).saturating_add(count.saturating_mul(FOR_EACH_JOB)))?;
        // SAFETY: by uwork-bridge.h.
        let pushes = jobs.iter().map(|job| unsafe { job.read() }).collect::<Result<_, _>>()?;
        producer.0.push_all(pushes).map_err(|error| failed(&error))
    };
    guard(|| match body() {
        Ok(pushed) => {
            if !outcomes.is_null() {
                for (nth, pushed) in pushed.iter().enumerate() {
                    let outcome = match pushed {
                        Pushed::Added(_) => ADDED,
                        Pushed::Delayed => DELAYED,
                        Pushed::Duplicate => DUPLICATE,
                    };
                    // SAFETY: `outcomes` has a place for each job (uwork-bridge.h).
                    unsafe { outcomes.add(nth).write(outcome) };
                }
            }
            0
        }
        Err(code) => code,
    })
}

/// Destroys a producer. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_producer_destroy(producer: *mut UwBridgeProducer) {
    if !producer.is_null() {
        // SAFETY: from `uw_bridge_producer_create`, and destroyed once (uwork-bridge.h).
        let producer = unsafe { Box::from_raw(producer) };
        let _ = guarded(|| drop(producer));
    }
}
