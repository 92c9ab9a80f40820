//! What a schedule is made of, and finding it.

pub mod calendar;
pub mod definition;
pub mod program_args;
pub mod schedule_search;
pub mod schedules_file;
