//! What the command line and the API show of schedules, launches, runs, backfills and packages: one serializer for both.
//!
//! The functions here only read the database.

pub mod backfill;
pub mod ids;
pub mod launch;
pub mod package;
pub mod package_diff;
pub mod run;
pub mod schedule;
pub mod schedules_file;
pub mod top;
