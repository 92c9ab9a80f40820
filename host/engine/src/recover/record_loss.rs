//! The database lost its newest commits: a standby was promoted that had not received them.
//!
//! A host notices that when the database has an earlier heartbeat of this host than the last one that it committed. The host
//! then records its own row, its packages and their schedules again. The slots of the lost commits are decided again, from
//! the cursors of the schedules in this database.

use crate::ctx::Ctx;
use campanile_store::{DbError, Tx, hosts};

/// What the database has of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnRow {
    /// The heartbeat that this host committed last, or a later one.
    Current,
    /// An earlier heartbeat: the newest commits are lost.
    Older,
    /// No row: the newest commits are lost, and among them the start of this host.
    Missing,
}

impl OwnRow {
    pub(crate) fn is_current(self) -> bool {
        self == OwnRow::Current
    }
}

/// Compare the heartbeat of this host in the database with the last one that this host committed.
pub(crate) async fn own_row(ctx: &Ctx, tx: &mut Tx) -> Result<OwnRow, DbError> {
    let recorded = hosts::heartbeat_of(tx, ctx.host).await?;
    Ok(match recorded {
        _ if !ctx.heartbeats.is_lost(recorded) => OwnRow::Current,
        Some(_) => OwnRow::Older,
        None => OwnRow::Missing,
    })
}

/// Forget what this host read from the database before the newest commits were lost.
pub(crate) fn forget_reads(ctx: &Ctx) {
    tracing::warn!(host = %ctx.name, "the database lost its newest commits, as a standby does that lagged when it was promoted; this host and its packages are recorded again");
    ctx.heartbeats.forget();
    // A revision of a schedule may be among the lost commits. Then another revision gets its number.
    ctx.specs.forget();
}
