//! Packages.
pub mod context;
mod fields;
pub mod limits;
pub mod manifest;
pub mod sidecar;
pub mod spec;
