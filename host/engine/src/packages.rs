//! The plugins folder and the schedules file: what's in them, and what of that may run.

pub(crate) mod folder;
pub(crate) mod forget;
pub(crate) mod record_package;
pub(crate) mod reported;
pub mod schedules_file;
pub mod version_check;
pub(crate) mod versions;
pub mod watch;
