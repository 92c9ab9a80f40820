//! Changing an installation, and refusing what can't be done.

pub mod alert_admin;
pub mod approval;
pub mod backfill;
pub mod host_admin;
pub mod launch_admin;
pub mod message_admin;
pub mod package_removal;
pub mod schedule_admin;
pub mod token_admin;
