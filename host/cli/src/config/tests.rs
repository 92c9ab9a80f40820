use std::fs;

use super::*;
use campanile_engine::packages::watch::Mode;

fn no_env(_: &str) -> Option<OsString> {
    None
}

/// Read `text` as the configuration file, without flags and variables.
fn read(text: &str) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE_NAME), text).unwrap();
    Config::load(&Flags::default(), &no_env, folder.path()).map_err(|error| {
        error
            .to_string()
            .replace(&folder.path().display().to_string(), "DIR")
    })
}

fn defaults() -> Config {
    let folder = tempfile::tempdir().unwrap();
    Config::load(&Flags::default(), &no_env, folder.path()).unwrap()
}

#[test]
fn the_default_text_matches_the_defaults() {
    let written = Config::read("default", &Config::default_text(), Path::new(""), &no_env).unwrap();
    assert_eq!(written, defaults());
}

#[test]
fn every_example_in_the_default_text_is_valid_and_every_key_is_there() {
    let text: String = Config::default_text()
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(example) if example.contains(" = ") || example.starts_with('[') => {
                format!("{example}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    // `role_header` is refused without a proxy.
    let text = text.replace("trusted_proxies = []", "trusted_proxies = [\"10.0.0.1\"]");
    let config = Config::read("default", &text, Path::new(""), &no_env).unwrap();
    assert_eq!(config.host.name.as_deref(), Some("host-1"));
    let keys = |text: &str| -> Vec<String> {
        let mut section = String::new();
        let mut keys = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            } else if let Some((key, _)) = line.split_once(" = ")
                && !line.starts_with('#')
            {
                keys.push(format!("{section}.{key}"));
            }
        }
        keys
    };
    assert_eq!(keys(&text), keys(&config.to_string()));
    let example = include_str!("../../../../examples/config/campanile.toml");
    assert_eq!(
        example,
        Config::default_text(),
        "the example is the default"
    );
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = defaults();
    assert_eq!(config.file, None);
    assert_eq!(config.files.database.to_string(), "sqlite:campanile.db");
    assert_eq!(config.files.plugins, Path::new("plugins"));
    assert_eq!(config.files.schedules, Path::new("schedules.toml"));
    assert_eq!(config.host.runs_max, 512);
    assert!(config.host.guest_threads >= 1);
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.recovery.lease, Duration::from_secs(8));
    assert_eq!(config.late.catchup_window, Duration::from_secs(86_400));
    let shown = config.to_string();
    for line in [
        "succeeded = \"30days\"",
        "failed = \"6months\"",
        "events = \"1year\"",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert_eq!(config.sandbox_settings().memory_bytes_max, 1 << 30);
    assert_eq!(config.sandbox_settings().calls_max, 512);
}

#[test]
fn a_flag_beats_the_environment_and_that_beats_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let load = |flags: &Flags, env: &dyn Fn(&str) -> Option<OsString>| {
        Config::load(flags, env, folder.path()).unwrap()
    };
    let flags = Flags {
        database: Some("sqlite:flag.db".to_owned()),
        plugins: Some("flag".into()),
        name: Some("flag".to_owned()),
        wait: Some(Duration::ZERO),
        ..Flags::default()
    };
    let env = |name: &str| match name {
        environment::DATABASE => Some("sqlite:env.db".into()),
        environment::PLUGINS => Some("env".into()),
        _ => None,
    };
    let text = "database = 'sqlite:file.db'\nplugins = 'file'\n[host]\nname = 'file'\nruns_max = 4\n[watch]\nmode = 'poll'";
    fs::write(folder.path().join(FILE_NAME), text).unwrap();

    let by_file = load(&Flags::default(), &no_env);
    assert_eq!(
        by_file.files.database.sqlite_path(),
        Some(&*folder.path().join("file.db"))
    );
    assert_eq!(by_file.files.plugins, folder.path().join("file"));
    assert_eq!(by_file.file, Some(folder.path().join(FILE_NAME)));
    assert_eq!(by_file.watch.mode, Mode::Poll);
    assert_eq!(by_file.host.name.as_deref(), Some("file"));

    let by_env = load(&Flags::default(), &env);
    assert_eq!(by_env.files.database.to_string(), "sqlite:env.db");
    assert_eq!(by_env.files.plugins, Path::new("env"));
    let by_empty_env = load(&Flags::default(), &|_| Some(OsString::new()));
    assert_eq!(by_empty_env, by_file);

    let by_flag = load(&flags, &env);
    assert_eq!(by_flag.files.database.to_string(), "sqlite:flag.db");
    assert_eq!(by_flag.files.plugins, Path::new("flag"));
    assert_eq!(by_flag.host.name.as_deref(), Some("flag"));
    assert_eq!(by_flag.host.wait, Duration::ZERO);
}

