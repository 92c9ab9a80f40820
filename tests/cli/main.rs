//! The command line as an outside script meets it: the real program, its exit codes, its JSON, its talk.

mod backfill;
mod bench;
mod cron;
mod folder;
mod import;
mod output;
mod refusals;
mod rules;
mod schedules;
mod stopping;
mod task_run;
mod tower;
mod why;
mod workflows;
