//! The address of the database. It may hold a password, which it never prints.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where the database is.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server; the text is the whole address with the password.
    Postgres(PostgresUrl),
}

/// A `postgres://` address. Only [`PostgresUrl::expose`] reveals the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Returns the whole address, for the driver only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// The options of an address that the programs of Postgres know by the same names.
const TOOL_OPTIONS: [&str; 7] = [
    "dbname",
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    ROLE_OPTION,
    "user",
];

/// The option that says which of several servers is meant.
const ROLE_OPTION: &str = "target_session_attrs";

/// What a server must be, so that a host connects to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerRole {
    Any,
    /// It accepts writes.
    ReadWrite,
    /// It is no standby.
    Primary,
}

impl ServerRole {
    const ALL: [ServerRole; 3] = [ServerRole::Any, ServerRole::ReadWrite, ServerRole::Primary];

    /// Returns the word for it in an address.
    fn word(self) -> &'static str {
        match self {
            ServerRole::Any => "any",
            ServerRole::ReadWrite => "read-write",
            ServerRole::Primary => "primary",
        }
    }
}

impl fmt::Display for ServerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl PostgresUrl {
    /// Returns the address as `pg_dump` and `psql` take it, without its password.
    pub fn without_password(&self) -> String {
        let shown = self.to_string().replacen(":***@", "@", 1);
        let Some((place, options)) = shown.split_once('?') else {
            return shown;
        };
        let name = |option: &&str| option.split('=').next().unwrap_or_default().to_owned();
        let known = |option: &&str| TOOL_OPTIONS.contains(&name(option).as_str());
        let options: Vec<&str> = options.split('&').filter(known).collect();
        if options.is_empty() {
            place.to_owned()
        } else {
            format!("{place}?{}", options.join("&"))
        }
    }

    /// Returns the address of each server, in their order: `postgres://u@h1,h2:5433/db` names two.
    pub(super) fn servers(&self) -> Vec<String> {
        let (head, servers, tail) = parts(&self.0);
        let (database, options) = tail.split_once('?').unwrap_or((tail, ""));
        let options = options.split('&').filter(|option| !is_role(option));
        let options: Vec<&str> = options.filter(|option| !option.is_empty()).collect();
        let joint = if options.is_empty() { "" } else { "?" };
        let options = options.join("&");
        let address = |server| format!("{head}{server}{database}{joint}{options}");
        servers.split(',').map(address).collect()
    }

    /// Returns what a server must be.
    pub(super) fn role(&self) -> ServerRole {
        let wanted = role_word(&self.0).unwrap_or_default();
        let mut roles = ServerRole::ALL.into_iter();
        let role = roles.find(|role| role.word() == wanted);
        role.unwrap_or(ServerRole::Any)
    }

    /// Returns the schema that the option `search_path` names, if it names one.
    pub fn schema(&self) -> Option<String> {
        let (_, options) = self.0.rsplit_once('?')?;
        let mut options = url::form_urlencoded::parse(options.as_bytes());
        options.find_map(|(key, value)| {
            let path = match key.as_ref() {
                "options" => value.split_once("search_path=")?.1,
                "options[search_path]" => value.as_ref(),
                _ => return None,
            };
            let end = path.find([',', ' ']).unwrap_or(path.len());
            Some(path[..end].to_owned()).filter(|name| !name.is_empty())
        })
    }
}

/// Why an address is invalid, as the end of a sentence that starts with the key. It never repeats a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write sqlite:PATH or postgres://user:password@host:port/name")]
pub struct InvalidDatabaseUrl(String);

impl DatabaseUrl {
    /// Returns the SQLite file; none for Postgres.
    pub fn sqlite_path(&self) -> Option<&Path> {
        match self {
            DatabaseUrl::Sqlite(path) => Some(path),
            DatabaseUrl::Postgres(_) => None,
        }
    }

