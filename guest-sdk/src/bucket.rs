//! Buckets: keys and values that a package keeps from one run to the next, in the host's database.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Explain, Result};
use crate::host;
use crate::run::Run;

/// The reason why a bucket operation failed in the host.
pub(crate) enum Fault {
    /// The bucket does not exist, or the operator did not grant it.
    NoSuchStore,
    /// The grant does not allow the operation.
    AccessDenied,
    /// Any other failure, in the host's words: the bucket is full, the database does not answer.
    Other(String),
}

impl Fault {
    /// Convert the fault to the task's error, with `operation` before its message.
    fn explain(self, name: &str, operation: impl FnOnce() -> String) -> Error {
        let operation = operation();
        match self {
            Fault::NoSuchStore => Error::denied(format!(
                "{operation}: the bucket `{name}` is not granted; the operator grants it with `[[grants.keyvalue]] bucket = \"{name}\"` in the package's sidecar file"
            )),
            Fault::AccessDenied => Error::denied(format!(
                "{operation}: the bucket's grant does not allow writing; the operator allows it with `access = \"write\"` in the bucket's `[[grants.keyvalue]]` in the package's sidecar file"
            )),
            Fault::Other(message) => Error::retryable(format!("{operation}: {message}")),
        }
    }
}

/// An open bucket: keys and values that the host keeps from one run to the next.
///
/// Each call is atomic, and the next call sees its effect. The host does not undo it if the task fails later: a retry
/// finds what the earlier attempt wrote. [`Run::session_bucket`] opens a bucket whose writes count only if the task
/// succeeds.
///
/// ```
/// use campanile_sdk::{Package, Request, Result, Run, Task};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// struct Feed {
///     newest: u64,
/// }
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Seen {
///     until: u64,
/// }
///
/// fn follow(run: &Run, feed: Feed) -> Result<u64> {
///     let bucket = run.bucket("state")?;
///     let seen: Seen = bucket.get_json("seen")?.unwrap_or_default();
///     bucket.set_json("seen", &Seen { until: feed.newest })?;
///     Ok(feed.newest - seen.until)
/// }
///
/// fn package() -> Package {
///     Package::new("follow", "0.1.0")
///         .task(Task::new("follow", follow))
///         .request(Request::write_bucket("state").because("the position in the feed"))
/// }
///
/// let run = Run::fake()
///     .bucket("state", [("seen", r#"{"until":40}"#)])
///     .context(serde_json::json!({"newest": 42}))
///     .build();
/// assert_eq!(package().call::<u64>("follow", &run)?, 2);
/// assert_eq!(run.bucket("state")?.get("seen")?, Some(br#"{"until":42}"#.to_vec()));
/// # Ok::<(), campanile_sdk::Error>(())
/// ```
///
/// # Errors
///
/// A call on a bucket fails with an error that is
///
/// * *denied* if the operator did not grant the bucket, or did not grant it for writing;
/// * *permanent* if a value cannot be converted from or to JSON;
/// * *retryable* in all other cases, also if the bucket is full.
pub struct Bucket {
    name: String,
    open: host::OpenBucket,
}

impl Run {
    /// Open the bucket `name`, which the operator has granted.
    ///
    /// Each package has its own buckets: two packages that open the same name get different buckets.
    ///
    /// ```
    /// use campanile_sdk::Run;
    ///
    /// let run = Run::fake().bucket("default", [("calls", "41")]).build();
    /// assert!(run.bucket("default").is_ok());
    /// assert!(run.bucket("other").err().is_some_and(|error| error.is_denied()));
    /// ```
    ///
    /// # Errors
    ///
    /// Denied if the bucket is not granted; retryable if the host could not open it.
    pub fn bucket(&self, name: &str) -> Result<Bucket> {
        Bucket::opened(name, self.host.open_bucket(name))
    }

    /// Open the bucket `name` in the session of this call: what the task writes through it is kept if and only if this
    /// call of the task succeeds.
    ///
    /// The host commits the writes of the session together with the success of the call. After a failure or a crash,
    /// the next attempt finds the bucket as it was. Reads through this bucket see the writes of the session. All
    /// buckets that a call opens this way have one session.
    ///
    /// If another call has changed a value that this session read, this call fails and is retried. Increments never
    /// conflict: the host adds them at the commit.
    ///
    /// ```
    /// use campanile_sdk::{AnyContext, Error, Package, Result, Run, Task};
    ///
    /// fn count(run: &Run, _: AnyContext) -> Result<u64> {
    ///     let count = run.session_bucket("state")?.increment("launches", 1)?;
    ///     match run.attempt() {
    ///         1 => Err(Error::retryable("the first attempt fails")),
    ///         _ => Ok(count),
    ///     }
    /// }
    ///
    /// let package = Package::new("count", "0.1.0").task(Task::new("count", count));
    /// let first = Run::fake().bucket("state", [("launches", "41")]).build();
    /// assert!(package.call::<u64>("count", &first).is_err());
    /// assert_eq!(first.bucket("state")?.get_json("launches")?, Some(41));
    ///
    /// let second = Run::fake().buckets_of(&first).attempt(2).build();
    /// assert_eq!(package.call::<u64>("count", &second)?, 42);
    /// assert_eq!(second.bucket("state")?.get_json("launches")?, Some(42));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// In a native test, [`Package::call`](crate::Package::call) commits the session.
    ///
    /// # Errors
    ///
    /// Denied if the bucket is not granted; retryable if the host could not open it.
    pub fn session_bucket(&self, name: &str) -> Result<Bucket> {
        Bucket::opened(name, self.host.open_session_bucket(name))
    }
}

impl Bucket {
    fn opened(name: &str, opened: std::result::Result<host::OpenBucket, Fault>) -> Result<Bucket> {
        match opened {
            Ok(open) => Ok(Bucket {
                name: name.to_owned(),
                open,
            }),
            Err(fault) => Err(fault.explain(name, || "opening a bucket".to_owned())),
        }
    }

    /// Return the bucket's name.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// assert_eq!(run.bucket("default")?.name(), "default");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Return the bytes under `key`, or `None` if the bucket has no such key.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// let bucket = run.bucket("default")?;
    /// bucket.set("cursor", "page 7")?;
    /// assert_eq!(bucket.get("cursor")?.as_deref(), Some(&b"page 7"[..]));
    /// assert_eq!(bucket.get("another")?, None);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.explained(self.open.get(key), || format!("reading `{key}`"))
    }

    /// Store `value` under `key` and replace an earlier value.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// run.bucket("default")?.set("etag", "33a64df5")?;
    /// assert!(run.bucket("default")?.exists("etag")?);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.explained(self.open.set(key, value.as_ref()), || {
            format!("writing `{key}`")
        })
    }

    /// Return the value under `key`, read from JSON, or `None` if the bucket has no such key.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("rows", "[1, 2]")]).build();
    /// let rows: Option<Vec<u32>> = run.bucket("default")?.get_json("rows")?;
    /// assert_eq!(rows, Some(vec![1, 2]));
    /// let error = run.bucket("default")?.get_json::<bool>("rows").unwrap_err();
    /// assert!(!error.is_retryable());
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors). Permanent if the value is not JSON or cannot be read as a `T`.
    pub fn get_json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key)? else {
            return Ok(None);
        };
        serde_json::from_slice(&value)
            .map(Some)
            .map_err(|error| Error::permanent(error.to_string()))
            .explain(|| {
                format!(
                    "the value under `{key}` in the bucket `{}` cannot be read",
                    self.name
                )
            })
    }

    /// Store `value` under `key` as JSON and replace an earlier value.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// let bucket = run.bucket("default")?;
    /// bucket.set_json("until", &run.original_scheduled_time())?;
    /// assert_eq!(bucket.get_json("until")?, Some(run.original_scheduled_time()));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors). Permanent if `value` cannot be written as JSON.
    pub fn set_json(&self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        let value = serde_json::to_vec(value).map_err(|error| {
            Error::permanent(format!(
                "the value for `{key}` in the bucket `{}` cannot be written as JSON: {error}",
                self.name
            ))
        })?;
        self.set(key, value)
    }

    /// Delete `key` and its value. Does nothing if the bucket has no such key.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("old", "1")]).build();
    /// let bucket = run.bucket("default")?;
    /// bucket.delete("old")?;
    /// assert!(!bucket.exists("old")?);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn delete(&self, key: &str) -> Result<()> {
        self.explained(self.open.delete(key), || format!("deleting `{key}`"))
    }

    /// Return whether the bucket has `key`.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("sent", "yes")]).build();
    /// let bucket = run.bucket("default")?;
    /// assert_eq!((bucket.exists("sent")?, bucket.exists("seen")?), (true, false));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn exists(&self, key: &str) -> Result<bool> {
        self.explained(self.open.exists(key), || format!("checking for `{key}`"))
    }

    /// Return all keys, in the order in which they were first set.
    ///
    /// The host returns the keys in pages. A key that another run sets or deletes during the call may be missing or
    /// present.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// let bucket = run.bucket("default")?;
    /// bucket.set_many([("b", "1"), ("a", "2")])?;
    /// assert_eq!(bucket.keys()?, ["b", "a"]);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn keys(&self) -> Result<Vec<String>> {
        self.explained(self.open.keys(), || "listing the keys".to_owned())
    }

    /// Add `by` to the number under `key` and return the sum. An absent key counts as 0.
    ///
    /// The addition is atomic: two runs that increment at the same time both count. The number is stored as decimal
    /// text, which is also its JSON.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("calls", "41")]).build();
    /// let bucket = run.bucket("default")?;
    /// assert_eq!(bucket.increment("calls", 1)?, 42);
    /// assert_eq!(bucket.get_json("calls")?, Some(42));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors). Retryable also if the value is not a number or the sum exceeds 64 bits.
    pub fn increment(&self, key: &str, by: u64) -> Result<u64> {
        self.explained(self.open.increment(key, by), || {
            format!("incrementing `{key}`")
        })
    }

    /// Return the bytes under each of `keys`, in their order, with `None` for each absent key. One call accepts 1000
    /// keys.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("a", "1"), ("b", "2")]).build();
    /// let values = run.bucket("default")?.get_many(["b", "z"])?;
    /// assert_eq!(values, [Some(b"2".to_vec()), None]);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn get_many<K: Into<String>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        self.explained(self.open.get_many(&keys), || {
            format!("reading {} keys", keys.len())
        })
    }

    /// Store all `entries`, or none of them if there is an error. One call accepts 1000 entries.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("", ""); 0]).build();
    /// let bucket = run.bucket("default")?;
    /// bucket.set_many([("page", "7"), ("etag", "33a64df5")])?;
    /// assert_eq!(bucket.get("page")?, Some(b"7".to_vec()));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn set_many<K: Into<String>, V: Into<Vec<u8>>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        let entries: Vec<(String, Vec<u8>)> = entries
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        self.explained(self.open.set_many(&entries), || {
            format!("writing {} keys", entries.len())
        })
    }

    /// Delete all `keys` and their values, or none of them if there is an error.
    ///
    /// Absent keys are ignored. One call accepts 1000 keys.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("a", "1"), ("b", "2")]).build();
    /// let bucket = run.bucket("default")?;
    /// for keys in bucket.keys()?.chunks(1000) {
    ///     bucket.delete_many(keys)?;
    /// }
    /// assert!(bucket.keys()?.is_empty());
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Bucket`](Bucket#errors).
    pub fn delete_many<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        self.explained(self.open.delete_many(&keys), || {
            format!("deleting {} keys", keys.len())
        })
    }

    /// Add `operation` and the bucket's name to a fault.
    fn explained<T>(
        &self,
        result: std::result::Result<T, Fault>,
        operation: impl FnOnce() -> String,
    ) -> Result<T> {
        result.map_err(|fault| {
            fault.explain(&self.name, || {
                format!("{} in the bucket `{}`", operation(), self.name)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        Run::fake()
            .bucket("own", [("number", "7"), ("text", "\"seven\"")])
            .read_only_bucket("facts", [("limit", "1.5")])
            .build()
    }

    #[test]
    fn opening_a_bucket_without_a_grant_is_denied_and_names_the_grant() {
        let error = run().bucket("other").err().unwrap();
        assert!(error.is_denied());
        assert_eq!(
            error.message(),
            "opening a bucket: the bucket `other` is not granted; the operator grants it with `[[grants.keyvalue]] bucket = \"other\"` in the package's sidecar file"
        );
    }

    #[test]
    fn a_read_only_bucket_denies_every_write() {
        let run = run();
        let facts = run.bucket("facts").unwrap();
        assert_eq!(facts.get_json("limit").unwrap(), Some(1.5));
        let writes = [
            facts.set("limit", "3"),
            facts.set_json("limit", &3),
            facts.delete("limit"),
            facts.increment("n", 1).map(drop),
            facts.set_many([("limit", "3")]),
            facts.delete_many(["limit"]),
        ];
        for write in writes {
            let error = write.unwrap_err();
            assert!(error.is_denied(), "{error}");
            assert!(error.message().contains("`access = \"write\"`"), "{error}");
        }
        assert_eq!(facts.keys().unwrap(), ["limit"]);
    }

    #[test]
    fn incrementing_a_value_that_is_not_a_number_fails() {
        let run = run();
        let own = run.bucket("own").unwrap();
        assert_eq!(own.increment("number", 3).unwrap(), 10);
        assert_eq!(own.increment("new", 2).unwrap(), 2);
        own.set("most", u64::MAX.to_string()).unwrap();
        for key in ["text", "most"] {
            let error = own.increment(key, 1).unwrap_err();
            assert!(error.is_retryable());
            let expected = format!("incrementing `{key}` in the bucket `own`: ");
            assert!(error.message().starts_with(&expected), "{error}");
        }
        assert_eq!(own.get_json("text").unwrap(), Some("seven".to_owned()));
    }

    #[test]
    fn reading_json_as_another_type_is_a_permanent_error() {
        let run = run();
        let own = run.bucket("own").unwrap();
        own.set("bytes", [0xff, 0]).unwrap();
        for key in ["text", "bytes"] {
            let error = own.get_json::<u8>(key).unwrap_err();
            assert!(!error.is_retryable() && !error.is_denied());
            let expected = format!("the value under `{key}` in the bucket `own` cannot be read: ");
            assert!(error.message().starts_with(&expected), "{error}");
        }
        assert_eq!(own.get_json::<u8>("absent").unwrap(), None);
    }

    #[test]
    fn keys_are_listed_in_the_order_of_their_first_set() {
        let run = Run::fake().bucket("b", [("", ""); 0]).build();
        let bucket = run.bucket("b").unwrap();
        bucket
            .set_many([("z", "1"), ("a", "2"), ("m", "3")])
            .unwrap();
        bucket.set("z", "4").unwrap();
        bucket.delete("a").unwrap();
        bucket.set("a", "5").unwrap();
        assert_eq!(bucket.keys().unwrap(), ["z", "m", "a"]);
        let values = bucket.get_many(["a", "none", "z"]).unwrap();
        assert_eq!(values, [Some(b"5".to_vec()), None, Some(b"4".to_vec())]);
    }

    #[test]
    fn a_later_run_sees_the_writes_of_an_earlier_one_but_not_the_reverse() {
        let first = run();
        first.bucket("own").unwrap().set("left", "x").unwrap();
        let second = Run::fake().buckets_of(&first).build();
        let own = second.bucket("own").unwrap();
        assert_eq!(own.get("left").unwrap(), Some(b"x".to_vec()));
        assert!(second.bucket("facts").unwrap().set("limit", "3").is_err());
        own.delete("left").unwrap();
        assert!(first.bucket("own").unwrap().exists("left").unwrap());
    }

    #[test]
    fn a_session_is_kept_if_the_task_succeeds_and_dropped_if_it_fails() {
        use crate::{AnyContext, Package, Task};

        fn work(run: &Run, _: AnyContext) -> Result<Option<String>> {
            let own = run.session_bucket("own")?;
            own.set("text", "new")?;
            own.delete("number")?;
            let seen = run.session_bucket("own")?.get("text")?;
            assert_eq!(run.bucket("own")?.get("text")?, Some(b"\"seven\"".to_vec()));
            match run.attempt() {
                1 => Err(Error::retryable("later")),
                _ => Ok(seen.map(|seen| String::from_utf8_lossy(&seen).into_owned())),
            }
        }

        let package = Package::new("p", "1.0.0").task(Task::new("work", work));
        let failed = run();
        assert!(package.call::<Option<String>>("work", &failed).is_err());
        let own = failed.bucket("own").unwrap();
        assert_eq!(own.keys().unwrap(), ["number", "text"]);
        let second = Run::fake().buckets_of(&failed).attempt(2).build();
        let seen: Option<String> = package.call("work", &second).unwrap();
        assert_eq!(seen.as_deref(), Some("new"));
        let own = second.bucket("own").unwrap();
        assert_eq!(own.keys().unwrap(), ["text"]);
        assert_eq!(own.get("text").unwrap(), Some(b"new".to_vec()));
        let facts = second.session_bucket("facts").unwrap();
        assert!(facts.set("limit", "3").unwrap_err().is_denied());
        assert!(second.session_bucket("other").err().unwrap().is_denied());
    }
}
