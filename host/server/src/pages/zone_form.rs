//! The form in the bar that sets the reader's zone.

use axum::body::Body;
use axum::http::header::SET_COOKIE;
use axum::http::{Request, Response};

use super::form::Form;
use super::layout;
use super::login::own_path;
use super::zone::cookie;
use crate::app::State;
use crate::auth;
use crate::peer::Peer;
use crate::problem::ApiProblem;
use crate::request::{BODY_BYTES_MAX, check_host, check_origin, memory_for_body, read_body};

/// Sets the zone, and sends the browser back to the page it came from.
pub(super) async fn answer(state: &State, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let read = async {
        check_host(&parts.headers)?;
        check_origin(&parts.headers)?;
        let peer = parts.extensions.get::<Peer>();
        let peer = peer.ok_or_else(|| ApiProblem::unauthorized("the request has no connection"))?;
        let key = auth::unknown_at(peer);
        let _memory = memory_for_body(state, &key, &parts.headers, BODY_BYTES_MAX).await?;
        let body = read_body(&parts.headers, body, BODY_BYTES_MAX).await?;
        let form = Form::read(&parts.headers, &body)?;
        let zone = form.given("utc").map_or(form.get("zone"), |_| "UTC");
        let cookie = cookie(zone)?;
        Ok((cookie, own_path(form.get("next")).to_owned()))
    };
    match read.await {
        Ok((cookie, next)) => {
            let mut response = layout::redirect(&next);
            response.headers_mut().append(SET_COOKIE, cookie);
            response
        }
        Err(problem) => layout::problem_page(None, &problem, None),
    }
}
