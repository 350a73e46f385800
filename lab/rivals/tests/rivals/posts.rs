//! Every way to post runs each post once.

use uwork_rivals::posts::{Bare, Eventfd, Placement, Size, Tokio, Way, measure};

fn runs_each_post_once<W: Way>(way: fn(usize) -> W) {
    for (threads, tokens) in [(4, 8), (2, 1)] {
        let size = Size { threads, tokens, hops: 500, placement: Placement::Free };
        let posts = measure(way(threads), &size);
        assert_eq!(posts.posts, tokens as u64 * 500);
        assert!(posts.p50_ns <= posts.p99_ns);
    }
}

#[test]
fn bare() {
    runs_each_post_once(Bare::new);
}

#[test]
fn eventfd() {
    runs_each_post_once(Eventfd::new);
}

#[test]
fn tokio() {
    runs_each_post_once(Tokio::new);
}
