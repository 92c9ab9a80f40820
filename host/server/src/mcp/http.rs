//! `POST /mcp`: the protocol over HTTP, without sessions.
//!
//! A message is a request, and its answer is the response. So a host remembers nothing of a client, and each message has
//! its token. A call of a tool goes to the handler of the route that does the same, with the role, the rate limit, the
//! turns and the record of that route.

use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::BodyExt as _;
use rmcp::model::JsonObject;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::{
    Answer, Backend, LogTail, Server, Tool, answer, bounds, searched_note, tools, trigger_note,
};
use crate::auth;
use crate::call::{Call, Reply, Result};
use crate::dispatch::dispatch;
use crate::problem::ApiProblem;
use crate::query::Query;
use crate::request::{BODY_BYTES_MAX, FETCH_SITE};
use crate::routes::{Form, Method, Route, any, schema};
use crate::scope::Scope;
use campanile_control::forecast::Outage;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::records::launch::TriggerReport;
use campanile_control::records::run::{RunDetail, TaskLogs, removed_calls_note};
use campanile_model::access::{Channel, Role};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ShortId;
use campanile_model::time_text::{self, Moment};
use campanile_model::trace_context::TRACEPARENT;
use campanile_store::task_runs::CallPlace;

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
    query: &[],
    repeated: "",
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

/// Return what rmcp says about a message that it refuses.
fn refused(status: StatusCode, text: &str) -> ApiProblem {
    let code = match status.is_client_error() {
        true => ErrorCode::InvalidArgument,
        false => ErrorCode::Internal,
    };
    let problem = ApiProblem::new(status, code, format!("the message is refused: {text}"));
    problem.hint("send it as a client of the Model Context Protocol does, by its transport `streamable HTTP`")
}

/// The client of one message.
struct OverHttp {
    /// The request with the message.
    call: Call,
}

/// What a call asks of the route of its tool.
#[derive(Default)]
struct Asked {
    path: Option<(&'static str, String)>,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
}

impl Asked {
    /// Ask about one resource. `key` is its parameter in the path of the route.
    fn of(key: &'static str, value: String) -> Asked {
        Asked {
            path: Some((key, value)),
            ..Asked::default()
        }
    }

    fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Asked {
        let value = value.map(|value| (name, value.to_string()));
        self.query.extend(value);
        self
    }

    fn query_text(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(&self.query).finish()
    }

    fn body(self, body: Value) -> Asked {
        Asked {
            body: Some(body),
            ..self
        }
    }
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
        let route = tool.route().ok_or_else(|| no_route(tool))?;
        let (Some(principal), Some(role)) = (&self.call.principal, route.role) else {
            return Err(ApiProblem::unauthorized("the request has no token"));
        };
        self.call.state.charge(principal, route.cost)?;
        auth::require(principal, role, &format!("the tool `{tool}`"))?;
        bounds::check(&arguments).map_err(ApiProblem::invalid)?;
        Ok(match tool {
            Tool::RunLogs => self.logs(tool.read_arguments(arguments)?).await?,
            Tool::ShowRun => {
                let tools::ShowRun { id, after } = tool.read_arguments(arguments)?;
                let (run, next, removed) = self.run(&id, after.as_deref()).await?;
                Answer::run(run, next, removed)?
            }
            Tool::TriggerSchedule => {
                let reply = self
                    .send(tool, asked(tool, arguments, self.call.now())?)
                    .await?;
                let note = trigger_note(&read::<TriggerReport>(&reply)?);
                Answer::of_json(reply.as_text())?.note(note)
            }
            tool => {
                let asked = asked(tool, arguments, self.call.now())?;
                let wanted = asked.query.iter().find(|(name, _)| *name == "limit");
                let wanted = wanted.and_then(|(_, limit)| limit.parse().ok());
                let reply = self.send(tool, asked).await?;
                let note = next_page(tool, &reply, wanted.unwrap_or(usize::MAX));
                Answer::of_json(reply.as_text())?.note(note)
            }
        })
    }

    /// Returns a run with its calls after a place, the place to continue after if there are more, and the note saying that retention
    /// removed them.
    async fn run(
        &self,
        given: &str,
        after: Option<&str>,
    ) -> Result<(RunDetail, Option<CallPlace>, Option<String>)> {
        let after = tools::place(after).map_err(ApiProblem::invalid)?;
        let asked = Asked::of("id", id(given)?).query("after", after);
        let reply = self.send(Tool::ShowRun, asked).await?;
        let run = read::<RunDetail>(&reply)?;
        let next = next_key(&reply).and_then(|key| key.parse().ok());
        let removed = self.removed_calls(run.run.finished_at);
        Ok((run, next, removed))
    }

