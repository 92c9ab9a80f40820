//! Buckets: what a package keeps from one run to the next, in the host's own database.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Explain, Result};
use crate::host;
use crate::run::Run;

/// Why the host did not do what a bucket was asked for.
pub(crate) enum Fault {
    /// There is no bucket of this name, or none that was granted.
    NoSuchStore,
    /// The grant does not allow it.
    AccessDenied,
    /// Anything else, as the host says it: the bucket is full, the database is away.
    Other(String),
}

impl Fault {
    /// What the task gets, with `doing` before it.
    fn explain(self, name: &str, doing: impl FnOnce() -> String) -> Error {
        let doing = doing();
        match self {
            Fault::NoSuchStore => Error::denied(format!(
                "{doing}: the bucket `{name}` is not granted; the operator grants it with `[[grants.keyvalue]] bucket = \"{name}\"` in the package's sidecar file"
            )),
            Fault::AccessDenied => Error::denied(format!(
                "{doing}: its grant does not allow that; the operator allows writing with `access = \"write\"` at its `[[grants.keyvalue]]` in the package's sidecar file"
            )),
            Fault::Other(message) => Error::retryable(format!("{doing}: {message}")),
        }
    }
}

/// A bucket of keys and values that stay from one run to the next, open.
///
/// Each call is done whole or not at all, and what one has written the next one reads. Not undone when the task fails
/// later on: a run that is tried again finds what the one before it wrote.
///
/// An error is *denied* when the operator did not grant the bucket, or not for writing, and retryable otherwise: also
/// when the bucket is full.
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
///         .request(Request::write_bucket("state").because("how far the feed was read"))
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
pub struct Bucket {
    name: String,
    open: host::OpenBucket,
}

impl Run {
    /// Open a bucket that the operator granted. It is the package's own: another package's bucket of this name is another.
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
    /// Denied, when it is not granted; retryable, when the host could not look.
    pub fn bucket(&self, name: &str) -> Result<Bucket> {
        match self.host.open_bucket(name) {
            Ok(open) => Ok(Bucket {
                name: name.to_owned(),
                open,
            }),
            Err(fault) => Err(fault.explain(name, || "opening a bucket".to_owned())),
        }
    }
}

impl Bucket {
    /// The name by which it was opened.
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

