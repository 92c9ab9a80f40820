//! What health says about the database itself: damage, or a server accepting no writes.

use super::NAMED_MAX;
use campanile_model::text::{counted, printable_line};
use campanile_store::{DbError, Tx, stats};

/// Returns the issues for `health`.
pub async fn issues(tx: &mut Tx) -> Result<Vec<String>, DbError> {
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
pub fn damaged(why: &str) -> String {
    format!(
        "the database is damaged ({why}): this host decides and claims nothing until it is started again; stop it, mend the database or restore a backup, and start it"
    )
}
