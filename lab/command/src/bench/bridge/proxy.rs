//! A proxy on the loopback interface that cuts its connections on demand, in the middle of a reply.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::torture::time::now_us;
use crate::UserError;

/// What all connections of a proxy share.
#[derive(Default)]
struct Cuts {
    /// How many cuts were ordered, times 1024, and the share of the next reply that still arrives, in
    /// 1024ths.
    ordered: AtomicU64,
    /// When connections were cut, by the clock of the records.
    made_us: Mutex<Vec<u64>>,
}

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
                    copy(from, to, None);
                    copy(server, client, Some(shared.clone()));
                }
            }
        });
        Ok(Proxy { port, cuts })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts each connection at its next reply, of which `part` in 1024 arrives. The server has
    /// executed the commands.
    pub(super) fn cut(&self, part: u64) {
        let next = (self.cuts.ordered.load(Ordering::Relaxed) / 1024 + 1) * 1024;
        self.cuts.ordered.store(next + part % 1024, Ordering::Relaxed);
    }

    /// When connections were cut.
    pub(super) fn made_us(&self) -> Vec<u64> {
        self.cuts.made_us.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Copies bytes in one direction until one side ends, or a cut ends both.
fn copy(mut from: TcpStream, mut to: TcpStream, cuts: Option<Arc<Cuts>>) {
    let ordered =
        move || cuts.as_ref().map(|cuts| (cuts.ordered.load(Ordering::Relaxed), cuts.clone()));
    let before = ordered().map(|(order, _)| order);
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let is_cut = ordered().filter(|(order, _)| Some(*order) != before);
            let part =
                is_cut.as_ref().map_or(count, |(order, _)| count * (order % 1024) as usize / 1024);
            if to.write_all(&bytes[..part]).is_err() {
                break;
            }
            if let Some((_, cuts)) = is_cut {
                cuts.made_us.lock().unwrap_or_else(PoisonError::into_inner).push(now_us());
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
