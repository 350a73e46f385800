//! A web service on axum and tokio: `POST /words` counts the words of a text. tokio's threads serve the
//! connections, uwork's workers count, and the handler awaits the result.
//!
//! - The text is counted in pieces, so that a long one uses all CPUs and delays no short one for long.
//! - While too many texts wait, a request is answered by 503 at once.
//! - Ctrl+C ends the service after all answers.
//!
//! ```text
//! cargo run --manifest-path examples/axum/Cargo.toml -- 127.0.0.1:8080
//! curl --data-binary @README.md http://127.0.0.1:8080/words
//! ```

use std::future::Future;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;
use uwork::{BoundedQueue, Queue};

/// Texts that may wait for a worker.
const BACKLOG: usize = 1024;
/// The length of a piece in bytes, some 0.1 ms of work.
const PIECE: usize = 64 * 1024;

fn count(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The text in pieces that end at white space.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while rest.len() > PIECE {
        let long = rest.char_indices().find(|&(at, c)| at >= PIECE && c.is_whitespace());
        let (piece, more) = rest.split_at(long.map_or(rest.len(), |(at, _)| at));
        pieces.push(piece);
        rest = more;
    }
    pieces.push(rest);
    pieces
}

/// Counts on the workers, the calling one among them.
fn count_in_pieces(queue: &Queue, text: &str) -> usize {
    uwork::scope(queue, |scope| {
        let handles: Vec<_> =
            pieces(text).into_iter().map(|piece| scope.spawn(move || count(piece))).collect();
        handles.into_iter().map(|handle| handle.join().expect("`count` does not panic")).sum()
    })
}

async fn words(
    State(backlog): State<Arc<BoundedQueue>>,
    text: String,
) -> Result<String, (StatusCode, &'static str)> {
    let queue = backlog.queue().clone();
    // `try_spawn` never waits, so it does not keep tokio's thread from other connections.
    let counted = backlog
        .try_spawn(move || count_in_pieces(&queue, &text))
        .map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "too many texts wait\n"))?;
    let words = counted.await;
    let words = words.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "not counted\n"))?;
    Ok(format!("{words}\n"))
}

/// Serves until `ends`, then answers what has come and waits until the queue is empty.
async fn serve(
    listener: TcpListener,
    backlog: BoundedQueue,
    ends: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let queue = backlog.queue().clone();
    let app = Router::new()
        .route("/words", post(words))
        .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
        .with_state(Arc::new(backlog));
    axum::serve(listener, app).with_graceful_shutdown(ends).await?;
    // A drain waits, so it must not run on tokio's thread.
    let drained = uwork::unblock(move || queue.drain()).await;
    drained.expect("a drain does not panic").map_err(io::Error::other)
}

async fn run(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/words", listener.local_addr()?);
    let queue = Queue::builder("words").build().map_err(io::Error::other)?;
    let backlog = BoundedQueue::new(&queue, BACKLOG).map_err(io::Error::other)?;
    serve(listener, backlog, async {
        let _ = tokio::signal::ctrl_c().await;
    })
    .await
}

#[tokio::main]
async fn main() -> ExitCode {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    match run(&address).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uwork-example-axum: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::thread;

    use super::*;

    /// The answer to a request, head and body.
    fn post(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "POST /words HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length";
        write!(stream, "{head}: {}\r\n\r\n{text}", text.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn pieces_are_the_text() {
        for text in
            ["", "a b", &"word ".repeat(100_000), &"x".repeat(3 * PIECE), &"ä ".repeat(PIECE)]
        {
            let pieces = pieces(text);
            assert_eq!(pieces.concat(), *text);
            assert_eq!(pieces.iter().map(|piece| count(piece)).sum::<usize>(), count(text));
        }
    }

    // Futures on tokio, items on uwork, a refusal while the backlog is full, and an end after all answers.
    #[test]
    fn requests_are_counted_refused_and_drained() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let queue = Queue::builder("test").max_active(1).build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = tokio::sync::oneshot::channel::<()>();
        let backlog = BoundedQueue::new(&queue, 8).unwrap();
        let server = runtime.spawn(serve(listener, backlog, async {
            let _ = ends.await;
        }));
        assert!(post(address, "three small words").ends_with("\r\n\r\n3\n"));
        let long = post(address, &"word ".repeat(1_000_000));
        assert!(long.starts_with("HTTP/1.1 200 ") && long.ends_with("\r\n\r\n1000000\n"), "{long}");

        queue.pause().unwrap();
        let clients = (0..9).map(|_| thread::spawn(move || post(address, "one two")));
        let clients: Vec<_> = clients.collect();
        while !clients.iter().any(|client| client.is_finished()) {
            thread::yield_now();
        }
        queue.resume().unwrap();
        end.send(()).unwrap();
        let answers: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let with = |start| answers.iter().filter(|answer| answer.starts_with(start)).count();
        assert_eq!((with("HTTP/1.1 200 "), with("HTTP/1.1 503 ")), (8, 1));
        runtime.block_on(server).unwrap().unwrap();
        assert!(queue.spawn(|| ()).join().is_ok(), "drained, and open again");
    }
}