#[test]
fn a_named_file_must_exist_and_its_paths_are_relative_to_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let flags = Flags {
        config: Some("etc/host.toml".into()),
        ..Flags::default()
    };
    let error = Config::load(&flags, &no_env, folder.path()).unwrap_err();
    assert!(
        error.to_string().contains("etc/host.toml cannot be read"),
        "{error}"
    );
    fs::create_dir(folder.path().join("etc")).unwrap();
    let text = "plugins = 'p'\ndatabase = 'sqlite:/abs.db'\n[sandbox]\ncache_dir = 'c'";
    fs::write(folder.path().join("etc/host.toml"), text).unwrap();
    let config = Config::load(&flags, &no_env, folder.path()).unwrap();
    assert_eq!(config.files.plugins, folder.path().join("etc/p"));
    let schedules = folder.path().join("etc/schedules.toml");
    assert_eq!(
        config.files.schedules, schedules,
        "beside the configuration"
    );
    let own = config.own_paths();
    assert!(own.iter().any(|own| own.path == schedules), "{own:?}");
    assert_eq!(config.files.database.to_string(), "sqlite:/abs.db");
    assert_eq!(config.sandbox.cache_dir, Some(folder.path().join("etc/c")));
}

#[test]
fn a_file_of_another_type_is_refused_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE_NAME);
    let error = || {
        Config::load(&Flags::default(), &no_env, folder.path())
            .unwrap_err()
            .to_string()
    };
    fs::write(&path, b"plugins = '\xff'").unwrap();
    let expected = error();
    assert!(
        expected.ends_with("campanile.toml cannot be read: it is not UTF-8 text; save it as such"),
        "{expected}"
    );
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("nothing", &path).unwrap();
    let expected = error();
    assert!(expected.ends_with("it is a link to nothing"), "{expected}");
    fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let expected = error();
    assert!(expected.ends_with("it is not a regular file"), "{expected}");
}

#[test]
fn an_unknown_key_unlike_all_others_has_one_nearest_key_too() {
    for key in ["zzzzzz", &"k".repeat(10_000)] {
        let error = read(&format!("{key} = 1")).unwrap_err();
        let (_, near) = error.split_once(": the nearest known key is `").unwrap();
        let near = near.strip_suffix('`').unwrap();
        assert!(!near.contains('`'), "{error}");
    }
}

