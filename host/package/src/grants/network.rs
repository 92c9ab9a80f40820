//! HTTP requests and sockets.

use super::name::read_secret;
use super::part::{Part, parse_host, private_text, read_port, read_private};
use super::{GrantKind, GrantReader, Layout};
use crate::toml_reader::{Error, Section};
use campanile_sandbox::{HttpGrant, Protocol, SocketGrant, method_fault};

pub(super) static HTTP: GrantKind = GrantKind {
    name: "http",
    key: "http",
    keys: &[
        "http[].scheme | \"https\" or \"http\" | \"https\" | | The scheme of the requests.",
        "http[].host | text | | | A host name or an address, `*.example.com` for every name below a domain, or `*` for every public host.",
        "http[].private | true or false | false | | Whether the name may also lead to addresses that are not public: loopback, link-local, private and carrier-grade NAT. An address and `localhost` need no `true`. A metadata service of a cloud is reached only by a grant of its address.",
        "http[].port | number | | 1 to 65535 | The port; without it, the scheme's own port.",
        "http[].methods | list of texts | | | The methods that the task may use; without it, every method.",
        "http[].signing_secret | text | | | The name of a secret of the host's configuration, with which the host signs messages of the outbox to this host, as Standard Webhooks does.",
    ],
    layout: Layout::Entries(&["scheme", "host", "private"]),
    read: read_http,
    record: |grants| {
        let parts = |grant: &HttpGrant| {
            let mut methods = grant.methods.clone();
            methods.sort_unstable();
            methods.dedup();
            let port = grant.port.map_or_else(String::new, |port| port.to_string());
            let signing = grant.signing_secret.iter();
            let signing = signing.map(|name| format!("signing_secret={name}"));
            let parts = vec![
                grant.scheme.clone(),
                grant.host.to_ascii_lowercase(),
                private_text(grant.private),
                port,
                methods.join(","),
            ];
            parts.into_iter().chain(signing).collect()
        };
        grants.http.iter().map(parts).collect()
    },
    parts: &[Part::Scheme, Part::Host, Part::Private],
    need: "to reach",
    is_checked_at_use: true,
    ..GrantKind::DEFAULTS
};

pub(super) static SOCKET: GrantKind = GrantKind {
    name: "socket",
    key: "sockets",
    keys: &[
        "sockets[].protocol | \"tcp\" or \"udp\" | \"tcp\" | | The protocol of the socket.",
        "sockets[].host | text | | | A host name or an address, `*.example.com` for every name below a domain, or `*` for every public host.",
        "sockets[].private | true or false | false | | Whether the name may also lead to addresses that are not public, as for `http[].private`.",
        "sockets[].port | number | | 1 to 65535 | The port that the task may connect to.",
    ],
    layout: Layout::Entries(&["protocol", "host", "port", "private"]),
    read: read_socket,
    record: |grants| {
        let parts = |grant: &SocketGrant| {
            vec![
                grant.protocol.to_string(),
                grant.host.to_ascii_lowercase(),
                grant.port.to_string(),
                private_text(grant.private),
            ]
        };
        grants.sockets.iter().map(parts).collect()
    },
    parts: &[Part::Protocol, Part::Host, Part::Port, Part::Private],
    need: "to connect to",
    is_checked_at_use: true,
    ..GrantKind::DEFAULTS
};

fn read_http(section: &mut Section<'_>, reader: &mut GrantReader<'_>) -> Result<(), Error> {
    let scheme = section.parsed("scheme", |scheme| match scheme {
        "http" | "https" => Ok(scheme.to_owned()),
        _ => Err(format!("is \"{scheme}\": write \"https\" or \"http\"")),
    })?;
    let scheme = scheme.unwrap_or_else(|| "https".to_owned());
    let host = read_host(section, "api.example.com")?;
    let private = read_private(section, &host)?;
    let port = read_port(section)?;
    let methods = section.list("methods", |method| match method_fault(method) {
        Some(fault) => Err(format!("holds {method:?}, {fault}")),
        None => Ok(method.to_owned()),
    })?;
    let signing_secret =
        section.parsed("signing_secret", |name| read_secret(name, reader.rules))?;
    reader.grants.http.push(HttpGrant {
        scheme,
        host,
        port,
        methods: methods.unwrap_or_default(),
        private,
        signing_secret,
    });
    Ok(())
}

fn read_socket(section: &mut Section<'_>, reader: &mut GrantReader<'_>) -> Result<(), Error> {
    let protocol = section
        .parsed("protocol", Protocol::read)?
        .unwrap_or(Protocol::Tcp);
    let host = read_host(section, "db.example.com")?;
    let port = read_port(section)?;
    let port = port.ok_or_else(|| section.error_of_table("needs `port`, such as 5432"))?;
    let private = read_private(section, &host)?;
    reader.grants.sockets.push(SocketGrant {
        protocol,
        host,
        port,
        private,
    });
    Ok(())
}

/// Read the host of a grant, in lower case: a name, an address, `*.domain` or `*`.
fn read_host(section: &mut Section<'_>, example: &str) -> Result<String, Error> {
    let host = section.required("host", &format!("such as \"{example}\""))?;
    parse_host(&host).map_err(|what| section.error("host", what))
}
