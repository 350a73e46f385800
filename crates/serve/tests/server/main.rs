//! The whole server, through sockets: each test for each way to set it up. And its parser and its keyspace by themselves.

mod bad_input;
mod client;
mod commands;
mod digest;
mod ending;
mod keyspace;
mod library;
mod limits;
mod order;
mod parser;
mod peers;
mod redis;
mod refused;
