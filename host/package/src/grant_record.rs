//! The canonical text of grants, which the database stores and hashes of what a sidecar grants.
//!
//! One line for each grant, a JSON list without spaces: its kind, and then the parts of that kind.
//!
//! ```text
//! ["config","bucket"]
//! ["directory","read","/source","/srv/photos"]
//! ["env","TOKEN"]
//! ["http","https","example.com","443","GET,HEAD"]
//! ["keyvalue","write","default","backup/default"]
//! ["secret","db_password"]
//! ["secret_env","PGPASSWORD","db_password"]
//! ["socket","tcp","db.example.com","5432"]
//! ```
//!
//! The lines are sorted as bytes, without duplicates, and joined by line feeds; without grants the text is empty.
//! A run records the SHA-256 of the text. The hash is the same in every version of Campanile: a new kind of grant
//! adds lines only where it is granted. Values of variables and of config keys are left out: they may be secret, and
//! the hash of a short secret reveals it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::grants::{GrantKind, KINDS};
use campanile_model::ids::sha256;
use campanile_sandbox::Grants;

/// Grants as the database stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    pub text: String,
    /// The SHA-256 of the text, in lower-case hexadecimal.
    pub hash: String,
}

impl GrantRecord {
    /// Return the record of `grants`.
    pub fn of(grants: &Grants) -> GrantRecord {
        let lines = KINDS.into_iter().flat_map(|kind| {
            let grants = (kind.record)(grants).into_iter();
            grants.map(|parts| {
                let kind = kind.name.to_owned();
                let line: Vec<String> = [kind].into_iter().chain(parts).collect();
                Value::from(line).to_string()
            })
        });
        let lines: BTreeSet<String> = lines.collect();
        let text = Vec::from_iter(lines).join("\n");
        GrantRecord {
            hash: sha256(text.as_bytes()),
            text,
        }
    }
}

/// Return the grants of a recorded text, with empty values. A line that this version does not know grants nothing.
pub fn read(text: &str) -> Grants {
    let mut grants = Grants::default();
    for line in text.lines() {
        let line: Vec<String> = serde_json::from_str(line).unwrap_or_default();
        let parts: Vec<&str> = line.iter().map(String::as_str).collect();
        if let Some((name, parts)) = parts.split_first()
            && let Some(kind) = GrantKind::by_name(name)
        {
            // A grant that is not restored grants nothing.
            let _ = (kind.restore)(parts, &mut grants);
        }
    }
    grants
}

/// Return one line of the text for people.
pub fn shown(line: &str) -> String {
    match serde_json::from_str::<Vec<String>>(line) {
        Ok(parts) => {
            let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            parts.join(" ")
        }
        Err(_) => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_sandbox::{BucketGrant, DirectoryGrant, HttpGrant, Protocol, SocketGrant};

    fn some() -> Grants {
        let http = |host: &str, port, methods: &[&str]| HttpGrant {
            scheme: "https".to_owned(),
            host: host.to_owned(),
            port,
            methods: methods.iter().map(|method| (*method).to_owned()).collect(),
        };
        Grants {
            directories: vec![DirectoryGrant {
                host: "/srv/a b".into(),
                guest: "/source".to_owned(),
                writable: true,
            }],
            env: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            http: vec![
                http("Example.com", Some(8443), &["HEAD", "GET"]),
                http("*", None, &[]),
            ],
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
            }],
        }
    }

    #[test]
    fn the_text_is_sorted_and_holds_no_value() {
        let grant_record = GrantRecord::of(&some());
        assert_eq!(
            grant_record.text.lines().collect::<Vec<_>>(),
            [
                r#"["config","a\nb"]"#,
                r#"["directory","write","/source","/srv/a b"]"#,
                r#"["env","TOKEN"]"#,
                r#"["http","https","*","",""]"#,
                r#"["http","https","example.com","8443","GET,HEAD"]"#,
                r#"["keyvalue","write","default","p/default"]"#,
                r#"["secret","db"]"#,
                r#"["secret_env","PGPASSWORD","db"]"#,
                r#"["socket","tcp","db.example.com","5432"]"#,
            ]
        );
        // The value is part of the contract with databases already written.
        assert_eq!(grant_record.hash, sha256(grant_record.text.as_bytes()));
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
    }

    #[test]
    fn what_was_written_is_read_back() {
        let grant_record = GrantRecord::of(&some());
        assert_eq!(GrantRecord::of(&read(&grant_record.text)), grant_record);
        let unknown = format!("[\"later\",\"x\"]\nnot JSON\n{}", grant_record.text);
        assert_eq!(GrantRecord::of(&read(&unknown)), grant_record);
        assert_eq!(read(""), Grants::default());
        assert_eq!(shown(r#"["http","https","*","",""]"#), "http https *");
    }
}
