//! Campanile, a bell tower for WebAssembly tasks: drop a compiled `.wasm` into a folder and it runs on its
//! schedule, sandboxed, and every ring is on the record.
//!
//! This page is the path of one launch, from the clock to the audit row. Read it with the files open; each step
//! names its function. ARCHITECTURE.md, at the root of the repository, has the pictures, the tables and the map.
//!
//! # Before the clock strikes
//!
//! * `campanile serve` ([`cli`], `cli/serve.rs`, `Serve::run`) reads the configuration, starts the sandbox, opens the
//!   plugin folder, reaches the database and brings its tables up to date. `engine/start.rs`,
//!   [`Engine::start`](engine::Engine::start), takes the lock of the host's name and puts this life on the record;
//!   `engine/loops.rs`, [`Engine::serve`](engine::Engine::serve), looks through the folder once, recovers what an
//!   earlier life left behind, and starts one loop for each step below. [`Engine::tick`](engine::Engine::tick) is all
//!   of them once, in order.
//! * A package got in through `engine/folder.rs`, [`Engine::scan`](engine::Engine::scan): found and compiled by
//!   [`package`] (`package/folder.rs`), recorded with its bytes, then put in force, and its schedules made what its
//!   sidecar orders or, without that, what it proposes. Every change of a schedule, from there or from the command
//!   line, goes through `engine/schedules.rs`.
//!
//! # One launch
//!
//! ```text
//! clock ─▶ due ─▶ decide ─▶ ┌ transaction 1 ┐ ─▶ take ─▶ ┌ transaction 2 ┐ ─▶ run ─▶ ┌ transaction 3 ┐
//!                           │ launch rows   │            │ run row,      │           │ run, launch,  │
//!                           │ and cursor    │            │ linked        │           │ task runs     │
//!                           └───────────────┘            └───────────────┘           └───────────────┘
//! ```
//!
//! 1. **The clock.** `engine/loops.rs`, `scheduler`, sleeps until the earliest `next_slot` of all schedules, or until
//!    another loop says that schedules have changed. [`clock::Clock`] is the only one who knows the time.
//! 2. **Due.** `engine/intend.rs`, [`Engine::intend`](engine::Engine::intend), begins a write transaction and reads up
//!    to 512 schedules whose slot has come: `db/schedules.rs`, [`due`](db::schedules::due).
//! 3. **Decide.** `engine/plan.rs`, [`plan`](engine::plan::plan()), is pure. It asks `policy/judge.rs`,
//!    [`judge`](policy::Terms::judge), about every slot after the cursor: launch, catch up, or drop and why; and
//!    `policy/overlap.rs`, [`come`](policy::Beside::come), what becomes of a launch beside those of its schedule that
//!    are not over: now, when it is its turn, or not at all. A package that no host has makes it
//!    `skipped(package_missing)`. [`LaunchId::of`](ids::LaunchId::of) gives the launch its identity, the same on every
//!    host.
//! 4. **Transaction 1, the intent.** The cursors move by compare-and-set (`db/schedules.rs`,
//!    [`advance`](db::schedules::advance)); the launch rows of those that moved go in beside them (`db/launches.rs`,
//!    [`insert`](db::launches::insert)); one commit for the batch. A crash before it changes nothing.
//!    One that has to wait for its turn is opened by `engine/release.rs`, [`Engine::release`](engine::Engine::release).
//! 5. **Transaction 2, the handoff.** `engine/loops.rs`, `dispatcher`, calls `engine/take.rs`,
//!    [`Engine::take`](engine::Engine::take): as many open launches as there is capacity for become runs with a lease
//!    and a fence (`db/runs.rs`, [`open`](db::runs::claimable) and [`begin`](db::runs::start)).
//! 6. **Run.** `engine/run.rs`, `carry_out`, calls the tasks in the order of `engine/workflow.rs`,
//!    [`Workflow::ready`](engine::workflow::Workflow::ready), with the context of `engine/context.rs`. Each call is
//!    `wasm/mod.rs`, [`Sandbox::run`](wasm::Sandbox::run): a fresh store and instance, the grants and the limits, a
//!    report. `engine/outcome.rs`, [`decide`](engine::outcome::decide), is pure: retry, or the end. Calls before the
//!    last go on the record as they end (`db/runs.rs`, [`record_tasks`](db::runs::record_tasks)).
//! 7. **Transaction 3, the finish.** `engine/loops.rs`, `finisher`, gathers the ends that have come meanwhile and hands
//!    them to `engine/finish.rs`, `finish`: `db/runs.rs`, [`finish`](db::runs::finish), applies those whose fence is
//!    still good. The launch row is now the audit record: `campanile launch list`.
//!
//! # Beside the path
//!
//! * `engine/lease.rs` renews the heartbeat and the leases, and drops runs that are no longer this host's.
//! * `engine/recover.rs` buries hosts that are gone, and opens their launches again or gives them up for a reason.
//! * `engine/audit.rs` puts next slots right, computes the statistics and judges the health.
//! * `crash::point` names a place at which a test lets a debug build die. It does nothing else.
//!
//! # Who knows what
//!
//! `cli → config → engine → { policy → schedule, package, db, wasm }`, and never the other way. Only [`db`] names sqlx,
//! only [`wasm`] names wasmtime, only [`clock`] asks for the time. [`schedule`], [`policy`], [`engine::plan`],
//! [`engine::outcome`] and [`engine::workflow`] are pure: the same arguments give the same answer.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data: only `cli/output.rs` writes there, and minds a closed pipe.
#![warn(clippy::print_stdout)]

pub mod cli;
pub mod clock;
pub mod config;
pub mod crash;
pub mod crontab;
pub mod db;
pub mod engine;
pub mod ids;
pub mod package;
pub mod policy;
pub mod schedule;
pub mod secrets;
pub mod strict;
pub mod telemetry;
pub mod trial;
pub mod wasm;
pub mod watch;
pub mod words;
