//! What a package asks for, held against what it is granted.

use std::path::PathBuf;

use serde::Serialize;

use super::{Manifest, grant_record::access, manifest::Requests};
use campanile_model::text::printable_line;
use campanile_model::words;
use campanile_sandbox::{BucketGrant, DirectoryGrant, Grants, HttpGrant, SocketGrant};

words! {
    /// What kind of capability is asked for.
    RequestKind {
        Directory => "directory",
        Env => "env",
        Config => "config",
        Http => "http",
        Keyvalue => "keyvalue",
        Socket => "socket",
    }
}

/// One thing that a package asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    pub kind: RequestKind,
    /// What of that kind, such as `write /snapshots`. With the kind it tells one request from another.
    pub what: String,
    /// The author's, if one was given.
    pub reason: Option<String>,
    pub is_granted: bool,
    /// The lines of a sidecar that would grant it.
    pub lines: String,
}

impl Request {
    /// What tells it from others.
    pub fn key(&self) -> (RequestKind, &str) {
        (self.kind, &self.what)
    }

    /// That it is needed and missing.
    pub fn need(&self) -> String {
        let what = &self.what;
        let (need, fault) = match self.kind {
            RequestKind::Directory => {
                let (access, guest) = what.split_once(' ').unwrap_or(("read", what));
                (format!("to {access} the directory {guest}"), "granted")
            }
            RequestKind::Env => (format!("the environment variable {what}"), "granted"),
            RequestKind::Config => (format!("the config key {what}"), "set"),
            RequestKind::Http => (format!("to reach {what}"), "granted"),
            RequestKind::Socket => (format!("to connect to {what}"), "granted"),
            RequestKind::Keyvalue => {
                let (access, bucket) = what.split_once(' ').unwrap_or(("read", what));
                (format!("to {access} the bucket {bucket}"), "granted")
            }
        };
        let reason = match &self.reason {
            Some(reason) => format!(" ({})", printable_line(reason)),
            None => String::new(),
        };
        format!("the package needs {need}{reason}, which is not {fault}")
    }
}

/// What is asked for, in a sentence.
pub fn list_requests(requests: &[Request]) -> String {
    let each = requests.iter();
    let each = each.map(|request| format!("{} {}", request.kind, printable_line(&request.what)));
    Vec::from_iter(each).join(", ")
}

/// The sentence that refuses to call a package that needs all of `requests`, with the lines to add to its sidecar.
pub fn denial(package: &str, requests: &[Request]) -> String {
    let needs: Vec<String> = requests.iter().map(Request::need).collect();
    let (needs, lines) = (needs.join("; "), sidecar_lines(requests));
    format!("{needs}: add to {package}.toml\n{lines}")
}