    /// Returns the logs of a run's tasks: those after a place if one is given, otherwise the newest texts.
    async fn logs(&self, arguments: tools::RunLogs) -> Result<Answer> {
        if let Some(after) = &arguments.after {
            let (run, next, removed) = self.run(&arguments.id, Some(after)).await?;
            return Ok(Answer::logs_after(run, next, &arguments, removed)?);
        }
        // A wrong size is refused before anything is read.
        let mut tail = LogTail::new(&arguments)?;
        let of_run = || Ok::<_, ApiProblem>(Asked::of("id", id(&arguments.id)?));
        let mut after = None;
        loop {
            let asked = of_run()?.query("after", after);
            let reply = self.send(Tool::RunLogs, asked).await?;
            tail.add(read::<Vec<TaskLogs>>(&reply)?);
            after = next_key(&reply);
            if after.is_none() {
                break;
            }
        }
        let removed = match tail.is_empty() {
            true => self.run(&arguments.id, None).await?.2,
            false => None,
        };
        Ok(Answer::logs(tail, &arguments, removed)?)
    }

    fn removed_calls(&self, finished_at: Option<Timestamp>) -> Option<String> {
        let age = self.call.state.app.settings.retention.logs;
        removed_calls_note(finished_at, age, self.call.now())
    }

    /// Run the handler of the route of `tool`.
    async fn send(&self, tool: Tool, asked: Asked) -> Result {
        let route = tool.route().ok_or_else(|| no_route(tool))?;
        let query = asked.query_text();
        let mut uri = route.path.to_owned();
        if let Some((key, value)) = &asked.path {
            let escaped: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
            uri = uri.replace(&format!("{{{key}}}"), &escaped);
        }
        let with_query = format!("{uri}?{query}");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for span in self.call.headers.get_all(TRACEPARENT) {
            headers.append(TRACEPARENT, span.clone());
        }
        let path = asked.path.into_iter();
        let call = Call {
            method: route.method.as_str(),
            uri,
            path: path.map(|(key, value)| (key.to_owned(), value)).collect(),
            query: Query::read(&query, route.query, route.repeated)?,
            headers,
            body: asked
                .body
                .map(|body| body.to_string())
                .unwrap_or_default()
                .into(),
            ..self.call.clone()
        };
        dispatch(call, route.target(), with_query).await
    }
}

/// Return what a call asks of the route of its tool. Words such as `yesterday` count from `now`.
fn asked(tool: Tool, arguments: JsonObject, now: Timestamp) -> Result<Asked> {
    let time = |text: &str| time_text::read(text, now);
    let limit = |given| tools::limit(given).map_err(ApiProblem::invalid);
    Ok(match tool {
        Tool::Why => {
            let tools::Why { schedule, at } = tool.read_arguments(arguments)?;
            Asked::of("name", schedule).query("at", at)
        }
        Tool::ListSchedules => {
            let arguments: tools::ListSchedules = tool.read_arguments(arguments)?;
            let asked = Asked::default().query("after", arguments.after);
            asked.query("limit", Some(limit(arguments.limit)?))
        }
        Tool::ListEvents => {
            let arguments: tools::ListEvents = tool.read_arguments(arguments)?;
            let asked = Asked::default().query("after", arguments.after);
            asked.query("limit", Some(limit(arguments.limit)?))
        }
        Tool::ShowSchedule => {
            let tools::OneSchedule { schedule } = tool.read_arguments(arguments)?;
            Asked::of("name", schedule)
        }
        Tool::TriggerSchedule => {
            let tools::OneSchedule { schedule } = tool.read_arguments(arguments)?;
            // An operator triggers a schedule as it is defined.
            Asked::of("name", schedule).body(json!({}))
        }
        Tool::ListLaunches => launches(tool.read_arguments(arguments)?, now)?,
        Tool::ShowLaunch => {
            let tools::ShowLaunch { id: given } = tool.read_arguments(arguments)?;
            Asked::of("id", id(&given)?)
        }
        Tool::ShowRun => {
            let tools::ShowRun { id: given, after } = tool.read_arguments(arguments)?;
            let after = tools::place(after.as_deref()).map_err(ApiProblem::invalid)?;
            Asked::of("id", id(&given)?).query("after", after)
        }
        Tool::RunLogs => {
            let arguments: tools::RunLogs = tool.read_arguments(arguments)?;
            Asked::of("id", id(&arguments.id)?)
        }
        Tool::Plan => {
            let arguments: tools::Plan = tool.read_arguments(arguments)?;
            let mut asked = Asked::default()
                .query("from", parsed("from", arguments.from.as_deref(), time)?)
                .query("to", parsed("to", arguments.to.as_deref(), time)?)
                .query("schedule", arguments.schedule)
                .query("decisions", Some(tools::DECISIONS_MAX));
            for text in &arguments.outages {
                let read = |text: &str| Outage::read(text, now);
                let outage = parsed("outages", Some(text), read)?;
                let outage = outage.map(|Outage { from, to }| format!("{from}..{to}"));
                asked = asked.query("outage", outage);
            }
            asked
        }
        Tool::Health => {
            let tools::Nothing {} = tool.read_arguments(arguments)?;
            Asked::default()
        }
        Tool::PauseSchedule => {
            let arguments: tools::PauseSchedule = tool.read_arguments(arguments)?;
            let until = parsed("until", arguments.until.as_deref(), time)?;
            let body = json!({"note": arguments.note, "until": until});
            Asked::of("name", arguments.schedule).body(body)
        }
        Tool::ResumeSchedule => {
            let tools::ResumeSchedule { schedule, catch_up } = tool.read_arguments(arguments)?;
            Asked::of("name", schedule).body(json!({"catch_up": catch_up}))
        }
        Tool::CancelLaunch => {
            let tools::CancelLaunch { id: given, grace } = tool.read_arguments(arguments)?;
            Asked::of("id", id(&given)?).body(json!({"grace": grace}))
        }
    })
}

