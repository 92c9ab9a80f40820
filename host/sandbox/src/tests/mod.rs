//! The whole sandbox, driven with guests written for the purpose.

mod capabilities;
mod contract;
mod forms;
pub(crate) mod guests;
mod hostile;
mod limits;
mod malformed;
mod outcomes;
mod packages;
mod sockets;
