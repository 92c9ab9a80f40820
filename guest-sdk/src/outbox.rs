//! The outbox: HTTP messages that the host delivers after the task has succeeded.

use serde::Serialize;

use crate::error::{Error, Explain, Result};
use crate::run::Run;

/// The reason why the host did not accept a message.
pub(crate) enum Refused {
    /// The operator did not grant the address.
    AccessDenied,
    /// Any other reason, in the host's words.
    Other(String),
}

/// An HTTP request that the host delivers after the task has succeeded. [`Run::send`] hands it over.
///
/// ```
/// use campanile_sdk::Message;
/// use serde_json::json;
///
/// let message = Message::post("https://billing.example.com/invoices")
///     .header("authorization", "Bearer {secret:billing_token}")
///     .json(&json!({"customer": 7, "cents": 4200}))?;
/// assert_eq!(message.method(), "POST");
/// assert_eq!(message.body(), br#"{"customer":7,"cents":4200}"#);
/// # Ok::<(), campanile_sdk::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "`Run::send` hands the message over"]
pub struct Message {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Message {
    /// Return a message with this method and without a body. The case of the method counts.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// let message = Message::new("DELETE", "https://example.com/reservations/7");
    /// assert_eq!(message.url(), "https://example.com/reservations/7");
    /// ```
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Message {
        Message {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Return a `POST` without a body.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// assert_eq!(Message::post("https://example.com/hook").method(), "POST");
    /// ```
    pub fn post(url: impl Into<String>) -> Message {
        Message::new("POST", url)
    }

    /// Add a header. In the value, `{secret:NAME}` stands for a secret that the operator has granted: the host fills it in
    /// at each delivery and does not record it.
    ///
    /// The host itself sets `Idempotency-Key`, `Content-Length`, `Host` and `User-Agent`.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// let message = Message::post("https://example.com/hook").header("x-kind", "invoice");
    /// assert_eq!(message.headers(), [("x-kind".to_owned(), "invoice".to_owned())]);
    /// ```
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Message {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Set the body.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// let message = Message::post("https://example.com/hook").bytes("a,b\n1,2\n");
    /// assert_eq!(message.body(), b"a,b\n1,2\n");
    /// ```
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Message {
        self.body = body.into();
        self
    }

    /// Set the body to `value` as JSON, and the header `content-type`.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// let message = Message::post("https://example.com/hook").json(&[1, 2])?;
    /// assert_eq!(message.body(), b"[1,2]");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Permanent if `value` cannot be converted to JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Message> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Error::permanent(error.to_string()))
            .explain(|| "the body of a message cannot be converted to JSON".to_owned())?;
        Ok(self.header("content-type", "application/json").bytes(body))
    }

    /// Return the method.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// assert_eq!(Message::new("PUT", "https://example.com/").method(), "PUT");
    /// ```
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Return the address.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// assert_eq!(Message::post("https://example.com/").url(), "https://example.com/");
    /// ```
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Return the names and values of the headers, in the order in which they were added.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// assert!(Message::post("https://example.com/").headers().is_empty());
    /// ```
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Return the body.
    ///
    /// ```
    /// # use campanile_sdk::Message;
    /// assert!(Message::post("https://example.com/").body().is_empty());
    /// ```
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Run {
    /// Send a message: the host delivers it if and only if this call of the task succeeds. Return the message's id.
    ///
    /// The host records the message together with the success of the call. It delivers the message at least once, and
    /// again after each failed delivery for days. Each delivery has the header `Idempotency-Key` with the id, by which the
    /// receiver recognises a message that it has seen before. A retry or a recovery of the call sends the same ids in the
    /// same order.
    ///
    /// ```
    /// use campanile_sdk::{AnyContext, Message, Package, Result, Run, Task};
    ///
    /// fn bill(run: &Run, _: AnyContext) -> Result<()> {
    ///     run.send(Message::post("https://billing.example.com/invoices").json(&42)?)?;
    ///     Ok(())
    /// }
    ///
    /// let package = Package::new("bill", "0.1.0").task(Task::new("bill", bill));
    /// let run = Run::fake().build();
    /// package.call::<()>("bill", &run)?;
    /// assert_eq!(run.messages()[0].body(), b"42");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Denied if the operator did not grant HTTP requests to the address. Permanent if the message is not a valid
    /// request, is too large, or holds the value of a secret.
    pub fn send(&self, message: Message) -> Result<String> {
        let Message { method, url, .. } = &message;
        let what = format!("sending the message {method} {url}");
        self.host.send(&message).map_err(|refused| match refused {
            Refused::AccessDenied => Error::denied(format!(
                "{what}: it is not granted; the operator grants its host with `[[grants.http]]` in the package's sidecar file"
            )),
            Refused::Other(why) => Error::permanent(format!("{what}: {why}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnyContext, Package, Task};

    fn send_two(run: &Run, _: AnyContext) -> Result<[String; 2]> {
        let first = run.send(Message::post("https://a.example/1"))?;
        let second = run.send(Message::post("https://a.example/2"))?;
        match run.attempt() {
            1 => Err(Error::retryable("later")),
            _ => Ok([first, second]),
        }
    }

    #[test]
    fn messages_are_kept_if_the_task_succeeds_and_their_ids_are_those_of_the_failed_attempt() {
        let package = Package::new("p", "1.0.0").task(Task::new("send", send_two));
        let failed = Run::fake().build();
        assert!(package.call::<[String; 2]>("send", &failed).is_err());
        assert!(failed.messages().is_empty());
        let second = Run::fake().attempt(2).build();
        let ids: [String; 2] = package.call("send", &second).unwrap();
        assert_ne!(ids[0], ids[1]);
        let again: [String; 2] = package
            .call("send", &Run::fake().attempt(3).build())
            .unwrap();
        assert_eq!(ids, again);
        let urls: Vec<String> = second
            .messages()
            .iter()
            .map(|sent| sent.url().to_owned())
            .collect();
        assert_eq!(urls, ["https://a.example/1", "https://a.example/2"]);
    }

    #[test]
    fn an_address_without_a_scheme_is_a_permanent_error() {
        let run = Run::fake().build();
        let error = run.send(Message::post("a.example/1")).unwrap_err();
        assert!(!error.is_denied() && !error.is_retryable(), "{error}");
        assert!(
            error
                .message()
                .starts_with("sending the message POST a.example/1: "),
            "{error}"
        );
    }

    #[test]
    fn a_message_to_an_address_that_is_not_granted_is_denied() {
        let run = Run::fake().deny_messages().build();
        let error = run.send(Message::post("https://a.example/1")).unwrap_err();
        assert!(error.is_denied());
        assert!(error.message().contains("`[[grants.http]]`"), "{error}");
    }
}
