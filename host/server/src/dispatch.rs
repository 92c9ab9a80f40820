//! From a request that is checked to the handler of its route.

use crate::call::{Call, Handler, Reply, Result};
use crate::scope::{self, Scope};
use campanile_model::namespace::Namespace;

/// What a route says about its handler.
pub(crate) struct Target {
    pub handler: Handler,
    pub scope: Scope,
    pub cost: u32,
    /// Whether an answer is given to the same request of others too, for a moment.
    pub is_shared: bool,
    /// Whether the handler bounds how many requests it answers at once. Then [`dispatch`] waits for no turn of the principal.
    pub has_own_turn: bool,
}

/// Wait for the turn of the principal of `call`, and run the handler. `uri` has the path and the query of the request.
///
/// The role of the principal is checked before, and its units are taken.
pub(crate) async fn dispatch(call: Call, target: Target, uri: String) -> Result {
    let state = std::sync::Arc::clone(&call.state);
    let principal = call.principal.clone();
    let handled = async {
        let _turn = match &principal {
            Some(principal) if !target.has_own_turn => {
                Some(state.turn(principal, target.cost).await?)
            }
            _ => None,
        };
        scope::check(&call, target.scope).await?;
        (target.handler)(call).await
    };
    if !target.is_shared {
        return handled.await;
    }
    let namespace = principal
        .as_ref()
        .and_then(|principal| principal.namespace.as_ref());
    let namespace = namespace.map_or_else(String::new, Namespace::prefix);
    let place = state.answers.place(namespace + &uri).await;
    if let Some(answer) = place.answer() {
        return Ok(Reply::kept(answer));
    }
    let reply = handled.await?;
    place.keep(reply.to_keep());
    Ok(reply)
}
