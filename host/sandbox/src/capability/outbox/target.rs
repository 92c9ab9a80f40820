//! Requests of the host itself to an address in its configuration, with the guard of tasks' requests.

use hyper::{Request, Uri};

use crate::capability::http::destination::{Destination, default_port};
use crate::capability::network::reach::{has_private_addresses, plain_host, private_address};
use crate::grants::{GrantSource, Grants, HttpGrant};

/// Returns the grants for requests to `url` alone. Without `is_private`, a name may lead to public addresses only.
///
/// # Errors
/// A clause, when it is no address, or one that is not public although `is_private` is false.
pub fn grants_to(url: &str, is_private: bool) -> Result<Grants, String> {
    let wrong = || "is no address such as \"https://example.com/hook\"".to_owned();
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong());
    }
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    let destination = Destination::of(&request).ok_or_else(wrong)?;
    grants_for(destination, is_private)
}

/// Returns the grants for e-mails by the server `url` alone, as [`grants_to`] does.
///
/// # Errors
/// A clause, as that of [`grants_to`].
pub fn grants_to_mail_server(url: &str, is_private: bool) -> Result<Grants, String> {
    let server = mail_server(url).ok_or_else(|| {
        "is no address of a mail server such as \"smtps://smtp.example.com\", or \"smtp://smtp.example.com:587\" for STARTTLS"
            .to_owned()
    })?;
    grants_for(server, is_private)
}

/// Read the address of a mail server.
pub(crate) fn mail_server(url: &str) -> Option<Destination> {
    let uri: Uri = url.parse().ok()?;
    let scheme = match uri.scheme_str()? {
        "smtps" => "smtps",
        "smtp" => "smtp",
        _ => return None,
    };
    let authority = uri.authority()?;
    let host = plain_host(authority.host());
    let has_rest = !matches!(uri.path(), "" | "/") || uri.query().is_some();
    if host.is_empty() || has_rest || authority.as_str().contains('@') {
        return None;
    }
    Some(Destination {
        method: "SEND".to_owned(),
        scheme,
        host,
        port: authority.port_u16().unwrap_or(default_port(scheme)),
    })
}

fn grants_for(destination: Destination, is_private: bool) -> Result<Grants, String> {
    if let Some(kind) = private_address(&destination.host).filter(|_| !is_private) {
        return Err(format!(
            "leads to {}, which is not a public address ({kind}); write `private = true` beside it to allow that",
            destination.host
        ));
    }
    let grant = HttpGrant {
        scheme: destination.scheme.to_owned(),
        port: Some(destination.port),
        methods: Vec::new(),
        private: is_private && has_private_addresses(&destination.host),
        host: destination.host,
        signing_secret: None,
    };
    Ok(Grants {
        http: vec![grant],
        source: GrantSource::Configuration,
        ..Grants::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_not_public_needs_private() {
        for (url, is_private, expected) in [
            ("https://hooks.example.com/a", false, true),
            ("https://1.1.1.1/a", false, true),
            ("http://127.0.0.1:8080/a", false, false),
            ("http://127.0.0.1:8080/a", true, true),
            ("http://localhost/a", false, false),
            ("http://[::1]/a", false, false),
            ("http://10.0.0.1/a", false, false),
            ("http://169.254.169.254/a", false, false),
            ("ftp://example.com/", true, false),
            ("https://a@example.com/", true, false),
            ("example.com", true, false),
        ] {
            assert_eq!(grants_to(url, is_private).is_ok(), expected, "{url}");
        }
    }

    #[test]
    fn a_mail_server_has_an_address_of_its_own_form() {
        for (url, expected) in [
            ("smtps://smtp.example.com", Some(("smtps", 465))),
            ("smtp://smtp.example.com/", Some(("smtp", 587))),
            ("smtp://smtp.example.com:25", Some(("smtp", 25))),
            ("smtp://127.0.0.1", None),
            ("https://smtp.example.com", None),
            ("smtp://user:password@smtp.example.com", None),
            ("smtp://smtp.example.com/path", None),
            ("smtp.example.com", None),
        ] {
            let granted = grants_to_mail_server(url, false).ok();
            let found = granted.map(|grants| {
                let grant = grants.http.into_iter().next().unwrap();
                (grant.scheme, grant.port.unwrap())
            });
            let expected = expected.map(|(scheme, port)| (scheme.to_owned(), port));
            assert_eq!(found, expected, "{url}");
        }
        assert!(grants_to_mail_server("smtp://127.0.0.1", true).is_ok());
    }
}
