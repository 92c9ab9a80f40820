//! One request to a route, and its answer.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, LINK};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::form_urlencoded;

use crate::app::State;
use crate::kept_answers::KeptAnswer;
use crate::peer::Peer;
use crate::problem::ApiProblem;
use crate::query::Query;
use crate::{answer_body, auth};
use campanile_control::admin::token_admin::Principal;
use campanile_control::order::{Desk, Endpoint};
use campanile_control::problem::ErrorCode;
use campanile_control::question::{Page, Question};
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::json_depth;
use campanile_model::trace_context::{TRACEPARENT, TraceContext};
use campanile_store::{Db, Tx};

/// Says that an answer was given to an earlier request with the same key.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The most bytes of an answer that is kept for others.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// How JSON may write a zero character, which the database cannot store. After another backslash it is a text.
const ZERO: &[u8] = b"\\u0000";

pub(crate) type Result<T = Reply, E = ApiProblem> = std::result::Result<T, E>;

/// The function that answers the requests to a route.
pub(crate) type Handler = fn(Call) -> Pin<Box<dyn Future<Output = Result> + Send>>;

/// One request.
#[derive(Clone)]
pub(crate) struct Call {
    pub state: Arc<State>,
    /// Who makes the request; none on a route that needs no role.
    pub principal: Option<Principal>,
    /// The other end of the connection.
    pub peer: Option<Peer>,
    /// The database, whose events name the principal.
    pub db: Db,
    pub method: &'static str,
    /// The path as the client wrote it.
    pub uri: String,
    /// The values in the path, by name.
    pub path: Vec<(String, String)>,
    pub query: Query,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The answer to a request that was done.
pub(crate) struct Reply {
    pub status: StatusCode,
    content: Content,
    kind: &'static str,
    /// The revision of the schedule in the answer.
    revision: Option<i64>,
    /// The query of the next page.
    next: Option<String>,
    is_replayed: bool,
}

/// What an answer holds.
enum Content {
    Bytes(Bytes),
    Stream(Body),
}

/// Returns what serde_json writes at the end of an error.
fn at(error: &serde_json::Error) -> String {
    format!(" at line {} column {}", error.line(), error.column())
}

impl Call {
    /// Returns a value of the path.
    pub(crate) fn name(&self, key: &str) -> &str {
        let found = self.path.iter().find(|(name, _)| name == key);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Parse a value of the path.
    pub(crate) fn id<T: FromStr<Err: Display>>(&self, key: &str) -> Result<T> {
        self.name(key).parse().map_err(ApiProblem::invalid)
    }

    /// Returns the value of an endpoint's path parameter, if it has one.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> &str {
        endpoint.key().map_or("", |key| self.name(key))
    }

    /// Returns who's asking.
    pub(crate) fn desk(&self) -> Desk<'_> {
        let app = &self.state.app;
        Desk {
            by: self.by(),
            now: self.now(),
            caller: self.caller_traceparent(),
            namespace: self.namespace(),
            settings: &app.settings,
            key: Some(app.engine.approval_key()),
            revision: None,
        }
    }

    /// Reads the answer to the question in the query.
    pub(crate) async fn ask<Q: Question>(&self) -> Result<Page<Q::Answer>> {
        let question = self.query.question::<Q>()?;
        let of = self.of(&Q::ENDPOINT);
        Ok(question
            .ask(of, &self.desk(), &mut self.read().await?)
            .await?)
    }

