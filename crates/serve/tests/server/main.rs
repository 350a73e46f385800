//! The whole server, through sockets: each test for each way to set it up.

mod bad_input;
mod client;
mod commands;
mod ending;
mod library;
mod limits;
mod order;
mod peers;