/// The lines of a sidecar that grant all of `requests`, without a table that is there twice.
pub fn sidecar_lines<'r>(requests: impl IntoIterator<Item = &'r Request>) -> String {
    let (mut env, mut config, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for request in requests {
        match request.kind {
            RequestKind::Env => env.push(quote(&request.what)),
            RequestKind::Config => config.push(config_line(&request.what)),
            _ => others.push(request.lines.clone()),
        }
    }
    let mut all = Vec::new();
    if !env.is_empty() {
        all.push(env_lines(&env));
    }
    if !config.is_empty() {
        all.push(config_lines(&config));
    }
    all.extend(others);
    all.join("\n")
}

fn env_lines(quoted: &[String]) -> String {
    format!("[grants]\nenv = [{}]", quoted.join(", "))
}

fn config_lines(lines: &[String]) -> String {
    format!("[grants.config]\n{}", lines.join("\n"))
}

fn config_line(key: &str) -> String {
    format!("{} = \"its value\"", quote(key))
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Everything that is asked for, in the order of the description.
pub fn evaluate_requests(requests: &Requests, grants: &Grants) -> Vec<Request> {
    // Named one by one, so that a new kind of request cannot be forgotten here.
    let Requests {
        directories,
        env,
        http,
        config,
        keyvalue,
        sockets,
    } = requests;
    let mut all = Vec::new();
    for wanted in directories {
        let access = access(wanted.writable);
        let guest = &wanted.guest;
        all.push(Request {
            kind: RequestKind::Directory,
            what: format!("{access} {guest}"),
            reason: wanted.reason.clone(),
            is_granted: grants
                .directories
                .iter()
                .any(|grant| grant.guest == *guest && (grant.writable || !wanted.writable)),
            lines: format!(
                "[[grants.directories]]\nhost = \"/a/directory/of/this/host\"\nguest = {}\naccess = \"{access}\"",
                quote(guest)
            ),
        });
    }
    for name in env {
        all.push(Request {
            kind: RequestKind::Env,
            what: name.clone(),
            reason: None,
            is_granted: grants.env.contains_key(name) || grants.secret_env.contains_key(name),
            lines: env_lines(&[quote(name)]),
        });
    }
    for key in config {
        all.push(Request {
            kind: RequestKind::Config,
            what: key.clone(),
            reason: None,
            is_granted: grants.config.contains_key(key) || grants.secrets.contains(key),
            lines: config_lines(&[config_line(key)]),
        });
    }
    for wanted in http {
        let (scheme, host) = (&wanted.scheme, &wanted.host);
        all.push(Request {
            kind: RequestKind::Http,
            what: format!("{scheme}://{host}"),
            reason: wanted.reason.clone(),
            is_granted: grants.http.iter().any(|grant| {
                grant.scheme.eq_ignore_ascii_case(scheme) && covers(&grant.host, host)
            }),
            lines: format!(
                "[[grants.http]]\nscheme = {}\nhost = {}",
                quote(scheme),
                quote(host)
            ),
        });
    }
    for wanted in keyvalue {
        let access = access(wanted.writable);
        let bucket = &wanted.bucket;
        all.push(Request {
            kind: RequestKind::Keyvalue,
            what: format!("{access} {bucket}"),
            reason: wanted.reason.clone(),
            is_granted: grants
                .keyvalue
                .iter()
                .any(|grant| grant.bucket == *bucket && (grant.writable || !wanted.writable)),
            lines: format!(
                "[[grants.keyvalue]]\nbucket = {}\naccess = \"{access}\"",
                quote(bucket)
            ),
        });
    }
    for wanted in sockets {
        let (protocol, host, port) = (wanted.protocol, &wanted.host, wanted.port);
        all.push(Request {
            kind: RequestKind::Socket,
            what: format!("{protocol} {host}:{port}"),
            reason: wanted.reason.clone(),
            is_granted: grants.sockets.iter().any(|grant| {
                grant.protocol == protocol && grant.port == port && covers(&grant.host, host)
            }),
            lines: format!(
                "[[grants.sockets]]\nprotocol = \"{protocol}\"\nhost = {}\nport = {port}",
                quote(host)
            ),
        });
    }
    all
}

/// Whether a grant for `granted` covers a request for `wanted`, each a host or a pattern.
///
/// Ports and methods are left out: a request does not name them, and the sandbox checks each call.
fn covers(granted: &str, wanted: &str) -> bool {
    let (granted, wanted) = (granted.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    let below = |domain: &str| {
        let name = wanted.strip_suffix(domain);
        name.is_some_and(|name| name.len() > 1 && name.ends_with('.'))
    };
    granted == "*" || granted == wanted || granted.strip_prefix("*.").is_some_and(below)
}

impl Manifest {
    /// What the package asks for and `grants` does not give.
    pub fn ungranted(&self, grants: &Grants) -> Vec<Request> {
        let all = evaluate_requests(&self.requests, grants).into_iter();
        all.filter(|request| !request.is_granted).collect()
    }

    /// The same as far as nothing of the package is called without it: a launch is denied before that.
    ///
    /// The network is left out: packages ask for hosts that a context names, and the sandbox checks each request and
    /// each connection.
    pub fn missing(&self, grants: &Grants) -> Vec<Request> {
        let all = self.ungranted(grants).into_iter();
        all.filter(|request| !matches!(request.kind, RequestKind::Http | RequestKind::Socket))
            .collect()
    }

    /// What this version asks for beyond `grants` that `before`, the version in force, does not ask for already.
    ///
    /// What both ask for makes no difference: with it missing, the one runs as little as the other. HTTP counts.
    pub fn additional_requests(&self, before: &Manifest, grants: &Grants) -> Vec<Request> {
        self.ungranted(&with_all(&before.requests, grants))
    }
}

/// `grants`, and all that is asked for besides.
fn with_all(requests: &Requests, grants: &Grants) -> Grants {
    // Named one by one, so that a new kind of request cannot be forgotten here.
    let Requests {
        directories,
        env,
        http,
        config,
        keyvalue,
        sockets,
    } = requests;
    let mut all = grants.clone();
    let empty = |name: &String| (name.clone(), String::new());
    all.env.extend(env.iter().map(empty));
    all.config.extend(config.iter().map(empty));
    let directories = directories.iter().map(|wanted| DirectoryGrant {
        host: PathBuf::new(),
        guest: wanted.guest.clone(),
        writable: wanted.writable,
    });
    all.directories.extend(directories);
    all.http.extend(http.iter().map(|wanted| HttpGrant {
        scheme: wanted.scheme.clone(),
        host: wanted.host.clone(),
        port: None,
        methods: Vec::new(),
    }));
    all.keyvalue
        .extend(keyvalue.iter().map(|wanted| BucketGrant {
            bucket: wanted.bucket.clone(),
            namespace: String::new(),
            writable: wanted.writable,
        }));
    all.sockets.extend(sockets.iter().map(|wanted| SocketGrant {
        protocol: wanted.protocol,
        host: wanted.host.clone(),
        port: wanted.port,
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn asking(requests: Value) -> Manifest {
        Manifest::from_json("backup", &json!({ "requests": requests })).unwrap()
    }

    fn beyond(new: Value, old: Value, grants: &Grants) -> Vec<String> {
        let new = asking(new).additional_requests(&asking(old), grants);
        new.iter()
            .map(|request| format!("{} {}", request.kind, request.what))
            .collect()
    }

    #[test]
    fn what_is_asked_for_again_is_nothing_new_of_any_kind() {
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
        }
    }

    #[test]
    fn only_what_is_neither_granted_nor_asked_for_before_is_beyond() {
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
        // To ask for less than before is never too much.
        assert_eq!(beyond(reads, writes, &Grants::default()), none);
        let http = |host: &str| json!({"http": [{"host": host}]});
        assert_eq!(beyond(http("a.test"), http("*"), &grants), none);
        assert_eq!(
            beyond(http("*"), http("a.test"), &grants),
            ["http https://*"]
        );
    }

    #[test]
    fn the_lines_for_several_requests_are_one_text_of_toml() {
        let asks = json!({
            "directories": [{"guest": "/a", "access": "write"}, {"guest": "/b"}], "env": ["A", "B\""],
            "config": ["c", "d.e"], "http": [{"host": "a.test"}, {"host": "b.test"}],
            "keyvalue": [{"bucket": "f"}], "sockets": [{"host": "db.test", "port": 53, "protocol": "udp"}],
        });
        let manifest = asking(asks);
        let all = manifest.ungranted(&Grants::default());
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
        for request in &all {
            assert_eq!(sidecar_lines([request]), request.lines);
        }
        let missing = manifest.missing(&Grants::default());
        assert_eq!(missing.len(), 7, "all but the network");
        let denial = denial("backup", &missing[2..4]);
        assert_eq!(
            denial,
            "the package needs the environment variable A, which is not granted; \
             the package needs the environment variable B\", which is not granted: add to backup.toml\n\
             [grants]\nenv = [\"A\", 'B\"']"
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
        let plain = json!({"http": [{"host": "a.test", "scheme": "http"}]});
        assert_eq!(
            beyond(plain, json!({}), &granted("a.test")),
            ["http http://a.test"]
        );
    }
}
