//! Grants that an operator adds for one call, beside those of the sidecar.

use std::path::Path;

use super::part::parse_host;
use super::{GrantReader, KeyFault, device, directory, name};
use crate::host_rules::HostRules;
use campanile_sandbox::{DirectoryQuota, Grants, HttpGrant};

/// The grants of one call as far as they are added.
pub struct CallGrants<'r> {
    reader: GrantReader<'r>,
}

impl<'r> CallGrants<'r> {
    /// Begin with the grants of a sidecar. `plugins` is the plugins folder of the host with `rules`.
    pub fn new(grants: Grants, plugins: &'r Path, rules: &'r HostRules) -> CallGrants<'r> {
        CallGrants {
            reader: GrantReader {
                folder: plugins,
                package: "",
                rules,
                grants,
            },
        }
    }

    /// Grant the directory at `host`, as a sidecar would. Blocks.
    ///
    /// # Errors
    /// When the directory or the path cannot be granted.
    pub fn add_directory(
        &mut self,
        host: &Path,
        guest: &str,
        writable: bool,
    ) -> Result<(), KeyFault> {
        let quota = DirectoryQuota::default();
        directory::add(&mut self.reader, host, guest.to_owned(), writable, quota)?;
        device::check_folder(&self.reader)
            .map_err(|what| ("guest", format!("hides devices, which {what}")))
    }

    /// Grants the device `name`, such as `urandom`, unless the sidecar already does.
    ///
    /// # Errors
    /// Returns a clause.
    pub fn add_device(&mut self, name: &str) -> Result<(), String> {
        let mut granted = self.reader.grants.devices.iter();
        if granted.any(|device| device.as_str() == name) {
            return Ok(());
        }
        device::add(&mut self.reader, name)
    }

    /// Grant the variable `NAME=value`, or `NAME` of the host's environment, in place of one of the same name.
    ///
    /// # Errors
    /// A clause.
    pub fn add_variable(&mut self, entry: &str) -> Result<(), String> {
        let (name, value) = name::read_variable(entry, self.reader.rules)?;
        self.reader.grants.secret_env.remove(&name);
        self.reader.grants.env.insert(name, value);
        Ok(())
    }

    /// Grant requests to `HOST`, or to `http://HOST:PORT` for another scheme or port.
    ///
    /// # Errors
    /// A clause.
    pub fn add_http(&mut self, address: &str) -> Result<(), String> {
        let (scheme, place) = match address.split_once("://") {
            Some((scheme @ ("http" | "https"), place)) => (scheme, place),
            Some((scheme, _)) => {
                return Err(format!(
                    "has the scheme {scheme:?}: write `http` or `https`"
                ));
            }
            None => ("https", address),
        };
        let (host, port) = split_port(place)?;
        self.reader.grants.http.push(HttpGrant {
            scheme: scheme.to_owned(),
            host: parse_host(host)?,
            port,
            methods: Vec::new(),
            private: false,
            signing_secret: None,
        });
        Ok(())
    }

    /// Returns all grants of the call.
    pub fn finish(self) -> Grants {
        self.reader.grants
    }
}

/// Split `HOST:PORT`. An IPv6 address with a port is in brackets, as in a URL.
fn split_port(place: &str) -> Result<(&str, Option<u16>), String> {
    let unbracketed = place
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    let (host, port) = match unbracketed {
        Some((host, "")) => (host, None),
        Some((host, rest)) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => {
                return Err(format!(
                    "has {rest:?} after the address: write [ADDRESS]:PORT"
                ));
            }
        },
        None if place.matches(':').count() > 1 => (place, None),
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.map(|port| match port.parse() {
        Ok(0) | Err(_) => Err(format!(
            "has the port {port:?}: write a number from 1 to 65535"
        )),
        Ok(port) => Ok(port),
    });
    Ok((host, port.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_scheme_and_port() {
        for (address, expected) in [
            ("api.example.com", ("https", "api.example.com", None)),
            ("*.Example.com", ("https", "*.example.com", None)),
            ("http://localhost:8080", ("http", "localhost", Some(8080))),
            ("https://[::1]:443", ("https", "::1", Some(443))),
            ("https://[::1]", ("https", "::1", None)),
            ("::1", ("https", "::1", None)),
        ] {
            let added = add(&[address]).unwrap();
            let [grant] = added.http.as_slice() else {
                panic!("{added:?}");
            };
            let found = (&*grant.scheme, &*grant.host, grant.port);
            assert_eq!(found, expected, "{address}");
        }
        for (address, expected) in [
            ("ftp://x", "has the scheme \"ftp\""),
            ("x:0", "has the port \"0\""),
            ("x:port", "has the port \"port\""),
            ("https://[::1]8080", "has \"8080\" after the address"),
            ("https://[::1]/path", "has \"/path\" after the address"),
            ("https://x/path", "is \"x/path\", which is not a host"),
        ] {
            let error = add(&[address]).unwrap_err();
            assert!(error.starts_with(expected), "{address}: {error}");
        }
    }

    fn rules() -> HostRules {
        HostRules {
            secret_variables: Default::default(),
            limits: Default::default(),
            memory_bytes_most: 1 << 30,
            env: |_| None,
            own_paths: Vec::new(),
            foreign_writers: Default::default(),
            secrets: Default::default(),
            groups: Default::default(),
            policy: Default::default(),
        }
    }

    fn add(addresses: &[&str]) -> Result<Grants, String> {
        let rules = rules();
        let mut grants = CallGrants::new(Grants::default(), Path::new(""), &rules);
        for address in addresses {
            grants.add_http(address)?;
        }
        Ok(grants.finish())
    }

    #[test]
    fn a_variable_replaces_that_of_the_sidecar() {
        let rules = rules();
        let sidecar = Grants {
            env: [("A".to_owned(), "old".to_owned())].into(),
            secret_env: [("B".to_owned(), "db".to_owned())].into(),
            ..Grants::default()
        };
        let mut grants = CallGrants::new(sidecar, Path::new(""), &rules);
        grants.add_variable("A=new").unwrap();
        grants.add_variable("B=plain=text").unwrap();
        for (entry, expected) in [
            ("C", "names C, which is not set"),
            ("CAMPANILE_X=1", "names CAMPANILE_X: the host sets"),
            ("=1", "has a variable without a name"),
        ] {
            let error = grants.add_variable(entry).unwrap_err();
            assert!(error.starts_with(expected), "{entry}: {error}");
        }
        let grants = grants.finish();
        assert_eq!(
            (&*grants.env["A"], &*grants.env["B"]),
            ("new", "plain=text")
        );
        assert!(grants.secret_env.is_empty());
    }
}
