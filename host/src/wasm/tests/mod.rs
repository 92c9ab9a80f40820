//! The whole sandbox, driven with guests written for the purpose.

mod capabilities;
mod forms;
mod guests;
mod hostile;
mod limits;
mod malformed;
mod measure_tmp;
mod outcomes;
mod packages;
