//! Connections to a Postgres server, and what proves that it is the right one.
//!
//! Whoever answers at the address of the server is asked for the record, and gets the password. So a server on another
//! machine must show a certificate for its name, unless the operator writes `sslmode=` in the address.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use url::Url;

use super::url::PostgresUrl;
use super::{ACQUIRE_SECONDS, DbError, Result, STATEMENTS_MAX};

/// The most connections of a host: it decides, claims, finishes, renews and reads at the same time.
const CONNECTIONS_MAX: u32 = 8;

/// The keys of an address that say how TLS is used.
const SSL_MODE_KEYS: [&str; 2] = ["sslmode", "ssl-mode"];

/// Connect to the server at `url`.
///
/// # Errors
///
/// `Refused` when the server cannot show that it is the right one, or refuses the user; `Unavailable` when it does not
/// answer.
pub(super) async fn open(url: &PostgresUrl) -> Result<PgPool> {
    let options = options(url)?
        .application_name("campanile")
        .statement_cache_capacity(STATEMENTS_MAX);
    // A pool tries again silently until its time-out. A single connection reports the error at once.
    let answer = tokio::time::timeout(Duration::from_secs(ACQUIRE_SECONDS), options.connect());
    match answer.await {
        Ok(Ok(connection)) => connection.close().await?,
        Ok(Err(error)) => return Err(connect_error(error)),
        Err(_) => {
            return Err(DbError::Unavailable(format!(
                "no answer in {ACQUIRE_SECONDS} seconds"
            )));
        }
    }
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS_MAX)
        .acquire_timeout(Duration::from_secs(ACQUIRE_SECONDS))
        .connect_with(options)
        .await?;
    Ok(pool)
}

/// Return the options of `url`. The server's certificate is checked unless the server is on this machine, or the
/// address itself says how TLS is used.
fn options(url: &PostgresUrl) -> Result<PgConnectOptions> {
    let options = PgConnectOptions::from_str(url.expose())?;
    let address = Url::parse(url.expose());
    let names_ssl_mode = |address: &Url| {
        let mut keys = address.query_pairs().map(|(key, _)| key);
        keys.any(|key| SSL_MODE_KEYS.contains(&key.as_ref()))
    };
    match is_local(&options) || address.is_ok_and(|address| names_ssl_mode(&address)) {
        true => Ok(options),
        false => Ok(options.ssl_mode(PgSslMode::VerifyFull)),
    }
}

/// Whether the server is reached without a network: through a socket file or a loopback address.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || ip.is_some_and(|ip| ip.to_canonical().is_loopback())
}

fn connect_error(error: sqlx::Error) -> DbError {
    match error {
        sqlx::Error::Tls(error) => DbError::Refused(format!(
            "no checked connection ({error}), and so no password was sent: let the server offer TLS, or write `sslmode=disable` in the address if every machine on the way is trusted"
        )),
        // The certificate is not valid. The library for TLS passes its errors on as invalid data.
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            DbError::Refused(format!(
                "the server did not prove that it is the right one ({error}), and so no password was sent: write `sslrootcert=FILE` in the address, with the certificate of the authority that signed the server's, or `sslmode=require` to encrypt without checking the server"
            ))
        }
        sqlx::Error::Io(error) => DbError::Unavailable(error.to_string()),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseUrl;

    #[test]
    fn the_server_is_checked_unless_it_is_local_or_the_address_says_otherwise() {
        for (address, expected) in [
            ("postgres://u:p@db.example.com/d", "VerifyFull"),
            ("postgres://u:p@10.0.0.5:5432/d", "VerifyFull"),
            ("postgres://u:p@0.0.0.0/d", "VerifyFull"),
            ("postgres://u:p@localhost.example.com/d", "VerifyFull"),
            ("postgres:///d?host=db.example.com", "VerifyFull"),
            ("postgres://u:p@localhost/d?hostaddr=10.0.0.5", "VerifyFull"),
            (
                "postgres://u:p@db.example.com/d?application_name=sslmode",
                "VerifyFull",
            ),
            ("postgres://u:p@db.example.com/d?sslmode=disable", "Disable"),
            (
                "postgres://u:p@db.example.com/d?ssl-mode=require",
                "Require",
            ),
            ("postgres://u:p@db.example.com/d?sslm%6fde=prefer", "Prefer"),
            ("postgres://u:p@localhost/d", "Prefer"),
            ("postgres://u:p@127.0.0.1/d", "Prefer"),
            ("postgres://u:p@127.8.9.1/d", "Prefer"),
            ("postgres://u:p@[::1]/d", "Prefer"),
            ("postgres://u:p@%2Fvar%2Frun%2Fpostgresql/d", "Prefer"),
            ("postgres:///d?host=/var/run/postgresql", "Prefer"),
            ("postgres://u:p@localhost/d?sslmode=verify-ca", "VerifyCa"),
        ] {
            let Ok(DatabaseUrl::Postgres(url)) = address.parse() else {
                panic!("{address}");
            };
            let mode = options(&url).unwrap().get_ssl_mode();
            assert_eq!(format!("{mode:?}"), expected, "{address}");
        }
    }
}