#[test]
fn an_error_is_one_sentence_with_file_line_key_and_hint() {
    for (text, expected) in [
        (
            "databse = ''",
            "DIR/campanile.toml:1:1: unknown key `databse`: did you mean `database`?",
        ),
        (
            "[limit]\n",
            "DIR/campanile.toml:1:1: unknown key `limit`: did you mean `limits`?",
        ),
        (
            "[limits]\ntimout = '5s'",
            "DIR/campanile.toml:2:1: unknown key `limits.timout`: did you mean `timeout`?",
        ),
        (
            "host = 3",
            "DIR/campanile.toml:1:1: `host` must be a table, such as [host], not a number",
        ),
        (
            "[host]\nruns_max = 0",
            "DIR/campanile.toml:2:1: `host.runs_max` must be a whole number from 1 to 10000, not 0",
        ),
        (
            "[host]\nname = 'a b'",
            "DIR/campanile.toml:2:1: `host.name` is \"a b\", which cannot name a host: use 1 to 255 letters, digits, `.`, `_` or `-`, but not `.` or `..` alone",
        ),
        (
            "[host]\nwait = 60",
            "DIR/campanile.toml:2:1: `host.wait` must be a duration in quotes with a unit, such as \"30s\" or \"5m\", not a number",
        ),
        (
            "[host]\nlabels = ['gpu', 'My Host']",
            "DIR/campanile.toml:2:1: `host.labels` names \"My Host\", which is no label: use 1 to 64 lower-case letters, digits, `-` or `.`",
        ),
        (
            "[host]\nplacement = 'spred'",
            "DIR/campanile.toml:2:1: `host.placement` must be `spread` or `pack`; did you mean `spread`?",
        ),
        (
            "[watch]\nmode = 'native'",
            "DIR/campanile.toml:2:1: `watch.mode` must be `auto` or `poll` or `off`",
        ),
        (
            "[watch]\nrescan = '1ms'",
            "DIR/campanile.toml:2:1: `watch.rescan` must be from \"1s\" to \"1day\", not \"1ms\"",
        ),
        (
            "\n[recovery]\nlease = '5s'",
            "DIR/campanile.toml:2:1: `recovery.renew` is 2s, and `recovery.lease` is 5s: a lease must last for three renewals, or hosts lose the leases of their runs when one fails; write a `lease` of at least \"6s\"",
        ),
        (
            "[recovery]\nmax_age = '5m'",
            "DIR/campanile.toml:2:1: `recovery.max_age` is 5m, and must be longer than `recovery.lost_threshold`, which is 5m, or no launch is ever recovered",
        ),
        (
            "[retention]\nsucceeded = '0s'",
            "DIR/campanile.toml:2:1: `retention.succeeded` must be from \"1m\" to \"100years\", not \"0s\"; or write \"forever\"",
        ),
        (
            "[retention]\nfailed = '-3days'",
            "DIR/campanile.toml:2:1: `retention.failed` is \"-3days\", which is not a duration: write a number with a unit, such as \"30s\" or \"5m\"; or write \"forever\"",
        ),
        (
            "[retention]\nlogs = '30'",
            "DIR/campanile.toml:2:1: `retention.logs` is \"30\", which is not a duration: write a number with a unit, such as \"30s\" or \"5m\"; or write \"forever\"",
        ),
        (
            "[retention]\nlogs = 30",
            "DIR/campanile.toml:2:1: `retention.logs` must be a duration in quotes with a unit, such as \"30days\", or \"forever\", not a number",
        ),
        (
            "[retention]\nsucceded = '3days'",
            "DIR/campanile.toml:2:1: unknown key `retention.succeded`: did you mean `succeeded`?",
        ),
        (
            "[retention]\nkeep_last = 0",
            "DIR/campanile.toml:2:1: `retention.keep_last` must be a whole number from 1 to 10000, not 0",
        ),
        (
            "[retention]\nmax_bytes = '1MiB'",
            "DIR/campanile.toml:2:1: `retention.max_bytes` must be from \"64MiB\" to \"1024TiB\", not \"1MiB\"",
        ),
        (
            "[retention]\nlogs = '1year'",
            "DIR/campanile.toml:2:1: `retention.logs` is 1year, and every launch is removed with its logs after 6months: write at most \"6months\", or keep launches longer",
        ),
        (
            "[retention]\nskipped = '2h'",
            "DIR/campanile.toml:2:1: `retention.skipped` is 2h, shorter than `recovery.max_age`, which is 1day: recovery may still look for such launches; write at least \"1day\"",
        ),
        (
            "[retention]\ncounts = '3months'",
            "DIR/campanile.toml:2:1: `retention.counts` is 3months, shorter than `retention.failed`, which is 6months: a launch would be removed and not counted; write at least \"6months\"",
        ),
        (
            "[late]\ncatchup_window = '10days'\n[retention]\nfailed = '5days'\nsucceeded = '12days'",
            "DIR/campanile.toml:4:1: `retention.failed` is 5days, shorter than `late.catchup_window`, which is 10days: their slots may still be caught up; write at least \"10days\"",
        ),
        (
            "[limits]\nmemory = '2GiB'",
            "DIR/campanile.toml:2:1: `limits.memory` is 2GiB, but this host allows no more than 1GiB: lower it, or raise `sandbox.memory_max` in the host's configuration",
        ),
        (
            "[sandbox]\nmemory_total = '512MiB'",
            "DIR/campanile.toml:2:1: `sandbox.memory_total` is 512MiB for all tasks together, less than the 1GiB that `memory_max` allows one: raise the one or lower the other",
        ),
        (
            "[sandbox]\nmemory_max = '1MiB'",
            "DIR/campanile.toml:1:1: `sandbox` allows 1MiB by `memory_max`, less than the 64MiB of `limits.memory`: raise the one or lower the other",
        ),
        (
            "database = 'mysql://u:secret@h/d'",
            "DIR/campanile.toml:1:1: `database` begins with \"mysql\", which is no database known here: write sqlite:PATH or postgres://user:password@host:port/name",
        ),
        (
            "plugins = ''",
            "DIR/campanile.toml:1:1: `plugins` is empty: write a path, or leave the key out",
        ),
        (
            "plugins = \"a\\u0000b\"",
            "DIR/campanile.toml:1:1: `plugins` holds a NUL character, which no path can have",
        ),
        (
            "[sandbox]\ncache_dir = \"a\\u0000b\"",
            "DIR/campanile.toml:2:1: `sandbox.cache_dir` holds a NUL character, which no path can have",
        ),
        (
            "[sandbox]\ncache_dir = ''",
            "DIR/campanile.toml:2:1: `sandbox.cache_dir` is empty: write a path, or leave the key out",
        ),
        (
            "[secrets.db]\nfil = '/run/db'",
            "DIR/campanile.toml:2:1: unknown key `secrets.db.fil`: did you mean `file`?",
        ),
        (
            "[secrets.db]",
            "DIR/campanile.toml:1:1: `secrets.db` needs exactly one of `env = \"VARIABLE\"`, `file = \"PATH\"` or `command = [\"NAME\", \"ARGUMENT\"]`",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), expected);
    }
}

