//! `--server`: the client with which commands ask the API of a host in place of a database.
//!
//! An answer is read into the type that the command gets from a database, and printed in the same way.

mod address;
mod events;
mod given;

use std::fmt::Display;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, IF_MATCH, LINK};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use url::form_urlencoded;

use crate::output::{ErrorCode, Failure, Result, failed, refused};
pub(crate) use address::Address;
use campanile_control::order::{Endpoint, Order};
use campanile_control::problem::Problem;
use campanile_control::question::{Page, Question, parameters};
use campanile_model::text::{size_rounded, size_text};
use campanile_model::trace_context::{TRACEPARENT, TraceContext};
use campanile_server::BODY_BYTES_MAX;
pub(crate) use events::Events;
pub(crate) use given::{Given, given};

/// How long to wait for a connection.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// How long to wait for an answer; the server ends a request sooner.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The header with the id of the last event that a client has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Refuse a command that the API has no routes for. `command` is the subject of the sentence, and `instead` says what to do.
pub(crate) fn needs_database(command: &str, instead: &str) -> Failure {
    refused!("{command} needs the database, and does not work with --server").hint(instead)
}

/// Refuse a command that reads no record.
pub(crate) fn works_here(command: &str) -> Failure {
    refused!("`campanile {command}` works on this machine, and not with --server")
        .hint("leave --server out")
}

/// A host whose API a command asks.
#[derive(Clone)]
pub(crate) struct Client {
    address: Address,
    /// None on a Unix socket, where the user of this process is known.
    token: Option<String>,
}

/// A request to a route.
#[derive(Clone)]
pub(crate) struct Call<'c> {
    client: &'c Client,
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: Vec<(HeaderName, String)>,
    body: Option<Vec<u8>>,
}

/// What the API answers when a request is not done.
#[derive(Deserialize)]
struct ProblemDetails {
    detail: String,
    code: ErrorCode,
    hint: Option<String>,
    lines: Vec<String>,
}

impl Client {
    pub(crate) fn new(address: Address, token: Option<String>) -> Client {
        Client { address, token }
    }

    /// Prepare a request with the method GET. `path` has the segments of the route after `/api/v1`.
    pub(crate) fn get(&self, path: &[&str]) -> Call<'_> {
        self.call(Method::GET, path)
    }

    /// Prepare a request with the method POST and this body.
    pub(crate) fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Call<'_>> {
        self.call(Method::POST, path).body(body)
    }

    /// Prepare a message of the Model Context Protocol.
    pub(crate) fn mcp(&self, message: &impl Serialize) -> Result<Call<'_>> {
        let mut call = self.call(Method::POST, &[]);
        call.path = format!("{}/mcp", self.address.path());
        let answers = "application/json, text/event-stream".to_owned();
        call.header(ACCEPT, answers).body(message)
    }

    /// Asks the host a question, with `of` as the path's parameter.
    pub(crate) async fn ask<Q: Question>(&self, of: &str, question: &Q) -> Result<Page<Q::Answer>> {
        let (answer, next) = self.question(of, question)?.answered().await?;
        Ok(Page { answer, next })
    }

    /// Prepares a question, with `of` as the path's parameter.
    pub(crate) fn question<Q: Question>(&self, of: &str, question: &Q) -> Result<Call<'_>> {
        self.at(&Q::ENDPOINT, of)?.query(question)
    }

    /// Sends an order to the host, with `of` as the path's parameter.
    ///
    /// Orders checking a schedule's revision apply to any without `revision`.
    pub(crate) async fn order<O: Order>(
        &self,
        of: &str,
        order: &O,
        caller: Option<TraceContext>,
        revision: Option<i64>,
    ) -> Result<O::Output> {
        let mut call = self.at(&O::ENDPOINT, of)?;
        if call.method != Method::DELETE {
            call = call.body(order)?;
        }
        if O::CHECKS_REVISION {
            let tag = revision.map_or_else(|| "*".to_owned(), |revision| format!("\"{revision}\""));
            call = call.header(IF_MATCH, tag);
        }
        if let Some(caller) = caller {
            call = call.header(HeaderName::from_static(TRACEPARENT), caller.to_string());
        }
        call.send().await
    }

    /// Prepares a request to an endpoint, with `of` as the path's parameter.
    fn at(&self, endpoint: &Endpoint, of: &str) -> Result<Call<'_>> {
        let segments = endpoint.path.split('/');
        let segments = segments.map(|part| {
            if part.starts_with('{') {
                encoded(of)
            } else {
                part.to_owned()
            }
        });
        let path = Vec::from_iter(segments).join("/");
        let method = Method::from_bytes(endpoint.method.as_str().as_bytes());
        let mut call = self.call(method.map_err(Failure::failed)?, &[]);
        call.path = format!("{}{path}", self.address.path());
        Ok(call)
    }

    fn call(&self, method: Method, path: &[&str]) -> Call<'_> {
        let segments = path.iter().map(|segment| format!("/{}", encoded(segment)));
        Call {
            client: self,
            method,
            path: format!(
                "{}/api/v1{}",
                self.address.path(),
                segments.collect::<String>()
            ),
            query: Vec::new(),
            headers: Vec::new(),
            body: None,
        }
    }

    fn unreachable(&self, why: impl Display) -> Failure {
        let problem = Problem::new(
            ErrorCode::Unavailable,
            format!("the server {} cannot be reached: {why}", self.address),
        );
        problem
            .hint("check that the host runs, that its API is on, and that the address is right")
            .into()
    }
}

