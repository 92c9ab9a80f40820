//! An order: what a person or a program asks for. It's one type on every way in: the command line parses it from its options, and
//! runs it on the database or sends it to a host; the API reads it from a body; pages and assistants end there too.
//!
//! An order changes one thing, in one transaction, which is tried again if another one collides with it.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::trace_context::TraceContext;
use campanile_store::{Db, Tx};

/// The method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// Returns the method as HTTP writes it.
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

/// What of the record an order is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The whole installation.
    Installation,
    /// Nothing of the record.
    Nothing,
    /// The schedule or the package that the path names.
    Named,
    /// The launch of the id in the path, which may be that of a run.
    Launch,
    /// The backfill of the id in the path.
    Backfill,
    /// The message of the outbox of the id in the path.
    Message,
    /// Rows that the handler chooses, or what the body names. The handler asks for the namespace of the call.
    Chosen,
}

impl Scope {
    /// Whether a token of a namespace may ever send such a request.
    pub fn is_of_namespaces(self) -> bool {
        self != Scope::Installation
    }
}

/// How an order comes over HTTP, and who may give it.
#[derive(Clone, Copy, Debug)]
pub struct OrderRoute {
    /// The name of the operation, for generated clients.
    pub id: &'static str,
    pub method: Method,
    /// The part in braces, if any, names what the order is about.
    pub path: &'static str,
    /// The least role that may give it.
    pub role: Role,
    pub scope: Scope,
    /// How much of the rate limit of its principal it takes.
    pub cost: u32,
    pub summary: &'static str,
}

impl OrderRoute {
    /// Returns the parameter in the path, if there is one.
    pub fn key(&self) -> Option<&'static str> {
        let (_, rest) = self.path.split_once('{')?;
        rest.split('}').next()
    }
}

/// Who gives an order, and when.
#[derive(Clone, Copy, Debug)]
pub struct Desk<'a> {
    /// The name on record.
    pub by: &'a str,
    pub now: Timestamp,
    /// The span of the client, if it named one.
    pub caller: Option<TraceContext>,
}

/// An order. Its fields are the body of the request, and the options of the command.
pub trait Order: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    const ROUTE: OrderRoute;

    /// Carries out the order in `tx`, which the caller commits. `of` is what the path names.
    fn run(
        &self,
        of: &str,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> impl Future<Output = Result<Self::Output, Problem>> + Send;

    /// Returns the role that this order needs beyond that of the route, with its subject in a sentence.
    fn needs(&self) -> Option<(Role, &'static str)> {
        None
    }

    /// Returns the revision of the schedule in the answer.
    fn revision(_: &Self::Output) -> Option<i64> {
        None
    }
}

/// Carries out an order in a transaction of its own.
///
/// # Errors
///
/// The problem of the order, or of the database. Then nothing has changed.
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
