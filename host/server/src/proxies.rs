//! Identity by a proxy: a program before this server that has proved who the user is, and says so in a header.
//!
//! Only the addresses that the configuration lists may say so. From any other address the header is refused, also beside a
//! token: such a request is an attack, or the proxy does not remove the header of its clients.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderName};

use crate::peer::Peer;
use crate::problem::ApiProblem;
use campanile_control::admin::token_admin::Principal;
use campanile_model::access::Role;

/// The longest name of a user, in bytes.
const USER_BYTES_MAX: usize = 128;

/// The proxies that may say who makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// None, if only tokens count.
    pub addresses: Vec<Network>,
    /// The header with the user.
    pub user_header: String,
    pub roles: ProxyRoles,
}

/// Which role a user has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyRoles {
    /// That in this header.
    Header(String),
    /// That of the configuration, by the name of the user.
    Users(BTreeMap<String, Role>),
}

impl Default for ProxyRoles {
    fn default() -> ProxyRoles {
        ProxyRoles::Users(BTreeMap::new())
    }
}

/// An address, or all that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address is one of these.
    fn contains(self, address: IpAddr) -> bool {
        let same = |one: u128, other: u128, of: u32| {
            let rest = of - u32::from(self.bits);
            one.checked_shr(rest) == other.checked_shr(rest)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                same(one.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => same(one.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    /// The error is a clause.
    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || {
            format!(
                "has {text:?}, which is no address such as \"10.0.0.7\" or network such as \"10.0.0.0/24\""
            )
        };
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| wrong())?,
            None => most,
        };
        if bits == 0 {
            return Err(format!(
                "has {text:?}, every address there is: list the addresses of your proxies"
            ));
        }
        if bits <= most {
            Ok(Network { address, bits })
        } else {
            Err(wrong())
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.address.is_ipv4() { 32 } else { 128 };
        if self.bits == most {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.bits)
        }
    }
}

/// Check the name of a header, which the proxy sets.
///
/// # Errors
///
/// A clause.
pub fn check_header_name(name: &str) -> Result<(), String> {
    let is_ours = [AUTHORIZATION.as_str(), "host", "cookie", "content-length"];
    match name.parse::<HeaderName>() {
        Err(_) => Err(format!("is {name:?}, which is not the name of a header")),
        Ok(parsed) if is_ours.contains(&parsed.as_str()) => Err(format!(
            "is {name:?}, which has another meaning: use one such as \"X-Forwarded-User\""
        )),
        Ok(_) => Ok(()),
    }
}

impl Proxies {
    /// Returns the user that the proxy's header names; none without the header.
    ///
    /// # Errors
    ///
    /// When the header comes from an address that is not listed, twice, beside a token, or with no user or role.
    pub(crate) fn principal(
        &self,
        headers: &HeaderMap,
        peer: &Peer,
    ) -> Result<Option<Principal>, ApiProblem> {
        if self.addresses.is_empty() {
            return Ok(None);
        }
        let header = &self.user_header;
        let of_role = match &self.roles {
            ProxyRoles::Header(header) => headers.contains_key(header),
            ProxyRoles::Users(_) => false,
        };
        if !headers.contains_key(header) && !of_role {
            return Ok(None);
        }
        let is_listed = match peer {
            Peer::Tcp { address } => self.addresses.iter().any(|it| it.contains(*address)),
            Peer::Unix { .. } => false,
        };
        if !is_listed {
            return Err(ApiProblem::forbidden(format!(
                "the header `{header}` comes from an address that `server.trusted_proxies` does not list"
            )));
        }
        if headers.contains_key(AUTHORIZATION) {
            return Err(ApiProblem::unauthorized(format!(
                "the request has a token and the header `{header}`: the proxy must remove one of them"
            )));
        }
        let user = one(headers, header)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@:\\".contains(&byte);
        if !(1..=USER_BYTES_MAX).contains(&user.len()) || !user.bytes().all(is_plain) {
            return Err(ApiProblem::unauthorized(format!(
                "the header `{header}` names no user: use 1 to {USER_BYTES_MAX} letters, digits, `.`, `_`, `-`, `+`, `@`, `:` or `\\`"
            )));
        }
        let role = match &self.roles {
            ProxyRoles::Users(users) => users.get(user).copied().ok_or_else(|| {
                ApiProblem::forbidden(format!(
                    "the user {user} has no role: an administrator writes one at `[server.proxy_roles]`"
                ))
            })?,
            ProxyRoles::Header(header) => Role::read(one(headers, header)?).map_err(|what| {
                ApiProblem::forbidden(format!("the header `{header}` {what}"))
            })?,
        };
        Ok(Some(Principal {
            name: user.to_owned(),
            role,
            namespace: None,
            token: None,
            is_proxied: true,
            unsealed_role: None,
        }))
    }
}

