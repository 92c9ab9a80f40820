//! The address of the database. It may hold a password, which it never prints.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use url::{ParseError, Position, Url};

/// Where the database is.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(PostgresUrl),
}

/// A `postgres://` address. Only [`PostgresUrl::expose`] reveals the password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl(Url);

/// The options of an address that the programs of Postgres know by the same names.
const TOOL_OPTIONS: [&str; 6] = ["dbname", "host", "port", "sslmode", "sslrootcert", "user"];

impl PostgresUrl {
    /// Return the whole address, for the driver only.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// Return the address as `pg_dump` and `psql` take it, without its password.
    pub fn without_password(&self) -> String {
        self.shown("", |name, option| {
            TOOL_OPTIONS.contains(&name).then(|| option.to_owned())
        })
    }

    /// Return the address with `password` instead of its own, if it has one, and with what `show` returns for the name and
    /// the text of each option.
    fn shown(&self, password: &str, show: impl Fn(&str, &str) -> Option<String>) -> String {
        let url = &self.0;
        let user = match (url.username(), url.password()) {
            ("", None) => String::new(),
            (user, None) => format!("{user}@"),
            (user, Some(_)) => format!("{user}{password}@"),
        };
        let options = url.query().unwrap_or_default().split('&');
        let options = options.filter_map(|option| show(option.split('=').next()?, option));
        let options = options.collect::<Vec<_>>().join("&");
        let joint = if options.is_empty() { "" } else { "?" };
        let scheme = &url[..Position::BeforeUsername];
        let place = &url[Position::BeforeHost..Position::AfterPath];
        format!("{scheme}{user}{place}{joint}{options}")
    }

    /// Return the schema that the option `search_path` names, if it names one.
    pub fn schema(&self) -> Option<String> {
        self.0.query_pairs().find_map(|(key, value)| {
            let path = match key.as_ref() {
                "options" => value.split_once("search_path=")?.1,
                "options[search_path]" => value.as_ref(),
                _ => return None,
            };
            let name = path
                .split([',', ' '])
                .next()
                .filter(|name| !name.is_empty());
            name.map(str::to_owned)
        })
    }
}

/// Why an address is invalid, as the end of a sentence that starts with the key. It never repeats a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: write sqlite:PATH or postgres://user:password@host:port/name")]
pub struct InvalidDatabaseUrl(String);

impl DatabaseUrl {
    /// Return the SQLite file; none for Postgres.
    pub fn sqlite_path(&self) -> Option<&Path> {
        match self {
            DatabaseUrl::Sqlite(path) => Some(path),
            DatabaseUrl::Postgres(_) => None,
        }
    }

    /// Return `sqlite` or `postgres`.
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

    /// Return the same database with `schema` as its search path. No effect on SQLite.
    pub fn in_schema(&self, schema: &str) -> DatabaseUrl {
        match self {
            DatabaseUrl::Sqlite(_) => self.clone(),
            DatabaseUrl::Postgres(PostgresUrl(url)) => {
                let mut url = url.clone();
                let path = format!("-c search_path={schema}");
                url.query_pairs_mut().append_pair("options", &path);
                DatabaseUrl::Postgres(PostgresUrl(url))
            }
        }
    }

    /// Return the whole address, for another process.
    pub fn expose(&self) -> String {
        match self {
            DatabaseUrl::Sqlite(path) => format!("sqlite:{}", path.display()),
            DatabaseUrl::Postgres(url) => url.expose().to_string(),
        }
    }

    /// Return the same address with a relative file resolved against `folder`.
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
        let what = match text.split_once(':') {
            None if text.contains('@') => "is not the address of a database".to_owned(),
            None => format!("is {text:?}, which is not the address of a database"),
            Some(("sqlite", path)) => return sqlite(path.strip_prefix("//").unwrap_or(path)),
            Some((scheme @ ("postgres" | "postgresql"), rest)) => {
                let server = rest.strip_prefix("//").unwrap_or_default();
                if !server.is_empty() && !text.contains(char::is_control) {
                    return postgres(text);
                }
                format!("begins with \"{scheme}:\" and is no address of a server")
            }
            Some((scheme, _)) => {
                format!("begins with {scheme:?}, which is no database known here")
            }
        };
        Err(InvalidDatabaseUrl(what))
    }
}

/// Read the address of a server. Nothing of a password may become a port or the name of a database, which are shown.
fn postgres(text: &str) -> Result<DatabaseUrl, InvalidDatabaseUrl> {
    let what = match Url::parse(text) {
        Ok(url) if !has_cut_password(&url) => {
            return Ok(DatabaseUrl::Postgres(PostgresUrl(url)));
        }
        Ok(_) | Err(ParseError::InvalidPort | ParseError::EmptyHost) => {
            "has no number as its port: write a password before `@`, with `/` as %2F, `?` as %3F, `#` as %23 and `@` as %40, and an IPv6 address in brackets".to_owned()
        }
        Err(error) => format!("is no address of a server ({error})"),
    };
    Err(InvalidDatabaseUrl(what))
}

/// Whether the `@` after a password is missing, or the password ends at its first `/`, `?` or `#`.
fn has_cut_password(url: &Url) -> bool {
    let after_port = &url[Position::AfterPort..];
    url.path().contains(':') || url.port().is_some() && after_port.contains('@')
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

/// The address without its password and the values of options whose name contains `pass`.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name with `%` may spell `password` in another way.
        let is_secret = |name: &str| name.contains("pass") || name.contains('%');
        let shown = self.shown(":***", |name, option| match is_secret(name) {
            true => Some(format!("{name}=***")),
            false => Some(option.to_owned()),
        });
        f.write_str(&shown)
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
                Ok(DatabaseUrl::Postgres(url)) => assert_eq!(url.expose().as_str(), text),
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
            // A password with an unescaped character.
            "postgres://u:secret/x@h/db",
            "postgres://u:12/secret@h/db",
            "postgres://u:12?secret@h/db",
            "postgres://u:12#secret@h/db",
            "postgres://us@er:12/secret@h/db",
            "postgres://u:secret?x@y:z@h/db",
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
    fn other_programs_get_the_address_without_the_password_and_the_schema() {
        for (text, address, schema) in [
            ("postgres://u:secret@h:5/db", "postgres://u@h:5/db", None),
            ("postgres://h/db", "postgres://h/db", None),
            (
                "postgres://u:se%2Fcr%3Fet@h/db?sslmode=require&statement-cache-capacity=1&password=x",
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
            let url = PostgresUrl(Url::parse(text).unwrap());
            assert_eq!(url.without_password(), address);
            assert_eq!(url.schema().as_deref(), schema);
        }
    }

    #[test]
    fn a_password_is_printed_by_nothing() {
        for (text, shown) in [
            ("postgres://u:secret@h/db", "postgres://u:***@h/db"),
            ("postgres://u:sec%2Fret@y:z@h/db", "postgres://u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("postgres://h:5432/db", "postgres://h:5432/db"),
            (
                "postgres://h/db?user=u&password=secret&sslmode=require",
                "postgres://h/db?user=u&password=***&sslmode=require",
            ),
            (
                "postgres://h/db?password=sec@ret&user=u",
                "postgres://h/db?password=***&user=u",
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
