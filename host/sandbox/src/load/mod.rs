//! From the bytes of a file to compiled code that can be called.
//!
//! A file is recognised (`recognise`), turned into a component if it's a core module (`adapt`), sized (`component_size`), checked for
//! compile cost (`compile_cost`), then compiled and linked (`artifact`). All loaded code shares one bound (`loaded`).

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
