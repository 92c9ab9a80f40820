//! Orders: changes requested by people and programs, with one type each.
//!
//! The command line parses an order from options, then either runs it on the database or sends it to a host. The API parses the same
//! type from a request body, and so do pages and assistants by going through the API. Running an order takes one transaction, retried
//! when colliding with another.

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::{ErrorCode, Problem};
use crate::settings::Settings;
use campanile_model::access::Role;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::namespace::Namespace;
use campanile_model::trace_context::TraceContext;
use campanile_package::quota::check_group;
use campanile_schedule::policy::Policies;
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
pub struct Endpoint {
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
    /// HTTP status of a successful response.
    pub status: u16,
    pub summary: &'static str,
}

impl Endpoint {
    /// A `POST` costing 5 units and answered with status 200.
    pub const fn post(
        id: &'static str,
        path: &'static str,
        (role, scope): (Role, Scope),
        summary: &'static str,
    ) -> Endpoint {
        Endpoint {
            id,
            method: Method::Post,
            path,
            role,
            scope,
            cost: 5,
            status: 200,
            summary,
        }
    }

    /// A `GET` for viewers, costing 2 units.
    pub const fn get(
        id: &'static str,
        path: &'static str,
        scope: Scope,
        summary: &'static str,
    ) -> Endpoint {
        Endpoint::post(id, path, (Role::Viewer, scope), summary)
            .method(Method::Get)
            .cost(2)
    }

    /// Uses another method.
    #[must_use]
    pub const fn method(self, method: Method) -> Endpoint {
        Endpoint { method, ..self }
    }

    /// Needs another role.
    #[must_use]
    pub const fn role(self, role: Role) -> Endpoint {
        Endpoint { role, ..self }
    }

    /// Costs another number of units.
    #[must_use]
    pub const fn cost(self, cost: u32) -> Endpoint {
        Endpoint { cost, ..self }
    }

    /// Answers with status 201, as something gets created.
    #[must_use]
    pub const fn created(self) -> Endpoint {
        Endpoint {
            status: 201,
            ..self
        }
    }

    /// Returns the path's parameter, if any.
    pub fn key(&self) -> Option<&'static str> {
        key_of(self.path)
    }
}

/// Returns the parameter of an endpoint's path, if any.
pub fn key_of(path: &'static str) -> Option<&'static str> {
    let (_, rest) = path.split_once('{')?;
    rest.split('}').next()
}

/// Who's asking and when, along with what orders need beyond the record.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    /// Name for the record. May be empty for orders recording none.
    pub by: &'a str,
    pub now: Timestamp,
    /// Trace span of the caller.
    pub caller: Option<TraceContext>,
    /// The only namespace the caller may see, if limited to one.
    pub namespace: Option<&'a Namespace>,
    pub settings: &'a Settings,
    /// Key for [sealing](Order::seals).
    pub key: Option<&'a ApprovalKey>,
    /// The schedule's revision as known to the caller, for orders [checking](Order::CHECKS_REVISION) it.
    pub revision: Option<i64>,
}

impl<'a> Desk<'a> {
    /// Returns the desk of someone who may see everything.
    pub fn of(by: &'a str, now: Timestamp, settings: &'a Settings) -> Desk<'a> {
        Desk {
            by,
            now,
            caller: None,
            namespace: None,
            settings,
            key: None,
            revision: None,
        }
    }

    /// Returns the key for sealing.
    ///
    /// # Errors
    ///
    /// Fails without one, which is a bug in whoever runs the order.
    pub fn key(&self) -> Result<&'a ApprovalKey, Problem> {
        self.key
            .ok_or_else(|| Problem::new(ErrorCode::Internal, "there's no key to seal with"))
    }

    /// Checks that a schedule or package is in the caller's namespace.
    ///
    /// # Errors
    ///
    /// Fails for names in other namespaces.
    pub fn refuse_other(&self, name: &str) -> Result<(), Problem> {
        match self.namespace {
            Some(namespace) if !namespace.contains(name) => Err(outside(namespace, name)),
            _ => Ok(()),
        }
    }

    /// Returns a name that callers limited to a namespace must give, as searching the whole record would take too long.
    ///
    /// # Errors
    ///
    /// Fails for such callers giving none.
    pub fn given_in_namespace<'g>(
        &self,
        key: &str,
        given: Option<&'g str>,
    ) -> Result<Option<&'g str>, Problem> {
        match (given, self.namespace) {
            (None, Some(namespace)) => {
                let prefix = namespace.prefix();
                let message =
                    format!("a token of the namespace {namespace} lists these of one {key}");
                Err(Problem::new(ErrorCode::Refused, message)
                    .hint(format!("add `{key}={prefix}NAME` to the query")))
            }
            _ => Ok(given),
        }
    }

    /// Checks that a definition's concurrency group is configured.
    ///
    /// # Errors
    ///
    /// Fails for unknown groups, listing the known ones.
    pub fn check_group(&self, policies: &Policies) -> Result<(), Problem> {
        check_group(policies, &self.settings.groups)
            .map_err(|why| Problem::new(ErrorCode::InvalidArgument, why))
    }
}

/// Refuses a name outside the caller's namespace.
pub fn outside(namespace: &Namespace, name: &str) -> Problem {
    let prefix = namespace.prefix();
    Problem::new(
        ErrorCode::Refused,
        format!("`{name}` is not in the namespace {namespace}, and the token sees no other"),
    )
    .hint(format!("its names begin with `{prefix}`"))
}

/// A change, with fields doubling as request body and command-line options.
pub trait Order: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    type Output: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;

    const ENDPOINT: Endpoint;

    /// Whether callers name the schedule's revision they know.
    const CHECKS_REVISION: bool = false;

    /// Whether the answer holds a secret, and so can't be kept for repeated requests.
    const IS_SECRET: bool = false;

    /// Whether it only shows what would change, with the transaction left uncommitted.
    const IS_REHEARSAL: bool = false;

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

    /// Whether it needs [`Desk::key`].
    fn seals(&self) -> bool {
        false
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
    let is_collision = |problem: &Problem| problem.is_collision;
    campanile_store::retry(is_collision, || async {
        let mut tx = db.write().await?;
        let done = order.run(of, desk, &mut tx).await?;
        if !O::IS_REHEARSAL {
            tx.commit().await?;
        }
        Ok(done)
    })
    .await
}

/// Makes a change in a transaction, retrying on collisions.
///
/// # Errors
///
/// Fails with the change's or the database's problem, leaving everything unchanged.
pub async fn transact<T>(
    db: &Db,
    change: impl AsyncFn(&mut Tx) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let is_collision = |problem: &Problem| problem.is_collision;
    campanile_store::retry(is_collision, || async {
        let mut tx = db.write().await?;
        let done = change(&mut tx).await?;
        tx.commit().await?;
        Ok(done)
    })
    .await
}
