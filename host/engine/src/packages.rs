//! Following the plugins folder and the schedules file, and deciding what may run.

pub(crate) mod folder;
pub(crate) mod forget;
pub(crate) mod record_package;
pub(crate) mod reported;
pub mod schedules_file;
pub(crate) mod version_check;
pub(crate) mod versions;
pub mod watch;
