//! The state that calls leave, and how two such states differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use walkdir::WalkDir;

use campanile_model::ids::sha256;
use campanile_sandbox::{DirectoryGrant, HttpRequest, Redaction};

/// The limits of the copy of a directory.
const COPIED_BYTES_MAX: u64 = 1 << 30;
const COPIED_ENTRIES_MAX: usize = 100_000;

/// A longer value is shown by its length.
const SHOWN_BYTES_MAX: usize = 60;

/// The buckets, files and requests after a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalState {
    /// Namespace, key, value.
    pub buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    /// By the guest's path.
    pub files: BTreeMap<String, Entry>,
    /// The requests and messages that change something, and how often each was made. Requests to one address with the same
    /// `Idempotency-Key` and body count as one, as they do for their server.
    pub requests: BTreeMap<String, usize>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Directory,
    File(Vec<u8>),
    Link(String),
}

/// One difference between two final states.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Difference {
    /// `bucket "default": count` and the like.
    pub what: String,
    /// The value after an undisturbed call; none if there is none.
    pub undisturbed: Option<String>,
    /// The value after a crash and a recovery; none if there is none.
    pub recovered: Option<String>,
}

/// `bucket "app/default": "count" is "2" after the recovery, and "1" undisturbed`
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [recovered, undisturbed] = [&self.recovered, &self.undisturbed]
            .map(|value| value.as_deref().unwrap_or("not there"));
        write!(
            f,
            "{} is {recovered} after the recovery, and {undisturbed} undisturbed",
            self.what
        )
    }
}

impl FinalState {
    /// Read the final state. Only the writable directories are read.
    pub(super) fn of(
        buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
        directories: &[DirectoryGrant],
        requests: &[HttpRequest],
    ) -> io::Result<FinalState> {
        let mut files = BTreeMap::new();
        for grant in directories.iter().filter(|grant| grant.writable) {
            read(&grant.host, grant.guest.trim_end_matches('/'), &mut files)?;
        }
        Ok(FinalState {
            buckets,
            files,
            requests: outward(requests),
        })
    }

    /// Returns where `recovered` differs from this state, without the values of secrets.
    pub(super) fn differences(
        &self,
        recovered: &FinalState,
        redaction: &Redaction,
    ) -> Vec<Difference> {
        let plain = |text: &str| {
            let mut text = text.to_owned();
            redaction.text(&mut text);
            text
        };
        let buckets = compare(
            &self.bucket_entries(),
            &recovered.bucket_entries(),
            |(namespace, key)| format!("bucket {:?}: {:?}", plain(namespace), plain(key)),
            |value| shown(value, plain),
        );
        let files = compare(
            &self.files,
            &recovered.files,
            |path| format!("the file {}", plain(path)),
            |entry| match entry {
                Entry::Directory => "a directory".to_owned(),
                Entry::File(bytes) => shown(bytes, plain),
                Entry::Link(target) => format!("a link to {}", plain(target)),
            },
        );
        let requests = compare(
            &self.requests,
            &recovered.requests,
            |request| format!("the request {}", plain(request)),
            |times| match times {
                1 => "made once".to_owned(),
                times => format!("made {times} times"),
            },
        );
        [buckets, files, requests].concat()
    }

    /// Returns the values of all buckets by namespace and key.
    fn bucket_entries(&self) -> BTreeMap<(&str, &str), &[u8]> {
        let buckets = self.buckets.iter();
        let entries = buckets.flat_map(|(namespace, entries)| {
            let entries = entries.iter();
            entries.map(move |(key, value)| ((namespace.as_str(), key.as_str()), value.as_slice()))
        });
        entries.collect()
    }
}

fn compare<K: Ord, V: PartialEq>(
    undisturbed: &BTreeMap<K, V>,
    recovered: &BTreeMap<K, V>,
    name: impl Fn(&K) -> String,
    show: impl Fn(&V) -> String,
) -> Vec<Difference> {
    let keys: BTreeSet<&K> = undisturbed.keys().chain(recovered.keys()).collect();
    let changed = keys
        .into_iter()
        .filter(|key| undisturbed.get(key) != recovered.get(key));
    let differences = changed.map(|key| Difference {
        what: name(key),
        undisturbed: undisturbed.get(key).map(&show),
        recovered: recovered.get(key).map(&show),
    });
    differences.collect()
}

