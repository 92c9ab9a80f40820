//! Requests of the host itself to an address in its configuration, with the guard of tasks' requests.

use hyper::{Request, Uri};

use crate::capability::http::destination::Destination;
use crate::capability::network::reach::{has_private_addresses, private_address};
use crate::grants::{Grants, HttpGrant};

/// Return the grants for requests to `url` alone. Without `is_private`, a name may lead to public addresses only.
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
}
