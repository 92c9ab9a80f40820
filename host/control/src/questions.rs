//! All questions, grouped by subject.

pub mod alerts;
pub mod hosts;
pub mod launches;
pub mod packages;
pub mod record;
pub mod schedules;
