//! Errors of a task, and whether a retry may help.

use std::any::Any;
use std::fmt;
use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

/// The result of a task: its output, or an [`Error`].
///
/// ```
/// use campanile_sdk::Result;
///
/// fn port(text: &str) -> Result<u16> {
///     Ok(text.parse()?)
/// }
///
/// assert_eq!(port("80")?, 80);
/// # Ok::<(), campanile_sdk::Error>(())
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a task failed, and whether the host should retry it.
///
/// The operator `?` converts every error of another crate to a **retryable** error. A useless retry costs seconds; a
/// missing retry loses a run that would have succeeded.
///
/// An [`io::Error`] of the kind "permission denied" or "read-only file system" becomes [`Error::denied`]: that is how a
/// missing grant appears in the sandbox.
///
/// ```
/// use campanile_sdk::{Error, Result};
///
/// fn parse(text: &str) -> Result<u16> {
///     if text.is_empty() {
///         return Err(Error::permanent("the port is empty; set `port` in the schedule's context"));
///     }
///     Ok(text.parse()?)
/// }
///
/// assert!(!parse("").unwrap_err().is_retryable());
/// assert!(parse("no number").unwrap_err().is_retryable());
/// ```
// `Error` does not implement `std::error::Error`: the blanket `From` below would collide with `From<T> for T`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    message: String,
    retryable: bool,
    retry_after: Option<Duration>,
    denied: bool,
    details: Option<Value>,
}

impl Error {
    /// Create an error of a call that may succeed later.
    ///
    /// The host retries the task up to its `max_attempts`.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// assert!(Error::retryable("the server does not answer").is_retryable());
    /// ```
    pub fn retryable(message: impl Into<String>) -> Error {
        Error {
            message: message.into(),
            retryable: true,
            retry_after: None,
            denied: false,
            details: None,
        }
    }

    /// Create an error of a call that will never succeed. The host does not retry the task.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// assert!(!Error::permanent("`port` is 0; set it in the schedule's context").is_retryable());
    /// ```
    pub fn permanent(message: impl Into<String>) -> Error {
        Error {
            retryable: false,
            ..Error::retryable(message)
        }
    }

    /// Create an error of a task that lacks a grant of the operator.
    ///
    /// The error is permanent. Its details contain `"kind": "denied"` for anyone reading the record, but the host doesn't rely
    /// on them: it records a failed task, and only suggests a grant for a path it was hiding.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// let error = Error::denied("the task may not read /source");
    /// assert_eq!(error.full_details(), Some(serde_json::json!({"kind": "denied"})));
    /// ```
    pub fn denied(message: impl Into<String>) -> Error {
        Error {
            denied: true,
            ..Error::permanent(message)
        }
    }

    /// Ask the host to wait at least this long before the next attempt. The resolution is one millisecond.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// # use std::time::Duration;
    /// let error = Error::retryable("the index is being rebuilt").retry_after(Duration::from_secs(300));
    /// assert_eq!(error.retry_after_wanted(), Some(Duration::from_secs(300)));
    /// ```
    pub fn retry_after(mut self, wait: Duration) -> Error {
        self.retry_after = Some(wait);
        self
    }

    /// Add data for programs: any JSON, which the host records beside the message.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// let error = Error::permanent("2 of 3 files are damaged").details(serde_json::json!(["a", "c"]));
    /// assert_eq!(error.full_details(), Some(serde_json::json!(["a", "c"])));
    /// ```
    pub fn details(mut self, details: impl Into<Value>) -> Error {
        self.details = Some(details.into());
        self
    }

    /// Return the message, one sentence for the person who reads the failure.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// assert_eq!(Error::permanent("`port` is 0").message(), "`port` is 0");
    /// ```
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Return whether the same call may succeed later.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// assert!(Error::from(std::io::Error::other("the disk is slow")).is_retryable());
    /// ```
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Return whether a grant was missing.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// use std::io;
    ///
    /// assert!(Error::from(io::Error::from(io::ErrorKind::PermissionDenied)).is_denied());
    /// ```
    pub fn is_denied(&self) -> bool {
        self.denied
    }

