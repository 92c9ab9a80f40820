//! `POST /mcp`: the protocol over HTTP, without sessions.
//!
//! A message is a request, and its answer is the response. So a host remembers nothing of a client, and each message has
//! its token. A call of a tool goes to the handler of the route that does the same, with the role, the rate limit, the
//! turns and the record of that route.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt as _;
use rmcp::model::JsonObject;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::{Answer, Backend, Installation, Server, Tool, answer};
use crate::auth;
use crate::call::{Call, Reply, Result};
use crate::dispatch::dispatch;
use crate::problem::ApiProblem;
use crate::query::{Query, none};
use crate::request::{BODY_BYTES_MAX, FETCH_SITE};
use crate::routes::{Form, Method, Route, any, routes, schema};
use crate::scope::Scope;
use campanile_control::order::{self, Order};
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::question::{Page, Question, parameters};
use campanile_control::reports::forecast::GetPlan;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::health::Health;
use campanile_model::access::{Channel, Role};
use campanile_model::clock::Timestamp;
use campanile_model::trace_context::TRACEPARENT;

/// The route of the protocol.
pub(crate) static ROUTE: Route = Route {
    id: "call_mcp",
    method: Method::Post,
    path: "/mcp",
    role: Some(Role::Viewer),
    // Each tool has the scope of its route.
    scope: Scope::Chosen,
    cost: 1,
    summary: "Answer a message of the Model Context Protocol; a call of a tool costs what its route costs",
    query: none,
    body: Some(schema::<Map<String, Value>>),
    answer: any,
    status: 200,
    form: Form::Mcp,
    handler: |call| Box::pin(post(call)),
};

/// Answer a message of a client.
async fn post(call: Call) -> Result {
    if let Some(principal) = &call.principal
        && !is_tool_call(&call.body)
    {
        call.state.charge(principal, ROUTE.cost)?;
    }
    refuse_browser(&call.headers)?;
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(BODY_BYTES_MAX)
        // Browsers are refused, and a host has any name that its users give it.
        .disable_allowed_hosts();
    let mut request = Request::new(Body::from(call.body.clone()));
    *request.method_mut() = axum::http::Method::POST;
    *request.headers_mut() = call.headers.clone();
    request.headers_mut().remove(AUTHORIZATION);
    let sessions = std::sync::Arc::new(NeverSessionManager::default());
    let server = move || Ok(Server(OverHttp { call: call.clone() }));
    let service = StreamableHttpService::new(server, sessions, config);
    let (parts, body) = service.handle(request).await.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(never) => match never {},
    };
    let kind = parts.headers.get(CONTENT_TYPE);
    match kind.map(HeaderValue::to_str) {
        Some(Ok(kind)) if kind.starts_with("application/json") => {
            Ok(Reply::text(parts.status, body))
        }
        Some(Ok(kind)) if kind.starts_with("text/event-stream") => {
            Ok(Reply::events(Body::from(body)))
        }
        // A notification has no answer.
        _ if parts.status.is_success() => Ok(Reply::text(parts.status, body)),
        _ => Err(refused(parts.status, &String::from_utf8_lossy(&body))),
    }
}

/// Whether a message is a call of a tool, which costs what its route costs.
fn is_tool_call(body: &[u8]) -> bool {
    let message = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let tool = message["params"]["name"].as_str().map(Tool::read);
    message["method"] == "tools/call" && tool.is_some_and(|tool| tool.is_ok())
}

/// Refuse a request that a browser sent. No page of this host sends such a request, so a page of another site did, perhaps
/// under a domain name that the attacker has pointed at this host (DNS rebinding).
fn refuse_browser(headers: &HeaderMap) -> Result<()> {
    if !headers.contains_key(ORIGIN) && !headers.contains_key(FETCH_SITE) {
        return Ok(());
    }
    let problem = ApiProblem::forbidden("the request was sent by a browser");
    Err(problem.hint("use a client of the Model Context Protocol that is no web page: it sends no header `Origin`"))
}

/// Returns what rmcp says about a message that it refuses.
fn refused(status: StatusCode, text: &str) -> ApiProblem {
    let code = if status.is_client_error() {
        ErrorCode::InvalidArgument
    } else {
        ErrorCode::Internal
    };
    let problem = ApiProblem::new(status, code, format!("the message is refused: {text}"));
    problem.hint("send it as a client of the Model Context Protocol does, by its transport `streamable HTTP`")
}

/// The client of one message.
struct OverHttp {
    /// The request with the message.
    call: Call,
}

impl Backend for OverHttp {
    fn role(&self) -> Role {
        let principal = self.call.principal.as_ref();
        principal.map_or(Role::Viewer, |principal| principal.role)
    }

