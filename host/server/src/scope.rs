//! Which part of the record a route is about, and whether the token of a namespace may ask for it.
//!
//! A token of a namespace may use only routes with a rule that limits the request to one namespace. So the host refuses it a new
//! route that has no rule. The host refuses a name that is in another namespace. It answers the id of a launch, a run, a backfill
//! or a message of another namespace as it answers an id that does not exist.

use crate::call::{Call, Result};
use crate::problem::ApiProblem;
pub(crate) use campanile_control::order::Scope;
use campanile_control::records::ids;
use campanile_model::ids::{BackfillId, MessageId, ShortId};
use campanile_model::namespace::Namespace;
use campanile_store::{backfills, history, outbox};

impl Call {
    /// Returns the namespace to which the principal is limited; none for the whole installation.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.principal.as_ref()?.namespace.as_ref()
    }
}

/// Refuse a request about anything outside the namespace of its principal.
pub(crate) async fn check(call: &Call, scope: Scope) -> Result<()> {
    let Some(namespace) = call.namespace() else {
        return Ok(());
    };
    for key in ["schedule", "package"] {
        call.query
            .text(key)
            .map_or(Ok(()), |name| call.desk().refuse_other(name))?;
    }
    let package = match scope {
        Scope::Nothing | Scope::Chosen => return Ok(()),
        Scope::Installation => {
            let problem = ApiProblem::forbidden(format!(
                "the request is about the whole installation, and the token sees only the namespace {namespace}"
            ));
            return Err(problem.hint("send it with a token without a namespace"));
        }
        Scope::Named => return Ok(call.desk().refuse_other(call.name("name"))?),
        Scope::Launch => {
            let id = call.id::<ShortId>("id")?;
            let mut tx = call.read().await?;
            // Considering only launches in the namespace keeps others out of the error.
            let id = ids::launch(&mut tx, &id, Some(namespace)).await?;
            (history::launch(&mut tx, id).await?).map(|found| found.launch.package)
        }
        Scope::Backfill => {
            let id = call.id::<BackfillId>("id")?;
            let found = backfills::find(&mut call.read().await?, id).await?;
            found.map(|found| found.schedule)
        }
        Scope::Message => {
            let id = call.id::<MessageId>("id")?;
            let found = outbox::find(&mut call.read().await?, id).await?;
            found.map(|found| found.row.package)
        }
    };
    if package.is_some_and(|name| namespace.contains(&name)) {
        Ok(())
    } else {
        let id = call.name("id");
        Err(ApiProblem::not_found(format!(
            "there is no {id} in the namespace {namespace}"
        )))
    }
}
