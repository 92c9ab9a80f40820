//! Changing and querying an installation, shared by the command line, the API, the pages and assistants.
//!
//! * [`orders`] and [`questions`]: one type for each change and read, listed as routes by the server. Traits are in [`order`] and
//!   [`question`].
//! * [`admin`]: making changes.
//! * [`reports`]: answering larger questions, such as `why`, `health` and forecasts.
//! * [`schedules`]: what a schedule is made of.
//! * [`rules`]: pure rules, shared with the engine.
//! * [`records`]: what answers show.
//!
//! Functions take a transaction, the current time and the person asking. Nothing here loops or knows about a running host, whose own
//! work is in `campanile-engine`.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod admin;
pub mod bounds;
pub mod lock;
pub mod order;
pub mod orders;
pub mod problem;
pub mod question;
pub mod questions;
pub mod records;
pub mod reports;
pub mod rules;
pub mod schedules;
pub mod settings;
pub mod stored;
pub mod traces_endpoint;