fn launches(arguments: tools::ListLaunches, now: Timestamp) -> Result<Asked> {
    let moment = |text: &str| Moment::read(text, now).map(|moment| moment.at(now));
    let statuses = Vec::from_iter(arguments.status.iter().map(|status| status.as_str()));
    let statuses = Some(statuses.join(",")).filter(|statuses| !statuses.is_empty());
    let limit = tools::limit(arguments.limit).map_err(ApiProblem::invalid)?;
    Ok(Asked::default()
        .query("schedule", arguments.schedule)
        .query("status", statuses)
        .query("kind", arguments.kind)
        .query("reason", arguments.reason)
        .query("package", arguments.package)
        .query(
            "since",
            parsed("since", arguments.since.as_deref(), moment)?,
        )
        .query(
            "until",
            parsed("until", arguments.until.as_deref(), moment)?,
        )
        .query("after", arguments.after)
        .query("limit", Some(limit)))
}

/// Parse an argument that may be missing. The error names it.
fn parsed<T>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>> {
    let parsed = text.map(parse).transpose();
    parsed.map_err(|error| ApiProblem::invalid(format!("`{name}`: {error}")))
}

/// Check the id of a launch or of a run.
fn id(text: &str) -> Result<String> {
    match text.parse::<ShortId>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            let problem = ApiProblem::invalid(format!("`id`: {error}"));
            Err(problem.hint("`list_launches` shows the ids"))
        }
    }
}

/// Read the answer of a route.
fn read<T: serde::de::DeserializeOwned>(reply: &Reply) -> Result<T> {
    serde_json::from_str(reply.as_text()).map_err(|error| {
        let message = format!("the answer cannot be read: {error}");
        Problem::new(ErrorCode::Internal, message).into()
    })
}

/// Return the note of a page after which there may be more. `wanted` is the size of a full one.
fn next_page(tool: Tool, reply: &Reply, wanted: usize) -> Option<String> {
    let key = next_key(reply)?;
    let found = reply.value().as_array().map_or(0, Vec::len);
    // Pages of other lists are short because of large entries.
    Some(match tool == Tool::ListLaunches && found < wanted {
        true => searched_note(found, &key),
        false => answer::next_page_note(&key),
    })
}

/// Returns the key of the page following an answer.
fn next_key(reply: &Reply) -> Option<String> {
    let (_, query) = reply.next_link()?.split_once('?')?;
    let query = query.split('>').next()?;
    let (_, key) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "after")?;
    Some(key.into_owned())
}

fn no_route(tool: Tool) -> ApiProblem {
    Problem::new(
        ErrorCode::Internal,
        format!("the tool `{tool}` has no route"),
    )
    .into()
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

    #[test]
    fn a_call_asks_the_route_of_its_tool_with_known_parameters() {
        let now: Timestamp = "2026-03-01T12:30:15Z".parse().unwrap();
        for (tool, arguments, expected) in [
            (
                Tool::ListLaunches,
                json!({"status": ["failed", "skipped"], "since": "2h", "until": "now", "limit": 7}),
                "status=failed%2Cskipped&since=2026-03-01T10%3A30%3A15Z&until=2026-03-01T12%3A30%3A15Z&limit=7",
            ),
            (
                Tool::Plan,
                json!({"to": "tomorrow", "outages": ["now..now+1h", "now+2h..now+3h"]}),
                "to=2026-03-02T00%3A00%3A00Z&decisions=1000&outage=2026-03-01T12%3A30%3A15Z..2026-03-01T13%3A30%3A15Z&outage=2026-03-01T14%3A30%3A15Z..2026-03-01T15%3A30%3A15Z",
            ),
            (Tool::ListEvents, json!({}), "limit=50"),
        ] {
            let Value::Object(arguments) = arguments else {
                unreachable!()
            };
            let asked = asked(tool, arguments, now).unwrap();
            let query = asked.query_text();
            assert_eq!(query, expected, "{tool}");
            let route = tool.route().unwrap();
            assert!(Query::read(&query, route.query, route.repeated).is_ok());
        }
    }
}
