//! From the bytes of a file to compiled code that can be called.
//!
//! A file is recognised (`recognise`), turned into a component if it is a core module (`adapt`), counted
//! (`component_size`), checked for the work that it gives the compiler (`compile_cost`), and compiled and linked
//! (`artifact`). All loaded code is bounded (`loaded`).

mod adapt;
pub(crate) mod artifact;
mod compile_cost;
mod component_size;
mod foreign;
mod input_adapter;
pub(crate) mod loaded;
pub(crate) mod outline;
pub(crate) mod recognise;
pub(crate) mod refusal;
mod reserve;
