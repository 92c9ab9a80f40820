//! Problems of the database itself: damage, or a server accepting no writes.

use std::time::Duration;

use crate::ctx::Ctx;
use crate::cursor_watch::NAMED_MAX;
use crate::service::{record_event, within};
use campanile_model::clock::Timestamp;
use campanile_model::text::{counted, printable_line};
use campanile_store::events::EventKind;
use campanile_store::{DbError, Tx, stats};

/// Returns the issues for `health`.
pub(crate) async fn issues(tx: &mut Tx) -> Result<Vec<String>, DbError> {
    let mut issues = Vec::new();
    if tx.is_on_standby().await? {
        let issue = "the database's server accepts no writes, as a standby does: hosts launch nothing until one that accepts writes answers at their address";
        issues.push(issue.to_owned());
    }
    let mut damage = stats::damage(tx, NAMED_MAX).await?.into_iter();
    match damage.next() {
        Some((host, detail)) => {
            let others = match damage.count() {
                0 => String::new(),
                n => format!(" and {}", counted(n as u64, "other host")),
            };
            let detail = printable_line(&detail);
            issues.push(format!("the host `{host}`{others}: {detail}"));
        }
        // Recording it failed.
        None => issues.extend(tx.damage().map(|why| damaged(&why))),
    }
    Ok(issues)
}

/// Says what a host does after running into database damage, and what the operator should do.
fn damaged(why: &str) -> String {
    format!(
        "the database is damaged ({why}): this host decides and claims nothing until it is started again; stop it, mend the database or restore a backup, and start it"
    )
}

/// Reports a damaged database, once in the log and, if possible, as an event.
#[derive(Default)]
pub(crate) struct DamageReport {
    is_logged: bool,
    is_recorded: bool,
}

impl DamageReport {
    /// Reports any damage this host has run into, taking at most `patience` for recording it.
    pub(crate) async fn look(&mut self, ctx: &Ctx, patience: Duration, now: Timestamp) {
        let Some(why) = ctx.db.damage().filter(|_| !self.is_recorded) else {
            return;
        };
        let detail = damaged(why);
        if !self.is_logged {
            tracing::error!("{detail}");
            self.is_logged = true;
        }
        let event = record_event(ctx, now, EventKind::DatabaseDamaged, &ctx.name, &detail);
        // Parts of the database may still be writable.
        self.is_recorded = within(patience, event).await.is_ok();
    }
}
