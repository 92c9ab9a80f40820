//! The command line as an outside script meets it: the real program, its exit codes, its JSON, its talk.

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
