//! A proxy on the loopback interface that cuts its connections on demand.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::UserError;

pub(super) struct Proxy {
    port: u16,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    pub(super) fn to(target: u16) -> Result<Proxy, UserError> {
        let fail = |error: std::io::Error| UserError(format!("proxy: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let kept = streams.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // While the server is down, its clients are turned away.
                let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let copies = [client.try_clone(), server.try_clone()];
                kept.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(copies.into_iter().flatten());
                if let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) {
                    copy(from, to);
                    copy(server, client);
                }
            }
        });
        Ok(Proxy { port, streams })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections; bytes on their way are lost.
    pub(super) fn cut(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Fails only if the connection has ended.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}