/// Returns a segment of a path, with escapes for what a path cannot have.
fn encoded(segment: &str) -> String {
    let escaped = segment.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    });
    escaped.collect()
}

impl Call<'_> {
    /// Adds a question's fields as parameters.
    pub(crate) fn query(mut self, question: &impl Serialize) -> Result<Self> {
        self.query = parameters(question)?;
        Ok(self)
    }

    /// Ask for the events after this one, of an earlier connection.
    pub(crate) fn last_event(self, id: Option<&str>) -> Self {
        match id {
            Some(id) => self.header(LAST_EVENT_ID, id.to_owned()),
            None => self,
        }
    }

    fn header(mut self, name: HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    fn body(mut self, body: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_vec(body)
            .map_err(|error| failed!("the request cannot be written as JSON: {error}"))?;
        // A server that refuses a body closes the connection while it's being written.
        if json.len() > BODY_BYTES_MAX {
            let (has, may) = (
                size_rounded(json.len() as u64),
                size_text(BODY_BYTES_MAX as u64),
            );
            return Err(refused!("the request has {has}, and the API takes {may}")
                .hint("pass less, or run the command with --database where the database can be reached"));
        }
        self.body = Some(json);
        Ok(self.header(CONTENT_TYPE, "application/json".to_owned()))
    }

    /// Send the request, and read its answer.
    ///
    /// # Errors
    ///
    /// The error of the answer, as the command reports it with a database too; or that the server cannot be reached.
    pub(crate) async fn send<T: DeserializeOwned>(self) -> Result<T> {
        Ok(self.answered().await?.0)
    }

    /// Send the request, and listen to the events of its answer.
    pub(crate) async fn listen(self) -> Result<Events> {
        let client = self.client;
        let call = self.header(ACCEPT, "text/event-stream".to_owned());
        let response = timeout(ANSWER_WAIT, call.response()).await;
        let response = response.map_err(|_| client.unreachable("it did not answer in time"))??;
        Ok(Events::new(response.into_body()))
    }

    /// Send the request. Return the answer, and the key of the next page if there is one.
    async fn answered<T: DeserializeOwned>(self) -> Result<(T, Option<String>)> {
        let client = self.client;
        let answered = async {
            let response = self.response().await?;
            let next = next_key(&response);
            Ok::<_, Failure>((body(client, response).await?, next))
        };
        let answered = timeout(ANSWER_WAIT, answered).await;
        let (bytes, next) =
            answered.map_err(|_| client.unreachable("it did not answer in time"))??;
        let answer = serde_json::from_slice(&bytes).map_err(|error| {
            failed!("the answer of {} cannot be read: {error}", client.address)
                .hint("use the version of the host: `campanile host list` shows it")
        })?;
        Ok((answer, next))
    }

    /// Send the request, and return the answer if its status is a success.
    async fn response(self) -> Result<Response<Incoming>> {
        let client = self.client;
        let mut uri = self.path;
        if !self.query.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            uri += &format!("?{}", query.extend_pairs(self.query).finish());
        }
        let mut request = Request::builder()
            .method(self.method)
            .uri(uri)
            .header(HOST, client.address.authority());
        if let Some(token) = &client.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(self.body.unwrap_or_default()));
        let request = request.body(body).map_err(Failure::refused)?;
        let stream = timeout(CONNECT_WAIT, client.address.connect()).await;
        let stream = stream.map_err(|_| client.unreachable("it did not answer in time"))?;
        let stream = stream.map_err(|error| client.unreachable(error))?;
        let lost = |error: hyper::Error| client.unreachable(error);
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        // It ends with the answer, or with the process.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(lost)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(client, response).await)
        }
    }
}

/// Returns the key with which the next page begins.
fn next_key(response: &Response<Incoming>) -> Option<String> {
    let link = response.headers().get(LINK)?.to_str().ok()?;
    let (_, query) = link.strip_suffix(">; rel=\"next\"")?.split_once('?')?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (_, key) = pairs.find(|(name, _)| name == "after")?;
    Some(key.into_owned())
}

async fn body(client: &Client, response: Response<Incoming>) -> Result<Bytes> {
    let read = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    Ok(read.map_err(|error| client.unreachable(error))?.to_bytes())
}

/// Returns what the API said, as the command says it with a database.
async fn refusal(client: &Client, response: Response<Incoming>) -> Failure {
    let status = response.status();
    let bytes = match body(client, response).await {
        Ok(bytes) => bytes,
        Err(failure) => return failure,
    };
    let Ok(problem) = serde_json::from_slice::<ProblemDetails>(&bytes) else {
        return failed!(
            "{} answered {status}, and is no API of Campanile",
            client.address
        )
        .hint("check the address, and what answers there");
    };
    let ProblemDetails {
        detail,
        code,
        hint,
        lines,
    } = problem;
    let lines = lines.iter().map(|line| format!("\n  {line}"));
    let lines: String = lines.collect();
    let colon = if lines.is_empty() { "" } else { ":" };
    let hint = match status {
        StatusCode::UNAUTHORIZED => Some(
            "give a token with --token or CAMPANILE_TOKEN; `campanile token create` makes one, and a host names the file of its own when it starts"
                .to_owned(),
        ),
        _ => hint,
    };
    let problem = Problem::new(code, format!("{detail}{colon}{lines}"));
    problem.hint(hint.unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_of_a_path() {
        assert_eq!(encoded("a-b_c.d~9"), "a-b_c.d~9");
        assert_eq!(encoded("../x?y=é%#"), "..%2Fx%3Fy%3D%C3%A9%25%23");
    }
}
