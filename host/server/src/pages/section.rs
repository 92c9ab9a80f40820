//! The parts of the navigation.

/// A part of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Now,
    Schedules,
    Launches,
    Plan,
    Packages,
    Hosts,
    Events,
    Alerts,
    Tokens,
    Statistics,
    Outbox,
    Configuration,
}
