//! The command line as a script uses it: the real program, its exit codes, its JSON and its messages.

mod backfill;
mod bench;
mod cron;
mod docs;
mod edit;
mod folder;
mod guest;
mod https;
mod import;
mod languages;
mod new;
mod output;
mod plan;
mod policies;
mod refusals;
mod rules;
mod schedules;
mod schedules_file;
mod sidecars;
mod site;
mod stopping;
mod task_check;
mod task_run;
mod versions;
mod why;
mod workflows;
