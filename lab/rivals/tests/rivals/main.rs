//! The rival pools and allocators do the work that is measured.

mod counts;
mod jobs;
mod open;
mod percpu;
mod posts;
