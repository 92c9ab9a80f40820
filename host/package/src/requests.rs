//! What a package requests, compared with what it is granted.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::grant_record::RecordedGrants;
use super::grants::{GrantKind, KINDS, Present, SECRET};
use campanile_model::text::printable_line;

/// One request of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    pub(super) kind: &'static GrantKind,
    /// Compared with the parts of recorded grants.
    pub(super) parts: Vec<String>,
    pub(super) reason: Option<String>,
}

/// One request, and whether it is granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Request {
    /// The name of the kind of grant.
    #[serde(serialize_with = "write_kind", deserialize_with = "read_kind")]
    #[schemars(with = "String")]
    pub kind: &'static GrantKind,
    /// The requested thing, such as `write /snapshots`. It identifies a request among those of its kind.
    pub what: String,
    /// The author's reason, if the description gives one.
    pub reason: Option<String>,
    pub is_granted: bool,
    /// The lines of a sidecar that would grant it.
    pub lines: String,
    /// What the sidecar has already of the table to which the lines belong.
    present: Present,
    /// The parts of the requested thing.
    pub(super) parts: Vec<String>,
}

fn write_kind<S: Serializer>(kind: &GrantKind, serializer: S) -> Result<S::Ok, S::Error> {
    kind.name.serialize(serializer)
}

fn read_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static GrantKind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let kind = KINDS.into_iter().find(|kind| kind.name == name);
    kind.ok_or_else(|| D::Error::custom(format!("there is no kind of grant `{name}`")))
}

impl Requested {
    /// Whether `grants` cover this request.
    fn is_granted(&self, grants: &RecordedGrants) -> bool {
        let kinds = [Some(self.kind), self.kind.also].into_iter().flatten();
        let mut granted = kinds.flat_map(|kind| grants.of_kind(kind));
        granted.any(|granted| self.kind.covers(granted, &self.parts))
    }

    /// Whether a grant for this request would also cover `other`.
    pub(super) fn covers(&self, other: &Request) -> bool {
        self.kind == other.kind && self.kind.covers(&self.parts, &other.parts)
    }
}

/// Returns what the sidecar with these grants has of the table in which `kind` is granted.
fn present(kind: &GrantKind, grants: &RecordedGrants) -> Present {
    let has = |kind: &GrantKind| grants.of_kind(kind).next().is_some();
    if has(kind) {
        Present::List
    } else if has(&SECRET) {
        Present::Table
    } else {
        Present::Nothing
    }
}

/// Compare each of `requests` with `grants`.
pub fn evaluate_requests(requests: &[Requested], grants: &RecordedGrants) -> Vec<Request> {
    let requests = requests.iter().map(|request| Request {
        kind: request.kind,
        what: request.kind.what(&request.parts),
        reason: request.reason.clone(),
        is_granted: request.is_granted(grants),
        lines: request
            .kind
            .lines(&request.parts, present(request.kind, grants)),
        present: present(request.kind, grants),
        parts: request.parts.clone(),
    });
    requests.collect()
}

impl Request {
    /// Returns what identifies a request.
    pub fn key(&self) -> (&'static str, &str) {
        (self.kind.name, &self.what)
    }

    /// Whether only the calls that use it are denied without a grant, and not every call of the package.
    pub fn is_checked_at_use(&self) -> bool {
        self.kind.is_checked_at_use
    }

    /// Returns a sentence that says that the request is not granted.
    pub fn need(&self) -> String {
        let need = self.kind.need(&self.parts);
        let reason = match &self.reason {
            Some(reason) => format!(" ({})", printable_line(reason)),
            None => String::new(),
        };
        format!("the package needs {need}{reason}, which is not granted")
    }
}

/// Returns the requests as a list in one sentence.
pub fn list_requests(requests: &[Request]) -> String {
    let each = requests.iter();
    let each =
        each.map(|request| format!("{} {}", request.kind.name, printable_line(&request.what)));
    Vec::from_iter(each).join(", ")
}

/// Returns the sentence that refuses to call a package because of `requests`, with the lines to add to its sidecar.
pub fn denial(package: &str, requests: &[Request]) -> String {
    let needs: Vec<String> = requests.iter().map(Request::need).collect();
    let (needs, lines) = (needs.join("; "), sidecar_lines(requests));
    format!("{needs}: add to {package}.toml\n{lines}")
}

