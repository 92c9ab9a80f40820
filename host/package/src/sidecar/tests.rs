use std::ffi::OsString;
use std::fs;

use serde_json::json;

use super::*;
use crate::VersionPolicy;
use crate::grants::GrantKind;
use crate::host_rules::{ForeignWriters, OwnPath};
use campanile_sandbox::{BucketGrant, DirectoryGrant, HttpGrant, Limits, Protocol, SocketGrant};
use campanile_schedule::rule::RuleKind;

mod own_paths;
mod quotas;

fn env(name: &str) -> Option<OsString> {
    match name {
        "TOKEN" => Some("secret".into()),
        _ => None,
    }
}

fn rules(own_paths: Vec<OwnPath>) -> HostRules {
    HostRules {
        secret_variables: Default::default(),
        limits: Limits::default(),
        memory_bytes_most: 1 << 30,
        env,
        own_paths,
        foreign_writers: ForeignWriters::default(),
        secrets: ["db".to_owned(), "api_token".to_owned()].into(),
        groups: [("db".to_owned(), 2)].into(),
        policy: VersionPolicy::default(),
    }
}

/// Read `text` as the sidecar `plugins/backup.toml` of a folder with `data/`.
fn read(text: &str) -> Result<Sidecar, String> {
    let folder = tempfile::tempdir().unwrap();
    read_in(folder.path(), text)
}

fn read_in(root: &Path, text: &str) -> Result<Sidecar, String> {
    let plugins = root.join("plugins");
    fs::create_dir_all(plugins.join("data")).unwrap();
    fs::write(plugins.join("file"), "").unwrap();
    Sidecar::parse(&plugins.join("backup.toml"), text, &rules(Vec::new())).map_err(|error| {
        let text = error.to_string();
        text.replace(&root.display().to_string(), "ROOT")
    })
}

#[test]
fn a_whole_sidecar_is_read() {
    let root = tempfile::tempdir().unwrap();
    let text = r#"
        sha256 = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        [context]
        bucket = "b"
        [limits]
        timeout = "30s"
        memory = "128MiB"
        [retry]
        max_attempts = 7
        [[schedules]]
        name = "backup-nightly"
        cron = "0 2 * * *"
        timezone = "Europe/Paris"
        task = "collect"
        context = { full = true }
        [[schedules]]
        every = "15m"
        anchor = 2027-01-15T08:00:00Z
        [[grants.directories]]
        host = "data"
        guest = "/source"
        access = "write"
        [[grants.http]]
        scheme = "http"
        host = "*.Example.com"
        port = 8443
        methods = ["GET"]
        private = true
        [[grants.http]]
        host = "10.0.0.1"
        [grants]
        env = ["TOKEN", "MODE=a=b"]
        secrets = ["db"]
        [grants.config]
        key = "value"
        [grants.secret_env]
        PGPASSWORD = "db"
        [[grants.keyvalue]]
        bucket = "default"
        access = "write"
        [[grants.keyvalue]]
        bucket = "rates"
        access = "read"
        namespace = "finance"
        [[grants.sockets]]
        host = "DB.example.com"
        port = 5432
        [[grants.sockets]]
        host = "::1"
        port = 8125
        protocol = "udp"
        private = true
    "#;
    let sidecar = read_in(root.path(), text).unwrap();
    assert_eq!(sidecar.pin, Some("a".repeat(64)));
    assert_eq!(json!(sidecar.context), json!({"bucket": "b"}));
    assert_eq!(
        sidecar.limits.get(campanile_sandbox::Resource::Memory),
        Some(128 << 20)
    );
    assert_eq!(sidecar.max_attempts, Some(7));
    let schedules = sidecar.schedules.unwrap();
    assert_eq!(schedules[0].rule.expression, "0 2 * * *");
    assert_eq!(schedules[0].task.as_deref(), Some("collect"));
    assert_eq!(schedules[1].rule.kind, RuleKind::Every);
    assert_eq!(
        schedules[1].rule.anchor.unwrap().to_string(),
        "2027-01-15T08:00:00Z"
    );
    let grants = &sidecar.grants;
    assert_eq!(
        grants.directories,
        [DirectoryGrant {
            host: root.path().join("plugins/data"),
            guest: "/source".to_owned(),
            writable: true,
            quota: campanile_sandbox::DirectoryQuota::default(),
        }]
    );
    assert_eq!(
        grants.http[0],
        HttpGrant {
            scheme: "http".to_owned(),
            host: "*.example.com".to_owned(),
            port: Some(8443),
            methods: vec!["GET".to_owned()],
            private: true,
            signing_secret: None,
        }
    );
    assert_eq!(grants.http[1].scheme, "https");
    assert_eq!(grants.env["TOKEN"], "secret");
    assert_eq!(grants.env["MODE"], "a=b");
    assert_eq!(grants.config["key"], "value");
    let bucket = |bucket: &str, namespace: &str, writable| BucketGrant {
        bucket: bucket.to_owned(),
        namespace: namespace.to_owned(),
        writable,
    };
    assert_eq!(
        grants.keyvalue,
        [
            // The default name is the package: this file is backup.toml.
            bucket("default", "backup/default", true),
            bucket("rates", "finance", false),
        ]
    );
    assert!(grants.secrets.contains("db"));
    assert_eq!(grants.secret_env["PGPASSWORD"], "db");
    let socket = |protocol, host: &str, port| SocketGrant {
        protocol,
        host: host.to_owned(),
        port,
        // An address is what it says.
        private: false,
    };
    assert_eq!(
        grants.sockets,
        [
            socket(Protocol::Tcp, "db.example.com", 5432),
            socket(Protocol::Udp, "::1", 8125),
        ]
    );
    // A refusal proposes a grant on one line.
    let line = r#"grants.http = [{ scheme = "http", host = "example.com", port = 8080 }]"#;
    let inline = read_in(root.path(), line).unwrap();
    assert_eq!(inline.grants.http[0].port, Some(8080));
    let line = r#"grants.sockets = [{ host = "db.internal", port = 5432, private = true }]"#;
    assert!(read_in(root.path(), line).unwrap().grants.sockets[0].private);
}