    /// Read the body; an empty one stands for an object without keys.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        let body: &[u8] = if self.body.is_empty() {
            b"{}"
        } else {
            &self.body
        };
        let kind = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let is_json = ["application/json", "application/merge-patch+json"].contains(&kind);
        if !self.body.is_empty() && !is_json {
            let message = "the body is not declared as JSON: send the header `Content-Type: application/json`";
            return Err(ApiProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                ErrorCode::InvalidArgument,
                message,
            ));
        }
        let wrong = |error: serde_json::Error| ApiProblem::invalid(format!("the body: {error}"));
        json_depth::check(body).map_err(|too_deep| {
            ApiProblem::invalid(format!(
                "the body {too_deep}; send it flatter, or its deep part as a text"
            ))
        })?;
        // Most bodies have no such escape, and are parsed once.
        if body.windows(ZERO.len()).any(|part| part == ZERO)
            && has_zero(&serde_json::from_slice(body).map_err(wrong)?)
        {
            return Err(ApiProblem::invalid("the body has a zero character"));
        }
        let reader = &mut serde_json::Deserializer::from_slice(body);
        let parsed = serde_path_to_error::deserialize(&mut *reader).map_err(|error| {
            let path = error.path().to_string();
            let inner = error.into_inner();
            let (why, position) = (inner.to_string(), at(&inner));
            ApiProblem::invalid(match path.as_str() {
                "." => format!("the body: {why}"),
                path => format!("the body: `{path}`: {}", why.trim_end_matches(&position)),
            })
        })?;
        reader.end().map_err(wrong)?;
        Ok(parsed)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.state.app.engine.clock().now()
    }

    /// Begin a read transaction.
    pub(crate) async fn read(&self) -> Result<Tx> {
        Ok(self.db.read_long().await?)
    }

    /// Returns what is the same for all requests of one principal, and for no other one's.
    pub(crate) fn principal_key(&self) -> String {
        let principal = self.principal.as_ref();
        principal.map_or_else(String::new, Principal::key)
    }

    /// Returns the name of who makes the request.
    pub(crate) fn by(&self) -> &str {
        let principal = self.principal.as_ref();
        principal.map_or("", |principal| principal.name.as_str())
    }

    /// Refuse what `needed` may do beyond the role of the route. `what` is the subject of the sentence.
    pub(crate) fn require(&self, needed: Role, what: &str) -> Result<()> {
        let principal = self.principal.as_ref();
        principal.map_or(Ok(()), |principal| auth::require(principal, needed, what))
    }

    /// Returns the span of the client; none when it sent no valid one, or more than one.
    pub(crate) fn caller_traceparent(&self) -> Option<TraceContext> {
        let mut values = self.headers.get_all(TRACEPARENT).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        TraceContext::of_caller(value.to_str().ok()?)
    }

    /// Returns the revision of which the client has the schedule; none for any revision.
    ///
    /// # Errors
    ///
    /// When the header is missing, or is no revision.
    pub(crate) fn if_match(&self) -> Result<Option<i64>> {
        let mut values = self.headers.get_all(IF_MATCH).iter();
        let Some(value) = values.next() else {
            let message = "the request has no header `If-Match`: send the `ETag` of the schedule that you have read";
            return Err(ApiProblem::new(
                StatusCode::PRECONDITION_REQUIRED,
                ErrorCode::InvalidArgument,
                message,
            ));
        };
        let value = value.to_str().unwrap_or_default().trim();
        if value == "*" {
            return Ok(None);
        }
        let number = value
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let number = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|number| number.parse().ok());
        if values.next().is_some() {
            return Err(ApiProblem::invalid(
                "the request has two headers `If-Match`",
            ));
        }
        let wrong = || {
            ApiProblem::invalid(format!(
                "`If-Match` is `{value}`: send an `ETag` such as \"3\", with its quotes"
            ))
        };
        number.map(Some).ok_or_else(wrong)
    }
}

/// Whether a text of a JSON value has a zero character.
fn has_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_zero),
        Value::Object(entries) => {
            (entries.iter()).any(|(key, value)| key.contains('\0') || has_zero(value))
        }
        _ => false,
    }
}