    /// The bytes under `key`, or none when there is no such key.
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
    /// As [`Bucket`] says.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.done(self.open.get(key), || format!("reading `{key}`"))
    }

    /// Put `value` under `key`, in place of what is there.
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
    /// As [`Bucket`] says.
    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) -> Result<()> {
        self.done(self.open.set(key, value.as_ref()), || {
            format!("writing `{key}`")
        })
    }

    /// What [`Bucket::set_json`] put under `key`, or none when there is no such key.
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
    /// As [`Bucket`] says; permanent, when the value is no JSON or does not have the shape of `T`.
    pub fn get_json<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.get(key)? else {
            return Ok(None);
        };
        serde_json::from_slice(&value)
            .map(Some)
            .map_err(|error| Error::permanent(error.to_string()))
            .explain(|| {
                format!(
                    "the value under `{key}` in the bucket `{}` has another shape",
                    self.name
                )
            })
    }

    /// Put `value` under `key` as JSON, in place of what is there.
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
    /// As [`Bucket`] says; permanent, when `value` cannot be JSON.
    pub fn set_json(&self, key: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        let value = serde_json::to_vec(value).map_err(|error| {
            Error::permanent(format!(
                "the value to be written as `{key}` in the bucket `{}` cannot be JSON: {error}",
                self.name
            ))
        })?;
        self.set(key, value)
    }

    /// Take `key` and its value away. Does nothing when there is no such key.
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
    /// As [`Bucket`] says.
    pub fn delete(&self, key: &str) -> Result<()> {
        self.done(self.open.delete(key), || format!("deleting `{key}`"))
    }

    /// Whether there is a value under `key`.
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
    /// As [`Bucket`] says.
    pub fn exists(&self, key: &str) -> Result<bool> {
        self.done(self.open.exists(key), || format!("looking for `{key}`"))
    }

    /// All keys, in the order in which they were first set. The host gives them a page at a time, so keys that another
    /// run sets or deletes meanwhile may be among them or not.
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
    /// As [`Bucket`] says.
    pub fn keys(&self) -> Result<Vec<String>> {
        self.done(self.open.keys(), || "listing the keys".to_owned())
    }

    /// Add `by` to the number under `key`, which is 0 when there is none, and give the sum. Two runs that do so at the
    /// same time both count. The number is kept as decimal text, which is also its JSON.
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
    /// As [`Bucket`] says: retryable also when what is there is no number, or the sum none of 64 bits.
    pub fn increment(&self, key: &str, by: u64) -> Result<u64> {
        self.done(self.open.increment(key, by), || {
            format!("incrementing `{key}`")
        })
    }

    /// The bytes under each of `keys`, in their order, in one call of the host, which takes 1000 keys; none where there
    /// is no such key.
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
    /// As [`Bucket`] says.
    pub fn get_many<K: Into<String>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        self.done(self.open.get_many(&keys), || {
            format!("reading {} keys", keys.len())
        })
    }

    /// Put all of these keys and values into the bucket, or, when there is an error, none. One call takes 1000.
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
    /// As [`Bucket`] says.
    pub fn set_many<K: Into<String>, V: Into<Vec<u8>>>(
        &self,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        let entries: Vec<(String, Vec<u8>)> = entries
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        self.done(self.open.set_many(&entries), || {
            format!("writing {} keys", entries.len())
        })
    }

    /// Take all of these keys and their values away, or, when there is an error, none. One that is not there is passed
    /// over. One call takes 1000.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().bucket("default", [("a", "1"), ("b", "2")]).build();
    /// let bucket = run.bucket("default")?;
    /// for some in bucket.keys()?.chunks(1000) {
    ///     bucket.delete_many(some)?;
    /// }
    /// assert!(bucket.keys()?.is_empty());
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Bucket`] says.
    pub fn delete_many<K: Into<String>>(&self, keys: impl IntoIterator<Item = K>) -> Result<()> {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        self.done(self.open.delete_many(&keys), || {
            format!("deleting {} keys", keys.len())
        })
    }

    fn done<T>(
        &self,
        answer: std::result::Result<T, Fault>,
        doing: impl FnOnce() -> String,
    ) -> Result<T> {
        answer.map_err(|fault| {
            fault.explain(&self.name, || {
                format!("{} in the bucket `{}`", doing(), self.name)
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
    fn a_bucket_that_is_not_granted_is_denied_with_the_line_that_grants_it() {
        let error = run().bucket("other").err().unwrap();
        assert!(error.is_denied());
        assert_eq!(
            error.message(),
            "opening a bucket: the bucket `other` is not granted; the operator grants it with `[[grants.keyvalue]] bucket = \"other\"` in the package's sidecar file"
        );
    }

    #[test]
    fn a_bucket_that_may_only_be_read_refuses_every_change() {
        let run = run();
        let facts = run.bucket("facts").unwrap();
        assert_eq!(facts.get_json("limit").unwrap(), Some(1.5));
        let refusals = [
            facts.set("limit", "3"),
            facts.set_json("limit", &3),
            facts.delete("limit"),
            facts.increment("n", 1).map(drop),
            facts.set_many([("limit", "3")]),
            facts.delete_many(["limit"]),
        ];
        for refusal in refusals {
            let error = refusal.unwrap_err();
            assert!(error.is_denied(), "{error}");
            assert!(error.message().contains("`access = \"write\"`"), "{error}");
        }
        assert_eq!(facts.keys().unwrap(), ["limit"]);
    }

    #[test]
    fn what_is_no_number_is_not_counted_on() {
        let run = run();
        let own = run.bucket("own").unwrap();
        assert_eq!(own.increment("number", 3).unwrap(), 10);
        assert_eq!(own.increment("new", 2).unwrap(), 2);
        own.set("most", u64::MAX.to_string()).unwrap();
        for key in ["text", "most"] {
            let error = own.increment(key, 1).unwrap_err();
            assert!(error.is_retryable());
            let told = format!("incrementing `{key}` in the bucket `own`: ");
            assert!(error.message().starts_with(&told), "{error}");
        }
        assert_eq!(own.get_json("text").unwrap(), Some("seven".to_owned()));
    }

    #[test]
    fn a_value_of_another_shape_is_permanent_and_named() {
        let run = run();
        let own = run.bucket("own").unwrap();
        own.set("bytes", [0xff, 0]).unwrap();
        for key in ["text", "bytes"] {
            let error = own.get_json::<u8>(key).unwrap_err();
            assert!(!error.is_retryable() && !error.is_denied());
            let told = format!("the value under `{key}` in the bucket `own` has another shape: ");
            assert!(error.message().starts_with(&told), "{error}");
        }
        assert_eq!(own.get_json::<u8>("absent").unwrap(), None);
    }

    #[test]
    fn keys_stay_in_the_order_in_which_they_were_first_set() {
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
    fn a_later_run_finds_what_an_earlier_one_left_and_not_the_other_way_round() {
        let first = run();
        first.bucket("own").unwrap().set("left", "x").unwrap();
        let second = Run::fake().buckets_of(&first).build();
        let own = second.bucket("own").unwrap();
        assert_eq!(own.get("left").unwrap(), Some(b"x".to_vec()));
        assert!(second.bucket("facts").unwrap().set("limit", "3").is_err());
        own.delete("left").unwrap();
        assert!(first.bucket("own").unwrap().exists("left").unwrap());
    }
}