#[test]
fn mistakes_about_sockets_are_named() {
    for (text, expected) in [
        (
            "[[grants.sockets]]\nport = 1",
            "`grants.sockets[0]` needs `host`",
        ),
        (
            "[[grants.sockets]]\nhost = 'db'",
            "`grants.sockets[0]` needs `port`",
        ),
        (
            "[[grants.sockets]]\nhost = 'db:5432'\nport = 5432",
            "is \"db:5432\", which is not a host",
        ),
        (
            "[[grants.sockets]]\nhost = 'db'\nport = 70000",
            "`grants.sockets[0].port` must be a whole number from 1 to 65535",
        ),
        (
            "[[grants.sockets]]\nhost = 'db'\nport = 53\nprotocol = 'upd'",
            "must be `tcp` or `udp`",
        ),
        (
            "[[grants.sockets]]\nhost = '*'\nport = 53\nprivate = true",
            "`grants.sockets[0].private` is true, but `*` is every public host: name the hosts that are not public",
        ),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn mistakes_about_buckets_and_secrets_are_named() {
    for (text, expected) in [
        (
            "[grants]\nsecrets = ['api_tokne']",
            "2:1: `grants.secrets` names api_tokne, which is no secret of the host's configuration: did you mean \"api_token\"?",
        ),
        (
            "[grants.secret_env]\nA = 'token'",
            "must name secrets of the host's configuration, not hold their values",
        ),
        (
            "[grants]\nsecrets = ['db']\n[grants.config]\ndb = '1'",
            "which is also a key of `config`",
        ),
        (
            "[grants]\nenv = ['A=1']\n[grants.secret_env]\nA = 'db'",
            "sets A, which `env` also sets",
        ),
        (
            "[grants.secret_env]\nCAMPANILE_TASK = 'db'",
            "`grants.secret_env` names CAMPANILE_TASK: the host sets the variables that begin with CAMPANILE_",
        ),
        (
            "[grants]\nenv = ['=1']",
            "2:1: `grants.env` has a variable without a name",
        ),
        (
            "[grants]\nenv = ['']",
            "2:1: `grants.env` has a variable without a name",
        ),
        (
            "[grants]\nenv = [\"X=a\\u0000b\"]",
            "2:1: `grants.env` sets X to a text with a NUL byte",
        ),
        (
            "[grants]\nenv = [\"A\\nB=1\"]",
            "2:1: `grants.env` names \"A\\nB\", and a variable's name can't have the character \"\\n\"",
        ),
        (
            "[grants]\nenv = [\"A\\u0000\"]",
            "2:1: `grants.env` names \"A\\U00000000\", and a variable's name can't have the character \"\\U00000000\"",
        ),
        (
            "[grants.secret_env]\n\"A\\tB\" = 'db'",
            "`grants.secret_env` names \"A\\tB\", and a variable's name can't have the character \"\\t\"",
        ),
        (
            "[grants.secret_env]\n\"A=B\" = 'db'",
            "`grants.secret_env` names \"A=B\", and a variable's name can't have the character \"=\"",
        ),
        (
            "[program.env_from_context]\n\"A\\rB\" = 'key'",
            "names \"A\\U0000000dB\", and a variable's name can't have the character \"\\U0000000d\"",
        ),
        (
            "[[grants.keyvalue]]\naccess = 'read'",
            "`grants.keyvalue[0]` needs `bucket`",
        ),
        (
            "[[grants.keyvalue]]\nbucket = 'a'",
            "`grants.keyvalue[0]` needs `access`",
        ),
        (
            "[[grants.keyvalue]]\nbucket = 'a'\naccess = 'rw'",
            "must be `read` or `write`",
        ),
        (
            "[[grants.keyvalue]]\nbucket = 'a'\naccess = 'read'\nnamespace = 'other/a'",
            "a namespace that packages share is 1 to 64 letters",
        ),
        (
            "[[grants.keyvalue]]\nbucket = 'a'\naccess = 'read'\n[[grants.keyvalue]]\nbucket = 'a'\naccess = 'read'",
            "the name of another bucket of this file",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn an_empty_sidecar_grants_nothing_and_keeps_the_proposals() {
    let empty = Sidecar {
        text: Some(String::new()),
        ..Sidecar::default()
    };
    assert_eq!(read("").unwrap(), empty);
    assert_eq!(read("schedules = []").unwrap().schedules, Some(vec![]));
}

#[test]
fn mistakes_are_named_with_line_and_hint() {
    for (text, expected) in [
        (
            "sha265 = ''",
            "1:1: unknown key `sha265`: did you mean `sha256`?",
        ),
        (
            "[grants]\nenvs = []",
            "2:1: unknown key `grants.envs`: did you mean `env`?",
        ),
        (
            "[retry]\nattempts = 1",
            "2:1: unknown key `retry.attempts`: did you mean `max_attempts`?",
        ),
        (
            "sha256 = 'abc'",
            "1:1: `sha256` must be the 64 hexadecimal digits",
        ),
        (
            "\n[context]\nattempt = 1",
            "`context` is refused: the context may not set `attempt`",
        ),
        (
            "[limits]\nmemory = '2GiB'",
            "2:1: `limits.memory` is 2GiB, but this host allows no more than 1GiB",
        ),
        (
            "[[schedules]]\ncron = 3\ntimezone = 'UTC'",
            "2:1: `schedules[0].cron` must be a text",
        ),
        (
            "[[schedules]]\ntimezone = 3\ncron = '* * * * *'\ncatchup = 'all'",
            "2:1: `schedules[0].timezone` must be a text",
        ),
        (
            "[[schedules]]\ntimezone = 'Europe/Paris'\ncrom = '* * * * *'",
            "3:1: unknown key `schedules[0].crom`: did you mean `cron`?",
        ),
        (
            "\n[[schedules]]\nname = 'x'",
            "2:1: `schedules[0]` has no rule",
        ),
        (
            "[[schedules]]\ncron = ''\nevery = ''",
            "1:1: `schedules[0]` has more than one rule",
        ),
        (
            "[[schedules]]\nname = 'a b'\nevery = '5m'",
            "2:1: `schedules[0].name` is \"a b\"",
        ),
        (
            "[[schedules]]\nname='a'\nevery='5m'\n[[schedules]]\nname='a'\nevery='5m'",
            "5:1: `schedules[1].name` is \"a\", the name of another",
        ),
        (
            "[[schedules]]\nevery = '5m'\ncontext = { trigger = 1 }",
            "3:11: `schedules[0].context` is refused",
        ),
        (
            "[[schedules]]\nat = 'noon'",
            "2:1: `schedules[0].at` is wrong: `noon` is not an RFC 3339 time",
        ),
        (
            "[[schedules]]\ncron = '@daily'\nanchor = '2027-01-15T08:00:00Z'",
            "1:1: `schedules[0]` is refused: an anchor means nothing to a rule of kind cron",
        ),
        (
            "[[schedules]]\ncron = '@daily'\ndst_fold = 'twice'",
            "3:1: `schedules[0].dst_fold` must be `first` or `second` or `both`",
        ),
        (
            "[[schedules]]\ncron = '@daily'\nexclude = ['12-32']",
            "1:1: `schedules[0]` is refused: ",
        ),
        (
            "[[schedules]]\ncron = '0 0 * * MOO'",
            "2:1: `schedules[0].cron` is refused: ",
        ),
        (
            "[[schedules]]\nevery = '0s'",
            "2:1: `schedules[0].every` is refused: ",
        ),
        (
            "[[schedules]]\nevery = '5m'\ntimezone = 'Europe/Pris'",
            "3:1: `schedules[0].timezone` is refused: timezone `Europe/Pris` is not known; write an IANA name such as ",
        ),
        (
            "[grants]\nenv = ['HOME_OF_NOBODY']",
            "2:1: `grants.env` names HOME_OF_NOBODY, which is not set",
        ),
        (
            "[grants]\nenv = ['A=1', 'A=2']",
            "2:1: `grants.env` names A twice",
        ),
        (
            "[grants]\nenv = ['CAMPANILE_ATTEMPT=9']",
            "2:1: `grants.env` names CAMPANILE_ATTEMPT: the host sets the variables that begin with CAMPANILE_",
        ),
        (
            "[grants]\nenv = ['=x']",
            "2:1: `grants.env` has a variable without a name",
        ),
        (
            "[grants.config]\nport = 80",
            "2:1: `grants.config.port` must be a text in quotes, not a number",
        ),
        (
            "[[grants.http]]\nhost = 'https://x.org/'",
            "2:1: `grants.http[0].host` is \"https://x.org/\", which is not a host",
        ),
        (
            "[[grants.http]]\nhost = '*.'",
            "2:1: `grants.http[0].host` is \"*.\"",
        ),
        (
            "[[grants.http]]\nhost = 'a.*.b'",
            "2:1: `grants.http[0].host` is \"a.*.b\"",
        ),
        (
            "[[grants.http]]\nport = 80",
            "1:1: `grants.http[0]` needs `host`",
        ),
        (
            "[[grants.http]]\nhost = 'x'\nport = 0",
            "3:1: `grants.http[0].port` must be a whole number from 1 to 65535",
        ),
        (
            "[[grants.http]]\nhost = 'x'\nscheme = 'ftp'",
            "3:1: `grants.http[0].scheme` is \"ftp\"",
        ),
        (
            "[[grants.http]]\nhost = 'x'\nmethods = ['G T']",
            "3:1: `grants.http[0].methods` holds \"G T\"",
        ),
        (
            "[[grants.http]]\nhost = 'x'\nmethods = ['GET', 'post']",
            "3:1: `grants.http[0].methods` holds \"post\", but the case of a method counts: write \"POST\"",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(
            error.contains("backup.toml:") && error.contains(expected),
            "{text:?} gave {error:?}, not {expected:?}"
        );
    }
}

#[test]
fn a_granted_directory_must_exist_and_be_a_directory() {
    let grant = |host: &str, guest: &str, access: &str| {
        read(&format!(
            "[[grants.directories]]\nhost = '{host}'\nguest = '{guest}'\naccess = '{access}'"
        ))
    };
    assert!(grant("data", "/in", "read").is_ok());
    let gone = grant("gone", "/in", "read").unwrap_err();
    assert!(
        gone.contains(
            ":2:1: `grants.directories[0].host` is ROOT/plugins/gone, which cannot be used"
        ),
        "{gone}"
    );
    let file = grant("file", "/in", "read").unwrap_err();
    assert!(file.contains("which is not a directory"), "{file}");
    for guest in ["in", "/in/../out", "/in/", "", "//in"] {
        let error = grant("data", guest, "read").unwrap_err();
        assert!(
            error.contains("not a path inside a task"),
            "{guest}: {error}"
        );
    }
    let access = grant("data", "/in", "rw").unwrap_err();
    assert!(access.contains("must be `read` or `write`"), "{access}");
}

#[test]
fn the_plugins_folder_is_never_granted_for_writing() {
    let grant = |host: &str, access: &str| {
        read(&format!(
            "[[grants.directories]]\nhost = '{host}'\nguest = '/x'\naccess = '{access}'"
        ))
    };
    for host in [".", "..", "data/.."] {
        let error = grant(host, "write").unwrap_err();
        assert!(error.contains("contains the plugins folder"), "{error}");
        assert!(grant(host, "read").is_ok());
    }
    assert!(grant("data", "write").is_ok());
}

#[test]
fn a_guest_path_is_granted_only_once() {
    let one = "[[grants.directories]]\nhost = 'data'\nguest = '/x'\naccess = 'read'\n";
    let error = read(&format!("{one}{one}")).unwrap_err();
    assert!(
        error.contains(":7:1: `grants.directories[1].guest` is \"/x\", the path of another"),
        "{error}"
    );
}

#[test]
fn the_reference_has_the_keys_that_are_read() {
    let help = crate::grants::KINDS
        .into_iter()
        .flat_map(GrantKind::reference);
    let keys: Vec<String> = help.map(|help| help.key).collect();
    for (table, required) in [
        (
            "directories",
            "host = 'data'\nguest = '/in'\naccess = 'read'",
        ),
        ("http", "host = 'x'"),
        ("sockets", "host = 'x'\nport = 1"),
        ("keyvalue", "bucket = 'a'\naccess = 'read'"),
    ] {
        let error = read(&format!("[[grants.{table}]]\n{required}\nzzzzzz = 1")).unwrap_err();
        let known = error.split("the keys known here are ").nth(1).unwrap();
        for key in known.split(", ") {
            let key = format!("grants.{table}[].{}", key.trim_matches('`'));
            assert!(keys.contains(&key), "{key} in {keys:?}");
        }
    }
    let known = |text: &str| {
        let error = read(text).unwrap_err();
        let known = error.split("the keys known here are ").nth(1).unwrap();
        let known = known
            .split(", ")
            .map(|key| key.trim_matches('`').to_owned());
        known.collect::<Vec<_>>()
    };
    for key in known("[grants]\nzzzzzz = 1") {
        let key = format!("grants.{key}");
        assert!(keys.iter().any(|known| known.starts_with(&key)), "{key}");
    }
    let page = include_str!("../../../../docs/src/reference/sidecar.md");
    for key in known("zzzzzz = 1") {
        let ways = [&key, &format!("[{key}]"), &format!("[[{key}]]")];
        let is_listed = ways.iter().any(|way| page.contains(&format!("| `{way}`")));
        assert!(is_listed || key == "grants", "{key}");
    }
}

#[test]
fn a_sidecar_has_a_bounded_number_of_schedules() {
    let schedules = |count: usize| "[[schedules]]\nevery = '1h'\n".repeat(count);
    let read_back = read(&schedules(SCHEDULES_MAX)).unwrap().schedules;
    assert_eq!(read_back.unwrap().len(), SCHEDULES_MAX);
    let error = read(&schedules(SCHEDULES_MAX + 1)).unwrap_err();
    assert!(
        error.ends_with("`schedules` has 4097 entries, and 4096 are allowed: put the others into the schedules file"),
        "{error}"
    );
}

#[test]
fn long_keys_cost_no_more_than_their_text() {
    let entries: String = (0..20_000)
        .map(|number| format!("{number:x}=0\n"))
        .collect();
    let long = "k".repeat(500_000);
    let sidecar = read(&format!("[context.{long}]\n{entries}")).unwrap();
    assert_eq!(
        sidecar.context[&long].value().as_object().unwrap().len(),
        20_000
    );
    // A mistake below a long key is still an error, and not a stack overflow.
    let dots = ".".repeat(500_000);
    let error = read(&format!("[context.\"{dots}\"]\na = nan\n")).unwrap_err();
    assert!(error.contains("JSON cannot express"), "{error}");
}

#[test]
fn a_variable_that_holds_a_secret_is_granted_as_the_secret_only() {
    let mut rules = rules(Vec::new());
    rules.secret_variables = [("TOKEN".to_owned(), "api_token".to_owned())].into();
    let read = |text: &str| Sidecar::parse(Path::new("backup.toml"), text, &rules);
    let refused = read("grants.env = ['TOKEN']").unwrap_err().to_string();
    for part in [
        "`api_token`",
        "TOKEN = \"api_token\"",
        "[grants.secret_env]",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(!refused.contains("secret\n"), "the value: {refused}");
    read("grants.env = ['TOKEN=other']").unwrap();
    read("grants.secret_env = { TOKEN = 'api_token' }").unwrap();
}