impl Reply {
    /// Answer with JSON.
    pub(crate) fn json(answer: &impl Serialize) -> Result {
        let json = serde_json::to_string(answer);
        let json = json.map_err(|error| {
            ApiProblem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                ErrorCode::Internal,
                format!("the answer cannot be written as JSON: {error}"),
            )
        })?;
        Ok(Reply::text(StatusCode::OK, json))
    }

    /// Answer with a text that is JSON.
    pub(crate) fn text(status: StatusCode, json: impl Into<Bytes>) -> Reply {
        Reply {
            status,
            content: Content::Bytes(json.into()),
            kind: "application/json",
            revision: None,
            next: None,
            is_replayed: false,
        }
    }

    /// Answer with a text of the media type `kind`.
    pub(crate) fn plain(kind: &'static str, text: String) -> Reply {
        Reply {
            kind,
            ..Reply::text(StatusCode::OK, text)
        }
    }

    /// Answer with server-sent events.
    pub(crate) fn events(body: Body) -> Reply {
        let kind = "text/event-stream";
        Reply {
            content: Content::Stream(body),
            kind,
            ..Reply::text(StatusCode::OK, String::new())
        }
    }

    /// Answer with a page of a list. `last` is the key of its last entry, when there may be more.
    pub(crate) fn page(call: &Call, answer: &impl Serialize, last: Option<String>) -> Result {
        let reply = Reply::json(answer)?;
        let next = last.map(|last| call.query.next_page(&last));
        Ok(Reply {
            next: next.map(|query| format!("<{}?{query}>; rel=\"next\"", call.uri)),
            ..reply
        })
    }

    /// Name the revision of the schedule in the answer.
    pub(crate) fn revision(self, revision: i64) -> Reply {
        Reply {
            revision: Some(revision),
            ..self
        }
    }

    /// Say that an earlier request had this answer.
    pub(crate) fn replayed(self) -> Reply {
        Reply {
            is_replayed: true,
            ..self
        }
    }

    /// Returns the answer for others; none for a stream, or for one that is too large to be kept.
    pub(crate) fn to_keep(&self) -> Option<KeptAnswer> {
        match &self.content {
            Content::Bytes(bytes) if bytes.len() <= KEPT_BYTES_MAX => Some(KeptAnswer {
                bytes: bytes.clone(),
                kind: self.kind,
                next: self.next.clone(),
            }),
            _ => None,
        }
    }

    /// Answer as another client was answered.
    pub(crate) fn kept(answer: KeptAnswer) -> Reply {
        Reply {
            kind: answer.kind,
            next: answer.next,
            ..Reply::text(StatusCode::OK, answer.bytes)
        }
    }

    /// Returns the text of the answer; an empty one for a stream, which this leaves out.
    pub(crate) fn as_text(&self) -> &str {
        match &self.content {
            Content::Bytes(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Content::Stream(_) => "",
        }
    }

    /// Returns the key of the next page, if there may be one.
    pub(crate) fn next_key(&self) -> Option<String> {
        let (_, query) = self.next.as_ref()?.split_once('?')?;
        let query = query.split('>').next()?;
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        let (_, key) = pairs.find(|(name, _)| name == "after")?;
        Some(key.into_owned())
    }

    /// Returns the JSON of the answer; null for a stream.
    pub(crate) fn value(&self) -> Value {
        match &self.content {
            Content::Bytes(bytes) => serde_json::from_slice(bytes).unwrap_or_default(),
            Content::Stream(_) => Value::Null,
        }
    }

    /// Turns this into a response to `principal`.
    ///
    /// # Errors
    ///
    /// Returns an error for a large answer if too many of them are waiting for their clients.
    pub(crate) async fn response(self, state: &State, principal: &str) -> Result<Response<Body>> {
        let body = match self.content {
            Content::Bytes(bytes) => answer_body::body(state, principal, bytes).await?,
            Content::Stream(body) => body,
        };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let etag = self
            .revision
            .map(|revision| (ETAG, format!("\"{revision}\"")));
        let link = self.next.map(|next| (LINK, next));
        for (name, value) in etag.into_iter().chain(link) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
        if self.is_replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        Ok(response)
    }
}
