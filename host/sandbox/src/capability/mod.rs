//! What a guest can import: each capability has its state, its limits and its host functions in one file or folder.
//!
//! `state.rs` composes the states, and `linker.rs` the functions. Capabilities share the grants, limits and refusals of
//! their call in `shared`, and HTTP and sockets their reach in `network`.

pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod files;
pub(crate) mod http;
pub(crate) mod keyvalue;
pub(crate) mod logs;
pub(crate) mod network;
pub(crate) mod outbox;
pub(crate) mod program_input;
pub(crate) mod random;
pub(crate) mod run_info;
pub(crate) mod shared;
pub(crate) mod sockets;
pub(crate) mod stdio;
