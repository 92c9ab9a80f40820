//! The commands, one file each.

pub(crate) mod backfill;
pub(crate) mod bench;
pub(crate) mod calendar;
pub(crate) mod calls;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod cron;
pub(crate) mod db;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod follow;
pub(crate) mod ids;
pub(crate) mod launch;
pub(crate) mod new;
pub(crate) mod package;
pub(crate) mod plan;
pub(crate) mod rule;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod slots;
pub(crate) mod stats;
pub(crate) mod task;
pub(crate) mod top;
