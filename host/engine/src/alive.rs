//! Keeping a host alive and in touch with its peers: leases, clock, disk, database trouble.

pub(crate) mod changes;
pub(crate) mod chore_lease;
pub(crate) mod chores;
pub(crate) mod clock_keeper;
pub(crate) mod database_state;
pub(crate) mod disk_keeper;
pub(crate) mod heartbeat;
pub(crate) mod lease_keeper;
pub(crate) mod lease_table;
pub(crate) mod record_host;
pub(crate) mod start;
pub(crate) mod trouble;
