//! Orders: changes requested by people and programs, with one type each.
//!
//! The command line parses an order from options, then either runs it on the database or sends it to a host. The API parses the same
//! type from a request body, and so do pages and assistants by going through the API. Running an order takes one transaction, retried
//! when colliding with another.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::trace_context::TraceContext;
use campanile_store::{Db, Tx};

/// HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// Returns the method in HTTP's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// Part of the record being read or changed. Tokens limited to a namespace are checked against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole installation.
    Installation,
    /// Nothing of the record.
    Nothing,
    /// A schedule or package named in the path.
    Named,
    /// A launch, by its own id or one of its runs'.
    Launch,
    /// A backfill, by id.
    Backfill,
    /// An outbox message, by id.
    Message,
    /// Whatever the handler picks, restricting itself to the caller's namespace.
    Chosen,
}

impl Scope {
    /// Whether tokens limited to a namespace may send such requests at all.
    pub fn is_of_namespaces(self) -> bool {
        self != Scope::Installation
    }
}

/// Where to send an order over HTTP, and who's allowed to.
#[derive(Clone, Copy, Debug)]
pub struct OrderRoute {
    /// Operation name in generated clients.
    pub id: &'static str,
    pub method: Method,
    /// A part in braces stands for what's being changed.
    pub path: &'static str,
    /// Minimum role.
    pub role: Role,
    pub scope: Scope,
    /// Units taken from the caller's rate limit.
    pub cost: u32,
    pub summary: &'static str,
}

impl OrderRoute {
    /// Returns the path's parameter, if any.
    pub fn key(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split('}').next()
    }
}

/// Who's asking, and when.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    /// Name for the record. May be empty for orders recording none.
    pub by: &'a str,
    pub now: Timestamp,
    /// Trace span of the caller.
    pub caller: Option<TraceContext>,
}

/// A change, with fields doubling as request body and command-line options.
pub trait Order: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    const ROUTE: OrderRoute;

    /// Runs in `tx`, leaving the commit to the caller. `of` is the value of the path's parameter.
    fn run(
        &self,
        of: &str,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> impl Future<Output = Result<Self::Output, Problem>> + Send;

    /// Returns a role needed beyond the route's, along with the reason as the subject of an error message.
    fn needs(&self) -> Option<(Role, &'static str)> {
        None
    }

    /// Returns the schedule's new revision, for the `ETag`.
    fn revision(_: &Self::Output) -> Option<i64> {
        None
    }
}

/// Runs an order in a transaction of its own, retrying on collisions.
///
/// # Errors
///
/// Fails with the order's or the database's problem, leaving everything unchanged.
pub async fn run<O: Order>(
    db: &Db,
    of: &str,
    order: &O,
    desk: &Desk<'_>,
) -> Result<O::Output, Problem> {
    campanile_store::retry(
        |problem: &Problem| problem.is_collision,
        || async {
            let mut tx = db.write().await?;
            let done = order.run(of, desk, &mut tx).await?;
            tx.commit().await?;
            Ok(done)
        },
    )
    .await
}