/// Returns a short text as it is, else its length. `plain` removes secrets.
fn shown(bytes: &[u8], plain: impl Fn(&str) -> String) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= SHOWN_BYTES_MAX => format!("{:?}", plain(text)),
        _ => format!("{} bytes", bytes.len()),
    }
}

/// Count the requests that change something.
fn outward(requests: &[HttpRequest]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    let changes_nothing = |method| matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    for request in requests
        .iter()
        .filter(|it| !changes_nothing(it.method.as_str()))
    {
        let mut headers = request.headers.iter();
        let key = headers.find(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
        let named = format!("{} {}", request.method, request.url);
        // A text that is different for different bodies.
        let body = match request.body.len() {
            0 => "no body".to_owned(),
            bytes => {
                let hash = sha256(&request.body);
                format!("a body of {bytes} bytes (SHA-256 {}…)", &hash[..12])
            }
        };
        match key {
            Some((_, key)) => {
                times.insert(format!("{named} with the key {key:?} and {body}"), 1);
            }
            None => *times.entry(format!("{named} with {body}")).or_insert(0) += 1,
        }
    }
    times
}

/// Add the entries below the directory `host` to `files`.
fn read(host: &Path, guest: &str, files: &mut BTreeMap<String, Entry>) -> io::Result<()> {
    for entry in WalkDir::new(host).min_depth(1) {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type());
        let found = if kind.is_dir() {
            Entry::Directory
        } else if kind.is_symlink() {
            Entry::Link(fs::read_link(path)?.to_string_lossy().into_owned())
        } else if kind.is_file() {
            Entry::File(fs::read(path)?)
        } else {
            continue;
        };
        let inner = path.strip_prefix(host).unwrap_or(path).to_string_lossy();
        files.insert(format!("{guest}/{inner}"), found);
    }
    Ok(())
}

/// Copy the directory `from` to `to`, which is created.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for (entries, entry) in WalkDir::new(from).min_depth(1).into_iter().enumerate() {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.is_file() {
            bytes += entry.metadata()?.len();
        }
        if entries >= COPIED_ENTRIES_MAX || bytes > COPIED_BYTES_MAX {
            return Err(io::Error::other(format!(
                "{} is too large to copy: it has more than {COPIED_ENTRIES_MAX} files or {} GiB; try the task on a smaller one",
                from.display(),
                COPIED_BYTES_MAX >> 30
            )));
        }
        let target = to.join(path.strip_prefix(from).unwrap_or(path));
        if kind.is_dir() {
            fs::create_dir(target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(path)?, target)?;
        } else if kind.is_file() {
            fs::copy(path, target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_sandbox::{Secret, Secrets};

    fn post(key: Option<&str>, body: &str) -> HttpRequest {
        let headers = key.map(|key| ("Idempotency-Key".to_owned(), key.to_owned()));
        HttpRequest {
            method: "POST".to_owned(),
            url: "https://a.example/".to_owned(),
            headers: headers.into_iter().collect(),
            body: body.into(),
        }
    }

    #[test]
    fn requests_with_one_key_are_one_only_when_their_bodies_are() {
        let same = outward(&[post(Some("k"), "a"), post(Some("k"), "a")]);
        assert_eq!(same.values().collect::<Vec<_>>(), [&1]);
        let other = outward(&[post(Some("k"), "a"), post(Some("k"), "b")]);
        assert_eq!(other.len(), 2, "{other:?}");
        let without = outward(&[post(None, "a"), post(None, "a"), post(None, "")]);
        assert_eq!(without.into_values().collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn a_difference_shows_no_secret() {
        let left = |value: &str| FinalState {
            buckets: [(
                "app".to_owned(),
                [("of hunter2".to_owned(), value.into())].into(),
            )]
            .into(),
            files: [("/out/hunter2".to_owned(), Entry::File(value.into()))].into(),
            requests: [(format!("POST https://a.example/?{value}"), 1)].into(),
        };
        let secrets: Secrets = [("db".to_owned(), Secret::new("hunter2"))].into();
        let differences =
            left("hunter2 once").differences(&left("twice hunter2"), &Redaction::of(&secrets));
        assert_eq!(differences.len(), 4);
        let shown = format!("{differences:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("twice [secret db]"), "{shown}");
    }
}
