//! A proxy on the loopback interface that cuts its connections on demand, in the middle of a reply. The
//! connection of a replica to its master is never cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::torture::time::now_us;
use crate::UserError;

/// What all connections of a proxy share.
#[derive(Default)]
struct Cuts {
    /// How many cuts were ordered, times 1024, and the share of the next reply that still arrives, in
    /// 1024ths.
    ordered: AtomicU64,
    /// The last order that has met a connection. Later ones of a server that was dead are due still.
    done: AtomicU64,
    /// When connections were cut, by the clock of the records.
    made_us: Mutex<Vec<u64>>,
}

impl Cuts {
    /// Decides on the replies of a connection that begins now.
    fn cutter(
        self: Arc<Cuts>,
        is_replica: Arc<AtomicBool>,
    ) -> impl Fn(&[u8]) -> Option<usize> + Send + 'static {
        let before = self.done.load(Ordering::Relaxed);
        move |bytes| {
            let ordered = self.ordered.load(Ordering::Relaxed);
            if ordered == before || is_replica.load(Ordering::Relaxed) {
                return None;
            }
            self.done.store(ordered, Ordering::Relaxed);
            self.made_us.lock().unwrap_or_else(PoisonError::into_inner).push(now_us());
            Some(bytes.len() * (ordered % 1024) as usize / 1024)
        }
    }
}

/// What a replica says to its master first.
const REPLICA: &[u8] = b"REPLCONF";

#[derive(Clone)]
pub(super) struct Proxy {
    port: u16,
    cuts: Arc<Cuts>,
}

impl Proxy {
    pub(super) fn to(target: u16) -> Result<Proxy, UserError> {
        let fail = |error: std::io::Error| UserError(format!("proxy: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let cuts: Arc<Cuts> = Arc::default();
        let shared = cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // While the server is down, its clients are turned away.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                if let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) {
                    let is_replica: Arc<AtomicBool> = Arc::default();
                    let cutter = shared.clone().cutter(is_replica.clone());
                    copy(from, to, move |bytes| {
                        if bytes.windows(REPLICA.len()).any(|word| word == REPLICA) {
                            is_replica.store(true, Ordering::Relaxed);
                        }
                        None
                    });
                    copy(server, client, cutter);
                }
            }
        });
        Ok(Proxy { port, cuts })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts each connection at its next reply, of which `part` in 1024 arrives, or the next one if there
    /// is none. The server has executed the commands.
    pub(super) fn cut(&self, part: u64) {
        let next = (self.cuts.ordered.load(Ordering::Relaxed) / 1024 + 1) * 1024;
        self.cuts.ordered.store(next + part % 1024, Ordering::Relaxed);
    }

    /// When connections were cut.
    pub(super) fn made_us(&self) -> Vec<u64> {
        self.cuts.made_us.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Copies bytes in one direction until one side ends, or a cut ends both: where `cuts` says how many bytes
/// of a piece still pass.
fn copy(
    mut from: TcpStream,
    mut to: TcpStream,
    cuts: impl Fn(&[u8]) -> Option<usize> + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let part = cuts(&bytes[..count]);
            if to.write_all(&bytes[..part.unwrap_or(count)]).is_err() || part.is_some() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