    /// Return the wait that was set with [`Error::retry_after`].
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// assert_eq!(Error::retryable("busy").retry_after_wanted(), None);
    /// ```
    pub fn retry_after_wanted(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Return the details as the host receives them, with `"kind": "denied"` if a grant was missing.
    ///
    /// ```
    /// # use campanile_sdk::Error;
    /// let error = Error::denied("no").details(serde_json::json!({"host": "example.com"}));
    /// let full = serde_json::json!({"host": "example.com", "kind": "denied"});
    /// assert_eq!(error.full_details(), Some(full));
    /// ```
    pub fn full_details(&self) -> Option<Value> {
        if !self.denied {
            return self.details.clone();
        }
        let mut full = Map::new();
        match &self.details {
            Some(Value::Object(given)) => full.extend(given.clone()),
            Some(other) => {
                full.insert("details".into(), other.clone());
            }
            None => {}
        }
        full.insert("kind".into(), "denied".into());
        Some(Value::Object(full))
    }

    /// Return the same error with `context` before its message.
    fn prefixed(mut self, context: impl fmt::Display) -> Error {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + 'static> From<E> for Error {
    fn from(error: E) -> Error {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            let text = inner.to_string();
            // The text of many errors already contains their cause.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            cause = inner.source();
        }
        let io = (&error as &dyn Any).downcast_ref::<io::Error>();
        if io.is_some_and(is_denial) {
            Error::denied(message)
        } else {
            Error::retryable(message)
        }
    }
}

fn is_denial(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Add what the task was doing to an error.
///
/// ```
/// use campanile_sdk::{Explain, Result};
///
/// fn read(path: &str) -> Result<String> {
///     std::fs::read_to_string(path).explain(|| format!("reading {path}"))
/// }
///
/// assert!(read("/nowhere").unwrap_err().message().starts_with("reading /nowhere: "));
/// ```
pub trait Explain<T> {
    /// Put `context()` before the error's message. The closure is called only if there is an error.
    ///
    /// ```
    /// # use campanile_sdk::{Error, Explain, Result};
    /// let read: Result<()> = Err(Error::permanent("too old")).explain(|| "reading the index");
    /// assert_eq!(read.unwrap_err().message(), "reading the index: too old");
    /// ```
    fn explain<W: fmt::Display>(self, context: impl FnOnce() -> W) -> Result<T>;
}

impl<T, E: Into<Error>> Explain<T> for std::result::Result<T, E> {
    fn explain<W: fmt::Display>(self, context: impl FnOnce() -> W) -> Result<T> {
        self.map_err(|error| error.into().prefixed(context()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_error_is_retryable_and_keeps_its_message() {
        let error = Error::from(io::Error::other("the disk is slow"));
        assert_eq!(error.message(), "the disk is slow");
        assert!(error.is_retryable());
        assert_eq!(error.full_details(), None);
    }

    #[test]
    fn permission_denied_is_a_missing_grant() {
        let error = Error::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(error.is_denied());
        assert!(!error.is_retryable());
        assert_eq!(error.full_details(), Some(json!({"kind": "denied"})));
    }

    #[test]
    fn details_of_a_denial_keep_their_keys() {
        let error = Error::denied("no").details(json!({"host": "example.com"}));
        assert_eq!(
            error.full_details(),
            Some(json!({"host": "example.com", "kind": "denied"}))
        );
        let error = Error::denied("no").details(7);
        assert_eq!(
            error.full_details(),
            Some(json!({"details": 7, "kind": "denied"}))
        );
    }

    #[test]
    fn an_explained_error_stays_permanent() {
        let explained: Result<()> =
            Err(Error::permanent("too old")).explain(|| "reading the index");
        let error = explained.unwrap_err();
        assert_eq!(error.message(), "reading the index: too old");
        assert!(!error.is_retryable());
    }

    #[test]
    fn the_causes_of_an_error_appear_once() {
        #[derive(Debug)]
        struct Outer(io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("could not open the index")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer(io::Error::other("no such file")));
        assert_eq!(error.message(), "could not open the index: no such file");
    }
}
