//! The environment variables that the program reads. The reference lists them from here.

pub const DATABASE: &str = "CAMPANILE_DATABASE_URL";
pub const SERVER: &str = "CAMPANILE_SERVER";
pub const TOKEN: &str = "CAMPANILE_TOKEN";
pub const PLUGINS: &str = "CAMPANILE_PLUGINS";
pub const LISTEN: &str = "CAMPANILE_LISTEN";
pub const KEY_PASSPHRASE: &str = "CAMPANILE_KEY_PASSPHRASE";
pub const LOG: &str = "CAMPANILE_LOG";
pub const NO_COLOR: &str = "NO_COLOR";
pub const CACHE_HOME: &str = "XDG_CACHE_HOME";
pub const HOME: &str = "HOME";
pub const USER: &str = "USER";
pub const PATH: &str = "PATH";
pub const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
pub const WATCHDOG_USEC: &str = "WATCHDOG_USEC";
pub const WATCHDOG_PID: &str = "WATCHDOG_PID";
pub const TRACEPARENT: &str = campanile_model::trace_context::TRACEPARENT_VARIABLE;

/// The variables with their meanings.
#[cfg(test)]
pub fn all() -> [(&'static str, &'static str); 17] {
    [
        (
            DATABASE,
            "the database; weaker than `--database`, stronger than the configuration file",
        ),
        (
            SERVER,
            "the API of a host that commands ask in place of a database; weaker than `--server` and `--database`",
        ),
        (
            TOKEN,
            "the token for that API, or `@` and the path of a file with it; weaker than `--token`",
        ),
        (
            PLUGINS,
            "the plugins folder; weaker than `--plugins`, stronger than the configuration file",
        ),
        (
            LISTEN,
            "where the API listens; weaker than `--listen`, stronger than the configuration file",
        ),
        (
            KEY_PASSPHRASE,
            "the passphrase of the key with which `package keygen` and `package sign` work; without it they ask",
        ),
        (
            LOG,
            "the log filter: `debug`, or `info,campanile=trace`, or `info,[run{schedule=nightly}]=debug` for the runs of one schedule; \
         lines of libraries only when they are named, such as SQL with `debug,sqlx=debug`",
        ),
        (NO_COLOR, "no colours, also on a terminal"),
        (
            CACHE_HOME,
            "the user's caches: the cache of compiled code is the folder `campanile` in them, unless `cache_dir` under \
         `[sandbox]` names another",
        ),
        (
            HOME,
            "the user's home: `.cache` in it has the user's caches without `XDG_CACHE_HOME`",
        ),
        (
            USER,
            "the name that is recorded for pauses, skips, backfills and decisions about versions, unless `--by` names \
         another",
        ),
        (
            PATH,
            "the folders in which the commands of secrets are looked for, and in which no task may write before the one \
         that has the command",
        ),
        (
            NOTIFY_SOCKET,
            "systemd's socket, to which `serve` says that it is ready, alive and stopping",
        ),
        (
            WATCHDOG_USEC,
            "the microseconds after which systemd restarts a service that says nothing",
        ),
        (WATCHDOG_PID, "the process that systemd's watchdog watches"),
        (
            TRACEPARENT,
            "the span of the caller of `schedule trigger`, a trace context of W3C; `--traceparent` is stronger",
        ),
        (
            "TEST_POSTGRES_URL",
            "for the tests of this repository: a superuser's address of a Postgres to use",
        ),
    ]
}