#[test]
fn flags_and_variables_are_checked_as_the_file_is() {
    let folder = tempfile::tempdir().unwrap();
    let load = |flags: &Flags, env: &dyn Fn(&str) -> Option<OsString>| {
        Config::load(flags, env, folder.path())
            .unwrap_err()
            .to_string()
    };
    let env = |_: &str| Some(OsString::from("oracle:secret"));
    assert!(
        load(&Flags::default(), &env).starts_with("CAMPANILE_DATABASE_URL begins with \"oracle\"")
    );
    let flags = Flags {
        name: Some(String::new()),
        ..Flags::default()
    };
    assert!(load(&flags, &no_env).starts_with("--name is \"\""));
}

#[test]
fn printed_settings_read_back_the_same_and_hold_no_password() {
    let text = "database = 'sqlite:/d/x.db'\nplugins = '/p'\n[host]\nname = 'n'\nwait = '0s'\n[watch]\nmode = 'off'\n[limits]\nlog = '7B'\ncpu = '3s'\n[sandbox]\ncache_dir = '/c'\nstack = '2MiB'\n[secrets.'a b']\nfile = '/s'\n[secrets.c]\ncommand = ['x']\n[secrets.e]\nenv = 'E'";
    let config = read(text).unwrap();
    let again = Config::read("again", &config.to_string(), Path::new(""), &no_env).unwrap();
    assert_eq!(
        Config {
            file: None,
            origins: Origins::default(),
            ..config
        },
        again
    );
    let secret = read("database = 'postgres://u:hunter2@h/db'").unwrap();
    assert!(!format!("{secret} {secret:?}").contains("hunter2"));
    let command = "[secrets.db]\ncommand = ['vault', '--token=hunter2', 'read']";
    let shown = read(command).unwrap().to_string();
    assert!(
        shown.contains(r#"command = ["vault", "***", "***"]"#),
        "{shown}"
    );
}

#[test]
fn compiled_code_is_cached_in_the_users_cache_folder_by_default() {
    let cache = |text: &str, env: &dyn Fn(&str) -> Option<OsString>| {
        Config::read("x", text, Path::new(""), env)
            .unwrap()
            .sandbox
            .cache_dir
    };
    let home = |name: &str| (name == "HOME").then(|| "/home/u".into());
    let xdg = |name: &str| match name {
        "XDG_CACHE_HOME" => Some("/caches".into()),
        other => home(other),
    };
    assert_eq!(cache("", &home), Some("/home/u/.cache/campanile".into()));
    assert_eq!(cache("", &xdg), Some("/caches/campanile".into()));
    assert_eq!(cache("", &no_env), None);
    assert_eq!(cache("sandbox.cache = false", &xdg), None);
    assert_eq!(
        cache("sandbox.cache_dir = '/c'", &no_env),
        Some("/c".into())
    );
}

#[test]
fn proxies_are_read_and_printed() {
    let text = "server.trusted_proxies = ['10.0.0.0/24', '::1']\nserver.user_header = 'Remote-User'\nserver.proxy_roles = { ada = 'admin', 'bob@x' = 'viewer' }";
    let config = read(text).unwrap();
    assert_eq!(config.server.proxy_roles.len(), 2);
    assert_eq!(read(&config.to_string()).unwrap().server, config.server);
    let proxy = "server.trusted_proxies = ['10.0.0.1']\n";
    for (text, expected) in [
        (
            "server.trusted_proxies = ['10.0.0.1/99']",
            "no address such as",
        ),
        (
            "server.trusted_proxies = ['0.0.0.0/0']",
            "every address there is",
        ),
        (
            "server.trusted_proxies = ['10.0.0.1']",
            "exactly one of `role_header` and `proxy_roles`",
        ),
        ("server.proxy_roles = { ada = 'admin' }", "has no use"),
        ("server.role_header = 'X-Role'", "has no use"),
        (
            &format!("{proxy}server.proxy_roles = {{ ada = 'root' }}"),
            "ada",
        ),
        (
            &format!("{proxy}server.role_header = 'a b'"),
            "not the name of a header",
        ),
        (
            &format!("{proxy}server.role_header = 'x-forwarded-USER'"),
            "of the user too",
        ),
        (
            &format!("{proxy}server.user_header = 'Authorization'\nserver.role_header = 'X-Role'"),
            "another meaning",
        ),
        ("server.rate_limit = 9", "from 10 to"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn channels_for_mails_and_pings_are_read_and_printed() {
    let mail = "[channels.mail]\ntemplate = 'email'\nurl = 'smtps://smtp.example.com'\nfrom = 'A <a@example.com>'\nto = ['b@example.com']\n";
    let secrets = "[secrets.s]\nenv = 'S'\n";
    let ping = "[[pings]]\nschedule = 'nightly'\n";
    let text = format!(
        "{mail}user_secret = 's'\npassword_secret = 's'\n{secrets}{ping}url_secret = 's'\n\
         [[pings]]\nschedule = 'a*'\nurl = 'https://hc-ping.com/{{schedule}}'\n"
    );
    let config = read(&text).unwrap();
    assert_eq!(config.alerts.secrets(), ["s"; 3]);
    assert_eq!(read(&config.to_string()).unwrap().alerts, config.alerts);
    for (text, expected) in [
        (
            mail.replace("a@example.com", "a"),
            "no address such as \"ops@example.com\"",
        ),
        (mail.replace("['b@example.com']", "[]"), "1 to 50 receivers"),
        (
            mail.replace("to = ['b@example.com']", ""),
            "1 to 50 receivers",
        ),
        (
            mail.replace("from = 'A <a@example.com>'", ""),
            "needs `from`",
        ),
        (
            mail.replace("smtps:", "https:"),
            "no address of a mail server",
        ),
        (
            format!("{mail}user = 'u'"),
            "`password_secret` with exactly one",
        ),
        (
            format!("{mail}user = 'u'\nuser_secret = 's'\npassword_secret = 's'\n{secrets}"),
            "`password_secret` with exactly one",
        ),
        (
            format!("{mail}user = 'u'\npassword_secret = 't'\n{secrets}"),
            "no table [secrets.t]",
        ),
        (format!("{mail}headers = {{ a = 'b' }}"), "headers"),
        (format!("{mail}secret = 's'\n{secrets}"), "secret"),
        (format!("{OPS}to = ['b@example.com']"), "to"),
        (ping.to_owned(), "exactly one of `url` and `url_secret`"),
        (
            "[[pings]]\nurl = 'https://a.example/'".to_owned(),
            "needs `schedule`",
        ),
        (
            format!("{ping}url = 'http://10.0.0.1/'"),
            "`private = true`",
        ),
        (
            "[[pings]]\nschedule = '*'\nurl = 'https://a.example/'".to_owned(),
            "write `{schedule}`",
        ),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

const OPS: &str = "[channels.ops]\nurl = 'https://hooks.example.com/a'\n";

#[test]
fn rules_for_alerts_are_read_and_printed() {
    let text = format!(
        "[[alerts]]\nkind = 'failed'\nafter = 3\nwithin = '1h'\nsubject = 'nightly*'\nchannels = ['ops']\nfor = '5m'\n\
         [[alerts]]\nkind = 'record_full'\nabove = 0.5\n[retention]\nmax_bytes = '1GiB'\n\
         [secrets.a]\nenv = 'A'\n[secrets.b]\nenv = 'B'\n{OPS}secret = 'a'\nformer_secret = 'b'\ntemplate = 'slack'\n\
         headers = {{ authorization = 'Bearer {{secret:a}}' }}\n[heartbeat]\nurl_secret = 'b'\ninterval = '30s'\n"
    );
    let config = read(&text).unwrap();
    assert_eq!(config.alerts.rules.len(), 2);
    assert_eq!(config.alerts.channels["ops"].signing_secrets, ["a", "b"]);
    let printed = read(&config.to_string()).unwrap();
    assert_eq!(printed.alerts, config.alerts);
}

#[test]
fn a_mistake_in_a_rule_or_a_channel_is_refused() {
    for (text, expected) in [
        ("[[alerts]]\nkind = 'fialed'", "did you mean `failed`?"),
        ("[[alerts]]\nafter = 3", "needs `kind`"),
        ("[[alerts]]\nkind = 'late_start'", "needs `by`"),
        ("[[alerts]]\nkind = 'too_short'", "needs `than`"),
        ("[[alerts]]\nkind = 'failed'\nafter = 51", "from 1 to 50"),
        ("[[alerts]]\nkind = 'failed'\nby = '1m'", "by"),
        ("[[alerts]]\nkind = 'host_silent'\npackage = 'a'", "package"),
        ("[[alerts]]\nkind = 'record_full'", "can never fire"),
        ("[[alerts]]\nkind = 'recovery_rate'\nbelow = 0", "above 0"),
        (
            "[[alerts]]\nkind = 'failed'\nsubject = 'a b'",
            "matches no name",
        ),
        (
            "[[alerts]]\nkind = 'failed'\nchannels = ['op']\n[channels.ops]\nurl = 'https://a.example/'",
            "did you mean `ops`?",
        ),
        (
            "[[alerts]]\nkind = 'failed'\n[[alerts]]\nkind = 'failed'",
            "second rule",
        ),
        ("[channels.ops]", "exactly one of `url` and `url_secret`"),
        (
            "[channels.ops]\nurl = 'http://127.0.0.1:80/'",
            "`private = true`",
        ),
        (
            "[channels.ops]\nurl = 'http://localhost/'",
            "`private = true`",
        ),
        (
            "[channels.ops]\nurl = 'https://a.example/'\nsecret = 'a'",
            "no table [secrets.a]",
        ),
        (
            "[channels.ops]\nurl = 'https://a.example/'\ntemplate = 'mail'",
            "must be `webhook`",
        ),
        (
            "[secrets.a]\nenv = 'A'\n[channels.ops]\nurl = 'https://a.example/'\nformer_secret = 'a'",
            "without `secret`",
        ),
        ("[heartbeat]\nurl = 'http://10.0.0.1/'", "`private = true`"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn the_secret_of_a_channel_must_be_there_and_unreadable_for_others() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    let text = format!(
        "[secrets.a]\nfile = '{}'\n{OPS}secret = 'a'\n",
        path.display()
    );
    let config = read(&text).unwrap();
    let wrong = || config.alert_secrets().join("; ");
    assert!(
        wrong().contains("create it, or correct the path"),
        "{}",
        wrong()
    );
    fs::write(&path, "hunter2").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(wrong().contains("chmod 600"), "{}", wrong());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(wrong(), "");
}
