//! The canonical text of grants: what is put on the record, and hashed, of what a sidecar allows.
//!
//! One line a grant, each a JSON list without spaces: its kind, and then what of that kind.
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
//! The lines are sorted as bytes, joined by a line feed each, and none is there twice; without grants the text is empty.
//! Its SHA-256 is what a run records. So the hash says the same in every version of the program: a new kind of grant
//! adds lines only where it is granted. Values of variables and of config keys are not in it: they may be secret, and
//! the hash of a short secret gives it away.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use campanile_model::ids::sha256;
use campanile_sandbox::{BucketGrant, DirectoryGrant, Grants, HttpGrant, SocketGrant};

/// Grants as they are on the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    pub text: String,
    /// The SHA-256 of the text, in lower-case hexadecimal.
    pub hash: String,
}

impl GrantRecord {
    /// What is put on the record of `grants`.
    pub fn of(grants: &Grants) -> GrantRecord {
        let text = text(grants);
        GrantRecord {
            hash: sha256(text.as_bytes()),
            text,
        }
    }
}

fn text(grants: &Grants) -> String {
    // Named one by one, so that a new kind of grant cannot be forgotten here.
    let Grants {
        directories,
        env,
        http,
        sockets,
        config,
        keyvalue,
        secrets,
        secret_env,
    } = grants;
    let mut lines = BTreeSet::new();
    for grant in directories {
        let host = grant.host.display().to_string();
        lines.insert(json!(["directory", access(grant.writable), grant.guest, host]).to_string());
    }
    for grant in http {
        let mut methods = grant.methods.clone();
        methods.sort_unstable();
        methods.dedup();
        let (host, methods) = (grant.host.to_ascii_lowercase(), methods.join(","));
        let port = grant.port.map_or_else(String::new, |port| port.to_string());
        lines.insert(json!(["http", grant.scheme, host, port, methods]).to_string());
    }
    for grant in sockets {
        let (protocol, host) = (grant.protocol.as_str(), grant.host.to_ascii_lowercase());
        lines.insert(json!(["socket", protocol, host, grant.port.to_string()]).to_string());
    }
    lines.extend(env.keys().map(|name| json!(["env", name]).to_string()));
    lines.extend(config.keys().map(|key| json!(["config", key]).to_string()));
    for grant in keyvalue {
        let (bucket, namespace) = (&grant.bucket, &grant.namespace);
        lines.insert(json!(["keyvalue", access(grant.writable), bucket, namespace]).to_string());
    }
    lines.extend(
        secrets
            .iter()
            .map(|name| json!(["secret", name]).to_string()),
    );
    let secret_env = secret_env.iter();
    lines.extend(secret_env.map(|(name, secret)| json!(["secret_env", name, secret]).to_string()));
    Vec::from_iter(lines).join("\n")
}

/// What `text` says is granted, all values empty. A line that this version does not know grants nothing.
pub fn read(text: &str) -> Grants {
    let mut grants = Grants::default();
    for line in text.lines() {
        let line: Vec<String> = serde_json::from_str(line).unwrap_or_default();
        let parts: Vec<&str> = line.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["directory", access, guest, host] => grants.directories.push(DirectoryGrant {
                host: host.into(),
                guest: (*guest).to_owned(),
                writable: *access == self::access(true),
            }),
            ["http", scheme, host, port, methods] => grants.http.push(HttpGrant {
                scheme: (*scheme).to_owned(),
                host: (*host).to_owned(),
                port: port.parse().ok(),
                methods: methods.split_terminator(',').map(str::to_owned).collect(),
            }),
            ["socket", protocol, host, port] => {
                if let (Ok(protocol), Ok(port)) = (protocol.parse(), port.parse()) {
                    let host = (*host).to_owned();
                    grants.sockets.push(SocketGrant {
                        protocol,
                        host,
                        port,
                    });
                }
            }
            ["env", name] => {
                grants.env.insert((*name).to_owned(), String::new());
            }
            ["config", key] => {
                grants.config.insert((*key).to_owned(), String::new());
            }
            ["keyvalue", access, bucket, namespace] => grants.keyvalue.push(BucketGrant {
                bucket: (*bucket).to_owned(),
                namespace: (*namespace).to_owned(),
                writable: *access == self::access(true),
            }),
            ["secret", name] => {
                grants.secrets.insert((*name).to_owned());
            }
            ["secret_env", name, secret] => {
                let (name, secret) = ((*name).to_owned(), (*secret).to_owned());
                grants.secret_env.insert(name, secret);
            }
            _ => {}
        }
    }
    grants
}

/// One line of the text, for a person.
pub fn shown(line: &str) -> String {
    match serde_json::from_str::<Value>(line) {
        Ok(Value::Array(parts)) => {
            let parts = parts.iter().filter_map(Value::as_str);
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            parts.join(" ")
        }
        _ => line.to_owned(),
    }
}

/// The word for whether what is granted, or asked for, may be changed.
pub(super) fn access(writable: bool) -> &'static str {
    if writable { "write" } else { "read" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_sandbox::Protocol;

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