/// Returns the value of a header that must come once.
fn one<'h>(headers: &'h HeaderMap, name: &str) -> Result<&'h str, ApiProblem> {
    let mut values = headers.get_all(name).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    value.map(str::trim).ok_or_else(|| {
        ApiProblem::unauthorized(format!("the proxy must send the header `{name}` once"))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn peer(address: &str) -> Peer {
        let address = address.parse().unwrap();
        Peer::Tcp { address }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn a_network_contains_the_addresses_that_begin_alike() {
        for (network, address, expected) in [
            ("10.0.0.7", "10.0.0.7", true),
            ("10.0.0.7", "10.0.0.8", false),
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("127.0.0.1", "::ffff:127.0.0.1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "127.0.0.1", false),
            ("::1", "::1", true),
        ] {
            let read: Network = network.parse().unwrap();
            assert_eq!(read.to_string(), network);
            let address = address.parse().unwrap();
            assert_eq!(read.contains(address), expected, "{network} {address}");
        }
        for wrong in [
            "",
            "x",
            "10.0.0.0/33",
            "10.0.0.0/0",
            "::/0",
            "10.0.0.0/",
            "localhost",
        ] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_listed_proxy_says_who_a_user_is_and_says_it_once() {
        let proxies = Proxies {
            addresses: vec!["10.0.0.7".parse().unwrap()],
            user_header: "X-Forwarded-User".to_owned(),
            roles: ProxyRoles::Header("X-Forwarded-Role".to_owned()),
        };
        let (user, role) = (("x-forwarded-user", "ada"), ("x-forwarded-role", "editor"));
        let from = |address: &str, pairs: &[_]| {
            let found = proxies.principal(&headers(pairs), &peer(address));
            found.map_err(|problem| (problem.status.as_u16(), problem.problem.message))
        };
        let found = from("10.0.0.7", &[user, role]).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.role), ("ada", Role::Editor));
        assert_eq!(found.key(), "proxy:ada");
        assert_eq!(from("10.0.0.7", &[]), Ok(None));
        assert_eq!(from("10.0.0.8", &[]), Ok(None));
        let token = ("authorization", "Bearer cmp_x");
        for (address, pairs, status) in [
            ("10.0.0.8", vec![user, role], 403),
            ("10.0.0.8", vec![user, role, token], 403),
            ("10.0.0.8", vec![role], 403),
            ("10.0.0.7", vec![user, role, token], 401),
            ("10.0.0.7", vec![user, user, role], 401),
            (
                "10.0.0.7",
                vec![user, ("x-forwarded-user", "bob"), role],
                401,
            ),
            (
                "10.0.0.7",
                vec![user, role, ("x-forwarded-role", "admin")],
                401,
            ),
            ("10.0.0.7", vec![user], 401),
            ("10.0.0.7", vec![role], 401),
            (
                "10.0.0.7",
                vec![("x-forwarded-user", "local token"), role],
                401,
            ),
            ("10.0.0.7", vec![("x-forwarded-user", ""), role], 401),
            ("10.0.0.7", vec![user, ("x-forwarded-role", "root")], 403),
        ] {
            let refused = from(address, &pairs).unwrap_err();
            assert_eq!(refused.0, status, "{pairs:?}: {}", refused.1);
        }
        let of_socket = proxies.principal(&headers(&[user, role]), &Peer::Unix { uid: 0 });
        assert_eq!(of_socket.unwrap_err().status.as_u16(), 403);
        let without = Proxies::default();
        assert_eq!(
            without
                .principal(&headers(&[user, role]), &peer("10.0.0.7"))
                .unwrap(),
            None
        );
    }

    #[test]
    fn a_user_without_a_role_in_the_configuration_is_refused() {
        let proxies = Proxies {
            addresses: vec!["10.0.0.0/24".parse().unwrap()],
            user_header: "remote-user".to_owned(),
            roles: ProxyRoles::Users([("ada".to_owned(), Role::Admin)].into()),
        };
        let of = |user| proxies.principal(&headers(&[("remote-user", user)]), &peer("10.0.0.9"));
        assert_eq!(of("ada").unwrap().unwrap().role, Role::Admin);
        let refused = of("bob").unwrap_err();
        assert!(refused.problem.message.contains("[server.proxy_roles]"));
    }
}
