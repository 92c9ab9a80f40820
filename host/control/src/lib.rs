//! Changing and querying an installation, shared by the command line, the API, the pages and assistants.
//!
//! Functions take a transaction, the current time and the person asking. Nothing here loops or knows about a running host, whose own
//! work is in `campanile-engine`.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod alert_admin;
pub mod alert_rule;
pub mod approval;
pub mod backfill;
pub mod bounds;
pub mod calendar;
pub mod definition;
pub mod event_feed;
pub mod failure_feed;
pub mod forecast;
pub mod health;
pub mod host_admin;
pub mod lateness;
pub mod launch_admin;
pub mod leaf;
pub mod lock;
pub mod message_admin;
pub mod order;
pub mod orders;
pub mod package_removal;
pub mod plan;
pub mod problem;
pub mod program_args;
pub mod question;
pub mod questions;
pub mod records;
pub mod recovery_rules;
pub mod schedule_admin;
pub mod schedule_defaults;
pub mod schedule_search;
pub mod schedules_file;
pub mod settings;
pub mod statistics;
pub mod stored;
pub mod token_admin;
pub mod traces_endpoint;
pub mod use_statistics;
pub mod verify;
pub mod why;
