//! The canonical text of grants, which the database stores and hashes of what a sidecar grants.
//!
//! One line for each grant, a JSON list without spaces: its kind, and then the parts of that kind.
//!
//! ```text
//! ["config","bucket"]
//! ["device","urandom"]
//! ["directory","read","/source","/srv/photos"]
//! ["directory","write","/out","/srv/out","max_bytes=1GiB","max_files=1000"]
//! ["env","TOKEN"]
//! ["http","https","example.com","","443","GET,HEAD"]
//! ["keyvalue","write","default","backup/default"]
//! ["secret","db_password"]
//! ["secret_env","PGPASSWORD","db_password"]
//! ["socket","tcp","db.internal","5432","private"]
//! ```
//!
//! The lines are sorted as bytes, without duplicates, and joined by line feeds; without grants the text is empty.
//! A run records the SHA-256 of the text. The hash is the same in every version of Campanile: a new kind of grant
//! adds lines only where it is granted. Values of variables and of config keys are left out: they may be secret, and
//! the hash of a short secret reveals it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::grants::{GrantKind, KINDS};
use campanile_model::ids::InputHash;
use campanile_sandbox::Grants;

/// Grants as the database stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    pub text: String,
    /// The SHA-256 of the text, in lower-case hexadecimal.
    pub hash: InputHash,
}

/// What is recorded of each grant: its kind, and then its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedGrants(BTreeSet<Vec<String>>);

impl From<&Grants> for RecordedGrants {
    fn from(grants: &Grants) -> RecordedGrants {
        let lines = KINDS.into_iter().flat_map(|kind| {
            let grants = (kind.record)(grants).into_iter();
            grants.map(|parts| [vec![kind.name.to_owned()], parts].concat())
        });
        RecordedGrants(lines.collect())
    }
}

impl GrantRecord {
    /// Returns the record of `grants`.
    pub fn of(grants: &Grants) -> GrantRecord {
        let lines = RecordedGrants::from(grants).0.into_iter();
        let lines: BTreeSet<String> = lines.map(|line| Value::from(line).to_string()).collect();
        let text = Vec::from_iter(lines).join("\n");
        GrantRecord {
            hash: InputHash::of(text.as_bytes()),
            text,
        }
    }
}

/// Read the text of a record. A line that this version does not know grants nothing.
pub fn read(text: &str) -> RecordedGrants {
    let lines = text.lines().map(serde_json::from_str);
    RecordedGrants(lines.filter_map(Result::ok).collect())
}

impl RecordedGrants {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `other` grants all of this, with identical parts.
    pub(crate) fn is_within(&self, other: &RecordedGrants) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Returns the parts of the grants of `kind`.
    pub(super) fn of_kind(&self, kind: &GrantKind) -> impl Iterator<Item = &[String]> {
        let lines = self.0.iter().filter_map(|line| line.split_first());
        lines
            .filter(|(name, _)| **name == kind.name)
            .map(|(_, parts)| parts)
    }
}

/// Returns one line of the text for people.
pub fn shown(line: &str) -> String {
    match serde_json::from_str::<Vec<String>>(line) {
        Ok(mut parts) => {
            parts.retain(|part| !part.is_empty());
            parts.join(" ")
        }
        Err(_) => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_sandbox::{
        BucketGrant, Device, DirectoryGrant, HttpGrant, Protocol, SocketGrant,
    };

    fn some() -> Grants {
        let http = |host: &str, port, methods: &[&str]| HttpGrant {
            scheme: "https".to_owned(),
            host: host.to_owned(),
            port,
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
            private: false,
            signing_secret: None,
        };
        Grants {
            directories: vec![DirectoryGrant {
                host: "/srv/a b".into(),
                guest: "/source".to_owned(),
                writable: true,
                quota: campanile_sandbox::DirectoryQuota::default(),
            }],
            env: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            http: vec![
                http("Example.com", Some(8443), &["HEAD", "GET"]),
                http("*", None, &[]),
            ],
            devices: vec![Device::Urandom],
            config: [("a\nb".to_owned(), "1".to_owned())].into(),
            keyvalue: vec![BucketGrant {
                bucket: "default".to_owned(),
                namespace: "p/default".to_owned(),
                writable: true,
            }],
            secrets: ["db".to_owned()].into(),
            secret_env: [("PGPASSWORD".to_owned(), "db".to_owned())].into(),
            sockets: vec![SocketGrant {
                protocol: Protocol::Tcp,
                host: "DB.example.com".to_owned(),
                port: 5432,
                private: true,
            }],
            source: campanile_sandbox::GrantSource::Sidecar,
        }
    }

    #[test]
    fn the_text_is_sorted_and_holds_no_value() {
        let grant_record = GrantRecord::of(&some());
        assert_eq!(
            grant_record.text.lines().collect::<Vec<_>>(),
            [
                r#"["config","a\nb"]"#,
                r#"["device","urandom"]"#,
                r#"["directory","write","/source","/srv/a b"]"#,
                r#"["env","TOKEN"]"#,
                r#"["http","https","*","","",""]"#,
                r#"["http","https","example.com","","8443","GET,HEAD"]"#,
                r#"["keyvalue","write","default","p/default"]"#,
                r#"["secret","db"]"#,
                r#"["secret_env","PGPASSWORD","db"]"#,
                r#"["socket","tcp","db.example.com","5432","private"]"#,
            ]
        );
        // The value is part of the contract with databases already written.
        assert_eq!(
            grant_record.hash,
            InputHash::of(grant_record.text.as_bytes())
        );
        assert_eq!(GrantRecord::of(&Grants::default()).text, "");
    }

    #[test]
    fn the_order_in_a_sidecar_does_not_change_the_hash_and_a_grant_does() {
        let mut other = some();
        other.http.reverse();
        other.http[1].methods.reverse();
        other.env.insert("TOKEN".to_owned(), "other".to_owned());
        assert_eq!(GrantRecord::of(&other), GrantRecord::of(&some()));
        other.directories[0].writable = false;
        assert_ne!(GrantRecord::of(&other).hash, GrantRecord::of(&some()).hash);
        let mut public = some();
        public.sockets[0].private = false;
        assert_ne!(GrantRecord::of(&public).hash, GrantRecord::of(&some()).hash);
    }

    #[test]
    fn a_quota_is_part_of_the_text() {
        let mut limited = some();
        let quota = &mut limited.directories[0].quota;
        quota.max_bytes = Some(3 << 29);
        quota.max_files = Some(1000);
        let record = GrantRecord::of(&limited);
        let line =
            r#"["directory","write","/source","/srv/a b","max_bytes=1536MiB","max_files=1000"]"#;
        assert!(record.text.contains(line), "{}", record.text);
        assert_eq!(
            shown(line),
            "directory write /source /srv/a b max_bytes=1536MiB max_files=1000"
        );
        assert_eq!(read(&record.text), RecordedGrants::from(&limited));
        limited.directories[0].quota.max_files = None;
        assert_ne!(GrantRecord::of(&limited), record);
    }

    #[test]
    fn a_record_is_read_back() {
        let grant_record = GrantRecord::of(&some());
        assert_eq!(read(&grant_record.text), RecordedGrants::from(&some()));
        let unknown = format!("[\"later\",\"x\"]\nnot JSON\n{}", grant_record.text);
        let mut known = read(&unknown);
        assert!(known.0.remove(&vec!["later".to_owned(), "x".to_owned()]));
        assert_eq!(known, RecordedGrants::from(&some()));
        assert_eq!(read(""), RecordedGrants::default());
        assert_eq!(shown(r#"["http","https","*","","",""]"#), "http https *");
    }
}