/// Returns the lines of a sidecar that grant all of `requests`, without a table twice.
pub fn sidecar_lines<'r>(requests: impl IntoIterator<Item = &'r Request>) -> String {
    let requests = requests.into_iter();
    let (named, others): (Vec<&Request>, Vec<&Request>) =
        requests.partition(|request| request.kind.is_named());
    let tables = named.chunk_by(|a, b| a.kind == b.kind).map(|requests| {
        let names = requests.iter().flat_map(|request| &request.parts);
        let names: Vec<String> = names.cloned().collect();
        requests[0].kind.lines(&names, requests[0].present)
    });
    let entries = others.into_iter().map(|request| request.lines.clone());
    Vec::from_iter(tables.chain(entries)).join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Manifest;
    use crate::grants::Part;
    use campanile_model::text::is_printable_line;
    use campanile_sandbox::{DirectoryGrant, Grants, HttpGrant};
    use serde_json::{Value, json};

    fn asking(requests: Value) -> Manifest {
        Manifest::from_json("backup", &json!({ "requests": requests })).unwrap()
    }

    fn beyond(new: Value, old: Value, grants: &Grants) -> Vec<String> {
        let new = asking(new).additional_requests(&asking(old), &grants.into());
        new.iter()
            .map(|request| format!("{} {}", request.kind.name, request.what))
            .collect()
    }

    #[test]
    fn a_request_of_both_versions_is_not_additional() {
        let all = json!({
            "directories": [{"guest": "/a", "access": "write"}], "env": ["A"], "config": ["b"],
            "http": [{"host": "example.com"}], "keyvalue": [{"bucket": "c", "access": "read"}],
            "sockets": [{"host": "db", "port": 5432}],
        });
        let none: [String; 0] = [];
        assert_eq!(beyond(all.clone(), all.clone(), &Grants::default()), none);
        assert_eq!(beyond(all, json!({}), &Grants::default()).len(), 6);
        let more = json!({"keyvalue": [{"bucket": "c", "access": "write"}]});
        let less = json!({"keyvalue": [{"bucket": "c", "access": "read"}]});
        let grants = Grants::default();
        assert_eq!(beyond(more, less, &grants), ["keyvalue write c"]);
    }

    fn directory(guest: &str, writable: bool) -> DirectoryGrant {
        DirectoryGrant {
            host: "/srv".into(),
            guest: guest.to_owned(),
            writable,
            quota: campanile_sandbox::DirectoryQuota::default(),
        }
    }

    #[test]
    fn only_a_request_that_is_neither_granted_nor_made_before_is_additional() {
        let grants = Grants {
            directories: vec![directory("/in", false)],
            ..Grants::default()
        };
        let none = Vec::<String>::new();
        assert_eq!(beyond(json!({"env": ["A"]}), json!({}), &grants), ["env A"]);
        assert_eq!(
            beyond(json!({"env": ["A"]}), json!({"env": ["A"]}), &grants),
            none
        );
        assert_eq!(
            beyond(json!({"config": ["A"]}), json!({"env": ["A"]}), &grants),
            ["config A"]
        );
        let reads = json!({"directories": [{"guest": "/in"}]});
        let writes = json!({"directories": [{"guest": "/in", "access": "write"}]});
        assert_eq!(beyond(reads.clone(), json!({}), &grants), none);
        assert_eq!(
            beyond(writes.clone(), reads.clone(), &grants),
            ["directory write /in"]
        );
        // A request for less than before needs no new grant.
        assert_eq!(beyond(reads, writes, &Grants::default()), none);
        let http = |host: &str| json!({"http": [{"host": host}]});
        assert_eq!(beyond(http("a.test"), http("*"), &grants), none);
        assert_eq!(
            beyond(http("*"), http("a.test"), &grants),
            ["http https://*"]
        );
    }

    #[test]
    fn no_text_of_an_author_is_a_line_of_its_own() {
        let forged = "a.test\nEVIL\rEVIL\u{85}EVIL\u{2028}EVIL\u{202e}";
        for requests in [
            json!({"http": [{"host": forged}]}),
            json!({"sockets": [{"host": forged, "port": 1}]}),
            json!({"directories": [{"guest": format!("/{forged}")}]}),
            json!({"keyvalue": [{"bucket": forged}]}),
            json!({"env": [forged]}),
            json!({"config": [forged]}),
            json!({"http": [{"host": "a b"}]}),
            json!({"env": ["A\u{202e}"]}),
        ] {
            let read = Manifest::from_json("backup", &json!({ "requests": requests }));
            assert!(read.is_err(), "{requests}");
        }
        // Even one that got into the record some other way is shown on a single line.
        for kind in KINDS {
            let parts = kind.parts.iter().map(|part| match part {
                Part::Port => "1".to_owned(),
                _ => forged.to_owned(),
            });
            let parts = Vec::from_iter(parts);
            for present in [Present::Nothing, Present::Table, Present::List] {
                let lines = kind.lines(&parts, present);
                let is_own = |line: &str| !line.starts_with("EVIL") && is_printable_line(line);
                assert!(lines.lines().all(is_own), "{lines:?}");
            }
        }
    }

    #[test]
    fn the_lines_for_several_requests_are_one_text_of_toml() {
        let asks = json!({
            "directories": [{"guest": "/a", "access": "write"}, {"guest": "/b"}], "env": ["A", "B\""],
            "config": ["c", "d.e"], "http": [{"host": "a.test"}, {"host": "b.test"}],
            "keyvalue": [{"bucket": "f"}], "sockets": [{"host": "db.test", "port": 53, "protocol": "udp", "private": true}],
        });
        let manifest = asking(asks);
        let all = manifest.ungranted_requests(&RecordedGrants::default());
        let lines = sidecar_lines(&all);
        let read: toml::Table = lines.parse().unwrap();
        let grants = &read["grants"];
        assert_eq!(grants["env"], toml::Value::from(vec!["A", "B\""]));
        assert_eq!(grants["config"]["d.e"].as_str(), Some("its value"));
        for (kind, entries) in [
            ("directories", 2),
            ("http", 2),
            ("keyvalue", 1),
            ("sockets", 1),
        ] {
            assert_eq!(grants[kind].as_array().unwrap().len(), entries, "{lines}");
        }
        assert_eq!(grants["sockets"][0]["private"].as_bool(), Some(true));
        assert_eq!(grants["http"][0].get("private"), None);
        for request in &all {
            assert_eq!(sidecar_lines([request]), request.lines);
        }
        let missing = manifest.missing_grants(&RecordedGrants::default());
        assert_eq!(missing.len(), 7, "all but the network");
        let denial = denial("backup", &missing[2..4]);
        assert_eq!(
            denial,
            "the package needs the environment variable A, which is not granted; \
             the package needs the environment variable B\", which is not granted: add to backup.toml\n\
             [grants]\nenv = [\"A\", \"B\\\"\"]"
        );
    }

    #[test]
    fn lines_for_a_sidecar_that_has_the_table_do_not_repeat_it() {
        let manifest = asking(json!({"env": ["A", "B"], "config": ["c"]}));
        let lines = |grants: &Grants| sidecar_lines(&manifest.ungranted_requests(&grants.into()));
        let mut grants = Grants::default();
        assert_eq!(
            lines(&grants),
            "[grants]\nenv = [\"A\", \"B\"]\n[grants.config]\n\"c\" = \"its value\""
        );
        grants.secrets.insert("token".to_owned());
        grants.config.insert("d".to_owned(), String::new());
        assert_eq!(
            lines(&grants),
            "# add below [grants], which is there:\nenv = [\"A\", \"B\"]\n\
             # add below [grants.config], which is there:\n\"c\" = \"its value\""
        );
        grants.env.insert("A".to_owned(), String::new());
        assert!(
            lines(&grants).starts_with("# add to the list `env` below [grants]: \"B\"\n"),
            "{}",
            lines(&grants)
        );
    }

    #[test]
    fn a_host_is_covered_by_its_name_and_by_patterns_that_hold_it() {
        let granted = |host: &str| Grants {
            http: vec![HttpGrant {
                scheme: "https".to_owned(),
                host: host.to_owned(),
                port: None,
                methods: Vec::new(),
                private: false,
                signing_secret: None,
            }],
            ..Grants::default()
        };
        let asked = |host: &str| json!({"http": [{"host": host}]});
        for (host, grant, covered) in [
            ("api.example.com", "api.example.com", true),
            ("API.example.com", "api.EXAMPLE.com", true),
            ("api.example.com", "*.example.com", true),
            ("*.api.example.com", "*.example.com", true),
            ("api.example.com", "*", true),
            ("*", "*", true),
            ("example.com", "*.example.com", false),
            ("notexample.com", "*.example.com", false),
            ("*", "*.example.com", false),
            ("*.example.com", "api.example.com", false),
        ] {
            let beyond = beyond(asked(host), json!({}), &granted(grant));
            assert_eq!(beyond.is_empty(), covered, "{host} under {grant}");
        }
        // A grant of a name does not cover a request for private addresses. A grant of an address covers that address.
        let private = |host: &str| json!({"http": [{"host": host, "private": true}]});
        let mut grants = granted("db.test");
        assert_eq!(
            beyond(private("db.test"), json!({}), &grants),
            ["http https://db.test (private)"]
        );
        grants.http[0].private = true;
        for wanted in [private("db.test"), asked("db.test")] {
            assert_eq!(beyond(wanted, json!({}), &grants).len(), 0);
        }
        assert_eq!(
            beyond(private("10.0.0.1"), json!({}), &granted("10.0.0.1")).len(),
            0
        );
        let plain = json!({"http": [{"host": "a.test", "scheme": "http"}]});
        assert_eq!(
            beyond(plain, json!({}), &granted("a.test")),
            ["http http://a.test"]
        );
    }
}
