//! The state that calls leave, and how two such states differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use campanile_model::ids::sha256;
use campanile_sandbox::{HttpRequest, Redaction};

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
    /// The requests that change something, and how often each was made. Requests to one address with the same
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
        let or_absent =
            |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
        write!(
            f,
            "{} is {} after the recovery, and {} undisturbed",
            self.what,
            or_absent(&self.recovered),
            or_absent(&self.undisturbed)
        )
    }
}

impl FinalState {
    /// Read the final state. Each directory comes with its path for the guest.
    pub(super) fn of<'a>(
        mut buckets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
        directories: impl Iterator<Item = (&'a str, &'a Path)>,
        requests: &[HttpRequest],
    ) -> io::Result<FinalState> {
        buckets.retain(|_, entries| !entries.is_empty());
        let mut files = BTreeMap::new();
        for (guest, host) in directories {
            read(host, guest.trim_end_matches('/'), &mut files)?;
        }
        Ok(FinalState {
            buckets,
            files,
            requests: outward(requests),
        })
    }

    /// Return where `recovered` differs from this state, without the values of secrets.
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
        let mut found = Vec::new();
        let namespaces: BTreeSet<&String> = self
            .buckets
            .keys()
            .chain(recovered.buckets.keys())
            .collect();
        let empty = BTreeMap::new();
        for namespace in namespaces {
            let entries = |left: &'_ FinalState| left.buckets.get(namespace).cloned();
            compare(
                &entries(self).unwrap_or_else(|| empty.clone()),
                &entries(recovered).unwrap_or_else(|| empty.clone()),
                |key| format!("bucket {:?}: {:?}", plain(namespace), plain(key)),
                |value| shown(value, plain),
                &mut found,
            );
        }
        compare(
            &self.files,
            &recovered.files,
            |path| format!("the file {}", plain(path)),
            |entry| entry.shown(plain),
            &mut found,
        );
        compare(
            &self.requests,
            &recovered.requests,
            |request| format!("the request {}", plain(request)),
            |times| match times {
                1 => "made once".to_owned(),
                times => format!("made {times} times"),
            },
            &mut found,
        );
        found
    }
}

fn compare<V: PartialEq>(
    undisturbed: &BTreeMap<String, V>,
    recovered: &BTreeMap<String, V>,
    name: impl Fn(&str) -> String,
    show: impl Fn(&V) -> String,
    found: &mut Vec<Difference>,
) {
    let keys: BTreeSet<&String> = undisturbed.keys().chain(recovered.keys()).collect();
    for key in keys {
        let (before, after) = (undisturbed.get(key), recovered.get(key));
        if before != after {
            found.push(Difference {
                what: name(key),
                undisturbed: before.map(&show),
                recovered: after.map(&show),
            });
        }
    }
}

impl Entry {
    fn shown(&self, plain: impl Fn(&str) -> String) -> String {
        match self {
            Entry::Directory => "a directory".to_owned(),
            Entry::File(bytes) => shown(bytes, plain),
            Entry::Link(target) => format!("a link to {}", plain(target)),
        }
    }
}

/// Return a short text as it is, else its length. `plain` removes secrets.
fn shown(bytes: &[u8], plain: impl Fn(&str) -> String) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= SHOWN_BYTES_MAX => format!("{:?}", plain(text)),
        _ => format!("{} bytes", bytes.len()),
    }
}

/// Count the requests that change something.
fn outward(requests: &[HttpRequest]) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for request in requests {
        if matches!(
            request.method.as_str(),
            "GET" | "HEAD" | "OPTIONS" | "TRACE"
        ) {
            continue;
        }
        let key = request
            .headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("idempotency-key"));
        let named = format!("{} {}", request.method, request.url);
        let body = body_in_words(&request.body);
        match key {
            Some((_, key)) => {
                times.insert(format!("{named} with the key {key:?} and {body}"), 1);
            }
            None => *times.entry(format!("{named} with {body}")).or_insert(0) += 1,
        }
    }
    times
}

/// Return a text that is different for different bodies.
fn body_in_words(body: &[u8]) -> String {
    match body.len() {
        0 => "no body".to_owned(),
        bytes => format!("a body of {bytes} bytes (SHA-256 {}…)", &sha256(body)[..12]),
    }
}

fn read(host: &Path, guest: &str, files: &mut BTreeMap<String, Entry>) -> io::Result<()> {
    for entry in fs::read_dir(host)? {
        let entry = entry?;
        let path = format!("{guest}/{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.insert(path.clone(), Entry::Directory);
            read(&entry.path(), &path, files)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            files.insert(path, Entry::Link(target.to_string_lossy().into_owned()));
        } else if kind.is_file() {
            files.insert(path, Entry::File(fs::read(entry.path())?));
        }
    }
    Ok(())
}

/// Copy the directory `from` to `to`, which is created.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut budget = Budget {
        bytes: COPIED_BYTES_MAX,
        entries: COPIED_ENTRIES_MAX,
        from,
    };
    budget.copy(from, to)
}

/// What may still be copied, of the limits.
struct Budget<'a> {
    bytes: u64,
    entries: usize,
    from: &'a Path,
}

impl Budget<'_> {
    fn copy(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let bytes = match kind.is_file() {
                true => entry.metadata()?.len(),
                false => 0,
            };
            self.spend(bytes)?;
            let target = to.join(entry.file_name());
            if kind.is_dir() {
                self.copy(&entry.path(), &target)?;
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry.path())?, target)?;
            } else if kind.is_file() {
                fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> io::Result<()> {
        let left = (self.entries.checked_sub(1), self.bytes.checked_sub(bytes));
        let (Some(entries), Some(bytes)) = left else {
            return Err(io::Error::other(format!(
                "{} is too large to copy: it has more than {COPIED_ENTRIES_MAX} files or {} GiB; try the task on a smaller one",
                self.from.display(),
                COPIED_BYTES_MAX >> 30
            )));
        };
        self.entries = entries;
        self.bytes = bytes;
        Ok(())
    }
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