    /// Answer a call. The record names the token of the client, and not what the client calls itself.
    async fn answer(
        &self,
        tool: Tool,
        arguments: JsonObject,
        _by: String,
    ) -> Result<Answer, Problem> {
        let answered = self.answered(tool, arguments).await;
        answered.map_err(|problem| {
            let call = &self.call;
            let client = (call.principal.as_ref(), call.peer.as_ref(), Channel::Mcp);
            let request = format!("{} {} {tool}", ROUTE.method.as_str(), ROUTE.path);
            call.state.refusals.note(&problem, client, &request);
            problem.problem
        })
    }
}

impl OverHttp {
    async fn answered(&self, tool: Tool, arguments: JsonObject) -> Result<Answer> {
        let route = tool.route().ok_or_else(|| no_route(tool.as_str()))?;
        let (Some(principal), Some(role)) = (&self.call.principal, route.role) else {
            return Err(ApiProblem::unauthorized("the request has no token"));
        };
        self.call.state.charge(principal, route.cost)?;
        auth::require(principal, role, &format!("the tool `{tool}`"))?;
        Ok(answer(self, tool, arguments, "").await?)
    }

    /// Sends a request to a route, as the client's principal.
    async fn send<T: DeserializeOwned>(
        &self,
        id: &str,
        of: &str,
        query: &impl Serialize,
        body: Option<&impl Serialize>,
    ) -> Result<Page<T>, Problem> {
        let route = routes().find(|route| route.id == id);
        let route = route.ok_or_else(|| no_route(id).problem)?;
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(parameters(query)?)
            .finish();
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| Problem::new(ErrorCode::Internal, error))?;
        let key = order::key_of(route.path);
        let escaped: String = form_urlencoded::byte_serialize(of.as_bytes()).collect();
        let uri = match key {
            Some(key) => route.path.replace(&format!("{{{key}}}"), &escaped),
            None => route.path.to_owned(),
        };
        let with_query = format!("{uri}?{query}");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for span in self.call.headers.get_all(TRACEPARENT) {
            headers.append(TRACEPARENT, span.clone());
        }
        let call = Call {
            method: route.method.as_str(),
            uri,
            path: Vec::from_iter(key.map(|key| (key.to_owned(), of.to_owned()))),
            query: Query::read(&query, (route.query)()).map_err(|refused| refused.problem)?,
            headers,
            body: body.unwrap_or_default().into(),
            ..self.call.clone()
        };
        let reply = dispatch(call, route.target(), with_query).await;
        let reply = reply.map_err(|refused| refused.problem)?;
        let answer = serde_json::from_str(reply.as_text());
        Ok(Page {
            answer: answer.map_err(|error| Problem::new(ErrorCode::Internal, error))?,
            next: reply.next_key(),
        })
    }
}

impl Installation for OverHttp {
    async fn ask<Q: Question>(&self, of: &str, question: Q) -> Result<Page<Q::Answer>, Problem> {
        self.send(Q::ENDPOINT.id, of, &question, None::<&()>).await
    }

    /// The record names the token of the client, and not what the client calls itself.
    async fn order<O: Order>(&self, of: &str, order: O, _: &str) -> Result<O::Output, Problem> {
        let done = self.send(O::ENDPOINT.id, of, &(), Some(&order)).await?;
        Ok(done.answer)
    }

    async fn plan(&self, plan: GetPlan) -> Result<PlanReport, Problem> {
        Ok(self.send("get_plan", "", &plan, None::<&()>).await?.answer)
    }

    async fn health(&self) -> Result<Health, Problem> {
        Ok(self.send("get_health", "", &(), None::<&()>).await?.answer)
    }

    fn calls_kept(&self) -> Option<Duration> {
        self.call.state.app.settings.retention.logs
    }

    fn now(&self) -> Timestamp {
        self.call.now()
    }
}

fn no_route(id: &str) -> ApiProblem {
    Problem::new(ErrorCode::Internal, format!("there's no route `{id}`")).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::headers;

    #[test]
    fn a_request_of_a_browser_is_refused() {
        for (header, value) in [
            ("origin", "http://127.0.0.1:7979"),
            ("origin", "https://attacker.example"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "cross-site"),
        ] {
            let sent = headers(&[("host", "127.0.0.1:7979"), (header, value)]);
            let problem = refuse_browser(&sent).unwrap_err();
            assert_eq!(problem.status, StatusCode::FORBIDDEN, "{header}: {value}");
        }
        let sent = headers(&[("host", "127.0.0.1:7979"), ("sec-fetch-mode", "cors")]);
        assert!(refuse_browser(&sent).is_ok());
    }
}