    /// Returns `sqlite` or `postgres`.
    pub fn backend(&self) -> &'static str {
        match self {
            DatabaseUrl::Sqlite(_) => "sqlite",
            DatabaseUrl::Postgres(_) => "postgres",
        }
    }

    /// Whether many hosts can share the database.
    pub fn is_shared(&self) -> bool {
        matches!(self, DatabaseUrl::Postgres(_))
    }

    /// Returns the same database with `schema` as its search path. No effect on SQLite.
    pub fn in_schema(&self, schema: &str) -> DatabaseUrl {
        match self {
            DatabaseUrl::Sqlite(_) => self.clone(),
            DatabaseUrl::Postgres(PostgresUrl(url)) => {
                let joint = if url.contains('?') { '&' } else { '?' };
                DatabaseUrl::Postgres(PostgresUrl(format!(
                    "{url}{joint}options=-c%20search_path%3D{schema}"
                )))
            }
        }
    }

    /// Returns the whole address, for another process.
    pub fn expose(&self) -> String {
        match self {
            DatabaseUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
            DatabaseUrl::Postgres(url) => url.expose().to_owned(),
        }
    }

    /// Returns the same address with a relative file resolved against `folder`.
    pub fn within(self, folder: &Path) -> DatabaseUrl {
        match self {
            DatabaseUrl::Sqlite(path) => DatabaseUrl::Sqlite(folder.join(path)),
            other => other,
        }
    }
}

/// Reads `sqlite:PATH`, `sqlite://PATH`, `postgres://…` and `postgresql://…`.
impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;

    fn from_str(text: &str) -> Result<DatabaseUrl, InvalidDatabaseUrl> {
        let invalid = |what: String| Err(InvalidDatabaseUrl(what));
        let Some((scheme, rest)) = text.split_once(':') else {
            return if text.contains('@') {
                invalid("is not the address of a database".to_owned())
            } else {
                invalid(format!(
                    "is {text:?}, which is not the address of a database"
                ))
            };
        };
        match scheme {
            "sqlite" => sqlite(rest.strip_prefix("//").unwrap_or(rest)),
            "postgres" | "postgresql" => match rest.strip_prefix("//") {
                Some(server) if !has_port(server) => invalid(
                    "has no number as its port: write a password before `@`, and an IPv6 address in brackets"
                        .to_owned(),
                ),
                Some(server) if !server.is_empty() && !text.contains(char::is_control) => {
                    match list_error(text) {
                        Some(what) => invalid(what),
                        None => Ok(DatabaseUrl::Postgres(PostgresUrl(text.to_owned()))),
                    }
                }
                _ => invalid(format!(
                    "begins with \"{scheme}:\" and is no address of a server"
                )),
            },
            _ => invalid(format!(
                "begins with {scheme:?}, which is no database known here"
            )),
        }
    }
}

