//! What people and programs read about an installation.

pub mod event_feed;
pub mod failure_feed;
pub mod forecast;
pub mod health;
pub mod overview;
pub mod rollups;
pub mod statistics;
pub mod symptom;
pub mod use_statistics;
pub mod verify;
pub mod why;
