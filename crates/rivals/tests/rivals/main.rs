//! The other thread pools and allocators do what is measured of them.

mod counts;
mod jobs;
mod percpu;
mod posts;
