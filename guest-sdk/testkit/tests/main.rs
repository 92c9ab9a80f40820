//! The kit on real packages. One binary, because each one links the sandbox.

mod conformance;
mod first_party;
mod limits;
