//! The whole sandbox, driven with guests written for the purpose.

mod capabilities;
mod guests;
mod limits;
mod outcomes;
mod packages;
