//! Which API the operator names, and with which token.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::{Address, Client};
use crate::environment::{DATABASE, SERVER, TOKEN};
use crate::output::{Failure, Result, refused};
use campanile_control::admin::token_admin::is_secret;

/// Where commands find the record, as the operator gives it by options.
#[derive(Clone, Copy)]
pub(crate) struct Given<'g> {
    pub server: Option<&'g str>,
    pub token: Option<&'g str>,
    pub database: Option<&'g str>,
}

/// Returns the API that options or variables name; none for the database. `env` returns a variable.
pub(crate) fn given(
    given: Given<'_>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Client>> {
    if let (Some(_), Some(_)) = (given.server, given.database) {
        return Err(refused!("--server and --database are both given").hint("give one of them"));
    }
    let variable = |name: &str| env(name).filter(|value| !value.is_empty());
    let of_variable = match given.database {
        Some(_) => None,
        None => variable(SERVER),
    };
    let (text, place) = match (given.server, &of_variable) {
        (Some(text), _) => (text, "--server"),
        (None, Some(text)) => (text.as_str(), SERVER),
        (None, None) if given.token.is_some() => {
            return Err(refused!("--token is given without --server")
                .hint(format!("give --server, or set {SERVER}")));
        }
        (None, None) => return Ok(None),
    };
    if given.server.is_none() && variable(DATABASE).is_some() {
        return Err(refused!("{SERVER} and {DATABASE} are both set").hint(
            "unset one of them, or give --server or --database, which are stronger than both",
        ));
    }
    let address: Address = (text.parse()).map_err(|error| refused!("{place}: `{text}` {error}"))?;
    let token = match given.token {
        Some(text) => Some(read_token(text, "--token")?),
        None => (variable(TOKEN).map(|text| read_token(&text, TOKEN))).transpose()?,
    };
    Ok(Some(Client::new(address, token)))
}

/// Read a token that is given as it is, or as `@FILE`.
fn read_token(text: &str, place: &str) -> Result<String> {
    let (text, place) = match text.strip_prefix('@') {
        None => (text.to_owned(), place.to_owned()),
        Some(path) => {
            let place = format!("{place} {path}");
            let unreadable = |error| Failure::unreadable(&place, &error);
            if fs::metadata(path).map_err(unreadable)?.mode() & 0o077 != 0 {
                return Err(refused!("{place}: other users can read or write the file")
                    .hint(format!("run `chmod 600 {path}`")));
            }
            (fs::read_to_string(path).map_err(unreadable)?, place)
        }
    };
    match is_secret(text.trim()) {
        true => Ok(text.trim().to_owned()),
        // The text may be a secret that was mistyped.
        false => Err(refused!("{place}: that is no token")
            .hint("give what `campanile token create` printed, or @FILE to read a file")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use campanile_control::admin::token_admin::new_secret;

    const NONE: Given<'static> = Given {
        server: None,
        token: None,
        database: None,
    };
    const HOST: &str = "http://127.0.0.1:7979";

    fn with(options: Given<'_>, variables: &[(&str, &str)]) -> Result<Option<Client>, String> {
        let env = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        given(options, &env).map_err(|failure| failure.message)
    }

    #[test]
    fn an_option_is_stronger_than_variables() {
        let server = Given {
            server: Some(HOST),
            ..NONE
        };
        let database = Given {
            database: Some("sqlite:a.db"),
            ..NONE
        };
        let both = [(SERVER, "unix:/b"), (DATABASE, "sqlite:b.db")];
        let shown = |given| with(given, &both).map(|it| it.map(|it| it.address.to_string()));
        assert_eq!(shown(server), Ok(Some(HOST.to_owned())));
        assert_eq!(shown(database), Ok(None));
        assert!(shown(NONE).unwrap_err().contains("both set"));
        assert!(with(NONE, &both[1..]).unwrap().is_none());
        assert!(with(NONE, &[(SERVER, "")]).unwrap().is_none());
        let both_options = Given {
            database: database.database,
            ..server
        };
        assert!(shown(both_options).unwrap_err().contains("both given"));
        assert!(with(NONE, &both[..1]).unwrap().is_some());
    }

    #[test]
    fn a_token_is_read_from_a_file_that_only_its_owner_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let secret = new_secret();
        fs::write(&path, format!("{secret}\n")).unwrap();
        let file = format!("@{}", path.display());
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let read = |token: &str| {
            let given = Given {
                server: Some(HOST),
                token: Some(token),
                ..NONE
            };
            with(given, &[]).map(|client| client.unwrap().token)
        };
        mode(0o644);
        assert!(read(&file).unwrap_err().contains("other users"));
        mode(0o600);
        assert_eq!(read(&file), Ok(Some(secret.clone())));
        assert_eq!(read(&secret), Ok(Some(secret.clone())));
        assert!(read("cmp_short").unwrap_err().contains("no token"));
        assert!(read("@/none").unwrap_err().contains("does not exist"));
        let alone = Given {
            token: Some(&secret),
            ..NONE
        };
        assert!(
            with(alone, &[])
                .map(drop)
                .unwrap_err()
                .contains("without --server")
        );
    }
}
