//! Every statement is understood by both databases.

use campanile::db::probe;
use campanile_tests::{TestDb, on_both};

on_both!(every_statement_prepares);

async fn every_statement_prepares(test: TestDb) {
    let tx = test.read().await;
    let all = probe::statements(&tx);
    drop(tx);
    assert!(all.len() >= 50, "{} statements", all.len());
    let mut refused = Vec::new();
    for sql in all {
        let mut tx = test.write().await;
        if let Err(error) = probe::prepare(&mut tx, sql).await {
            refused.push(format!("{error}\n{sql}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
}