/// Split an address: up to its servers, its servers, and the rest. A password may have `@`, `/` and `?` in it.
fn parts(text: &str) -> (&str, &str, &str) {
    let scheme = text.find("://").map_or(0, |start| start + "://".len());
    let start = text.rfind('@').map_or(scheme, |at| at + 1);
    let (head, rest) = text.split_at(start);
    let (servers, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    (head, servers, tail)
}

fn is_role(option: &str) -> bool {
    option.split('=').next() == Some(ROLE_OPTION)
}

/// Returns the value of the option [`ROLE_OPTION`], if the address has it.
fn role_word(text: &str) -> Option<&str> {
    let (_, options) = parts(text).2.split_once('?')?;
    let option = options.split('&').find(|option| is_role(option))?;
    option.split_once('=').map(|(_, word)| word)
}

/// Returns what is wrong with the servers of an address, or with the role that they must have.
fn list_error(text: &str) -> Option<String> {
    let (_, servers, tail) = parts(text);
    let is_empty = |server: &str| server.is_empty() || server.starts_with(':');
    if servers.contains(',') && servers.split(',').any(is_empty) {
        return Some("lists servers, and one of them has no name".to_owned());
    }
    let (_, options) = tail.split_once('?').unwrap_or_default();
    let is_list = |option: &str| {
        let (key, value) = option.split_once('=').unwrap_or_default();
        matches!(key, "host" | "hostaddr" | "port")
            && (value.contains(',') || value.contains("%2C"))
    };
    if options.split('&').any(is_list) {
        return Some("lists servers in an option; list them before the database".to_owned());
    }
    let word = role_word(text)?;
    let is_known = ServerRole::ALL.iter().any(|role| role.word() == word);
    (!is_known).then(|| {
        format!("has {ROLE_OPTION}={word}, and only any, read-write and primary are known")
    })
}

/// Whether the port of each server is a number, or is left out, and no other `:` is in an address without its scheme.
///
/// Without this check, an address whose `@` is missing would show its password as a port or as a database.
fn has_port(server: &str) -> bool {
    let after_user = server.rsplit_once('@').map_or(server, |(_, rest)| rest);
    let before_options = after_user.split('?').next().unwrap_or_default();
    let (place, database) = before_options
        .split_once('/')
        .unwrap_or((before_options, ""));
    let has_number = |server: &str| {
        let after_address = match server.strip_prefix('[') {
            Some(address) => address.split_once(']').map_or("", |(_, rest)| rest),
            None => server,
        };
        let port = after_address.split_once(':').map(|(_, port)| port);
        port.is_none_or(|port| port.is_empty() || port.parse::<u16>().is_ok())
    };
    !database.contains(':') && place.split(',').all(has_number)
}

fn sqlite(path: &str) -> Result<DatabaseUrl, InvalidDatabaseUrl> {
    let what = if path.is_empty() {
        "names no file"
    } else if path.contains(":memory:") {
        "would forget every launch at the end of the process, so it must be a file"
    } else if path.contains('?') {
        "has options after `?`, and none are known here"
    } else if path.contains('\0') {
        "names a file that cannot exist"
    } else {
        return Ok(DatabaseUrl::Sqlite(PathBuf::from(path)));
    };
    Err(InvalidDatabaseUrl(what.to_owned()))
}

/// The address without its password: safe in logs and on screens.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            DatabaseUrl::Postgres(url) => fmt::Display::fmt(url, f),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address without its password.
///
/// It hides too much rather than too little, because a password may hold `/`, `?` or `@` unescaped. It hides everything
/// between the first `:` and the last `@`, and every option whose name contains `pass`.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", ""));
        write!(f, "{scheme}://")?;
        let rest = match rest.rsplit_once('@') {
            None => rest,
            Some((user, rest)) => {
                match user.split_once(':') {
                    Some((user, _)) => write!(f, "{user}:***@")?,
                    None => write!(f, "{user}@")?,
                }
                rest
            }
        };
        let Some((place, options)) = rest.split_once('?') else {
            return f.write_str(rest);
        };
        f.write_str(place)?;
        for (index, option) in options.split('&').enumerate() {
            f.write_str(if index == 0 { "?" } else { "&" })?;
            match option.split_once('=') {
                // A name with `%` may spell `password` in another way.
                Some((name, _)) if name.contains("pass") || name.contains('%') => {
                    write!(f, "{name}=***")?;
                }
                _ => f.write_str(option)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_servers_are_told_apart() {
        let file = |text: &str| match text.parse() {
            Ok(DatabaseUrl::Sqlite(path)) => path.display().to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(file("sqlite:campanile.db"), "campanile.db");
        assert_eq!(file("sqlite://campanile.db"), "campanile.db");
        assert_eq!(file("sqlite:///var/lib/c.db"), "/var/lib/c.db");
        assert_eq!(file("sqlite:/var/lib/c.db"), "/var/lib/c.db");
        for text in [
            "postgres://h/db",
            "postgresql://u:p@h:5432/db?sslmode=require",
            "postgres://u:p@[::1]:5432/db",
            "postgres://u:p@[::1]/db",
        ] {
            match text.parse() {
                Ok(DatabaseUrl::Postgres(url)) => assert_eq!(url.expose(), text),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_accepted_and_without_secrets() {
        for text in [
            "",
            "campanile.db",
            "mysql://u:secret@h/db",
            "u:secret@h",
            "secret@h",
            "postgres:u:secret@h",
            "postgres://",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:x.db?mode=rwc",
            "POSTGRES://u:secret@h",
            "postgres://u:secreth:5432/db",
            "postgres://us@er:secreth/db",
            "postgres:///u:secreth/db",
        ] {
            let error = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(
                error.ends_with("write sqlite:PATH or postgres://user:password@host:port/name"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_address_may_list_servers_and_say_which_of_them_is_meant() {
        for (text, servers, role) in [
            ("postgres://u:p@h/db", vec!["postgres://u:p@h/db"], "any"),
            (
                "postgres://u:p@h1,h2:5433/db?target_session_attrs=read-write&sslmode=require",
                vec![
                    "postgres://u:p@h1/db?sslmode=require",
                    "postgres://u:p@h2:5433/db?sslmode=require",
                ],
                "read-write",
            ),
            (
                "postgres://[::1]:5432,h2?target_session_attrs=primary",
                vec!["postgres://[::1]:5432", "postgres://h2"],
                "primary",
            ),
        ] {
            let Ok(DatabaseUrl::Postgres(url)) = text.parse() else {
                panic!("{text}");
            };
            assert_eq!(url.servers(), servers);
            assert_eq!(url.role().word(), role);
        }
        for (text, said) in [
            ("postgres://h1,/db", "one of them has no name"),
            ("postgres://h1,:5433/db", "one of them has no name"),
            ("postgres://h1:5432,h2:x/db", "no number as its port"),
            ("postgres:///db?host=h1,h2", "lists servers in an option"),
            (
                "postgres://h/db?target_session_attrs=prefer-standby",
                "has target_session_attrs=prefer-standby, and only any, read-write and primary",
            ),
        ] {
            let error = text.parse::<DatabaseUrl>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn other_programs_get_the_address_without_the_password_and_the_schema() {
        for (text, address, schema) in [
            ("postgres://u:secret@h:5/db", "postgres://u@h:5/db", None),
            ("postgres://h/db", "postgres://h/db", None),
            (
                "postgres://u:se/cr?et@h/db?sslmode=require&statement-cache-capacity=1&password=x",
                "postgres://u@h/db?sslmode=require",
                None,
            ),
            (
                "postgres://u@h/db?options=-c%20search_path%3Dteam_a%20-c%20x%3D1",
                "postgres://u@h/db",
                Some("team_a"),
            ),
            (
                "postgres://u@h/db?options[search_path]=team_a,public",
                "postgres://u@h/db",
                Some("team_a"),
            ),
        ] {
            let url = PostgresUrl(text.to_owned());
            assert_eq!(url.without_password(), address);
            assert_eq!(url.schema().as_deref(), schema);
        }
    }

    #[test]
    fn a_password_is_printed_by_nothing() {
        for (text, shown) in [
            ("postgres://u:secret@h/db", "postgres://u:***@h/db"),
            ("postgres://u:sec/ret?x@y:z@h/db", "postgres://u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres://h:5432/db", "postgres://h:5432/db"),
            (
                "postgres://h/db?user=u&password=secret&sslmode=require",
                "postgres://h/db?user=u&password=***&sslmode=require",
            ),
            (
                "postgres://h/db?passw%6frd=secret",
                "postgres://h/db?passw%6frd=***",
            ),
            (
                "postgres://h/db?p%61ssword=secret",
                "postgres://h/db?p%61ssword=***",
            ),
        ] {
            let url: DatabaseUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
        }
    }
}
