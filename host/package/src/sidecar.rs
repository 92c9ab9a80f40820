//! `<name>.toml` beside `<name>.wasm`: the operator's word about a package.
//!
//! It is the only thing that grants. Without one a package runs its proposed schedules with no capability.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::limits::LimitChanges;
use super::schedule_reader::{self, context_of};
use super::spec::ScheduleSpec;
use super::{HostRules, package_name_fault};
use crate::toml_reader::{Document, Error, Section};
use campanile_model::text::nearest;
use campanile_sandbox::{
    BucketGrant, DirectoryGrant, ENV_PREFIX, Grants, HttpGrant, Protocol, SocketGrant, method_fault,
};

/// A larger file is not a sidecar.
pub const SIDECAR_BYTES_MAX: u64 = 1 << 20;

/// The most attempts that a task may be given for one run.
pub const MAX_ATTEMPTS_MOST: u64 = 1000;

/// What the operator says of one package. The default says nothing and grants nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sidecar {
    /// The file as it was read; none when there is none.
    pub text: Option<String>,
    /// The only digest that may run, in lower-case hexadecimal.
    pub pin: Option<String>,
    /// Lies under the context of every schedule of this package.
    pub context: Map<String, Value>,
    pub limits: LimitChanges,
    /// Attempts of every task, in place of what the package proposes.
    pub max_attempts: Option<u32>,
    /// Replaces what the package proposes; an empty list silences it.
    pub schedules: Option<Vec<ScheduleSpec>>,
    pub grants: Arc<Grants>,
}

impl Sidecar {
    /// Read the sidecar at `path`, whose content is `text`.
    ///
    /// Looks at the directories it grants, which must exist, and takes the variables it grants out of
    /// the host's environment: a grant that cannot be given is an error now, not at two in the morning.
    pub fn parse(path: &Path, text: &str, rules: &HostRules) -> Result<Sidecar, Error> {
        let shown = path.display().to_string();
        let folder = path.parent().unwrap_or(Path::new(""));
        let document = Document::parse(&shown, text)?;
        let mut top = document.section();

        let pin = top.text("sha256")?.map(|pin| pin.to_ascii_lowercase());
        if let Some(pin) = &pin
            && (pin.len() != 64 || !pin.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            return Err(top.error("sha256", "must be the 64 hexadecimal digits of a SHA-256"));
        }
        let context = context_of(&mut top)?;
        let limits = match top.table("limits")? {
            Some(section) => LimitChanges::read(section, rules.memory_bytes_most)?,
            None => LimitChanges::default(),
        };
        let max_attempts = match top.table("retry")? {
            Some(mut retry) => {
                let attempts = retry.number("max_attempts", 1, MAX_ATTEMPTS_MOST)?;
                retry.finish()?;
                attempts.and_then(|attempts| u32::try_from(attempts).ok())
            }
            None => None,
        };
        let schedules = match top.tables("schedules")? {
            Some(sections) => Some(schedule_reader::of_sidecar(sections)?),
            None => None,
        };
        let grants = match top.table("grants")? {
            Some(section) => {
                let package = path.file_stem().unwrap_or_default().to_string_lossy();
                grants(section, folder, &package, rules)?
            }
            None => Grants::default(),
        };
        top.finish()?;
        Ok(Sidecar {
            text: Some(text.to_owned()),
            pin,
            context,
            limits,
            max_attempts,
            schedules,
            grants: Arc::new(grants),
        })
    }
}

fn grants(
    mut section: Section<'_>,
    folder: &Path,
    package: &str,
    rules: &HostRules,
) -> Result<Grants, Error> {
    let mut grants = Grants::default();
    for directory in section.tables("directories")?.unwrap_or_default() {
        let grant = directory_grant(directory, folder, rules, &grants.directories)?;
        grants.directories.push(grant);
    }
    for http in section.tables("http")?.unwrap_or_default() {
        grants.http.push(http_grant(http)?);
    }
    for socket in section.tables("sockets")?.unwrap_or_default() {
        grants.sockets.push(socket_grant(socket)?);
    }
    for entry in section.texts("env")?.unwrap_or_default() {
        let (name, literal) = match entry.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (entry.as_str(), None),
        };
        check_variable(&section, "env", name)?;
        let value = match literal {
            Some(value) => value,
            None => {
                match (rules.env)(name).map(OsString::into_string) {
                    Some(Ok(value)) => value,
                    Some(Err(_)) => {
                        return Err(section.error(
                        "env",
                        format_args!("names {name}, whose value in the host's environment is not UTF-8 text"),
                    ));
                    }
                    None => {
                        return Err(section.error(
                        "env",
                        format_args!(
                            "names {name}, which is not set in the host's environment: set it before the host starts, or write \"{name}=value\""
                        ),
                    ));
                    }
                }
            }
        };
        if grants.env.insert(name.to_owned(), value).is_some() {
            return Err(section.error("env", format_args!("names {name} twice")));
        }
    }
    grants.config = section.text_map("config")?;
    for bucket in section.tables("keyvalue")?.unwrap_or_default() {
        let grant = bucket_grant(bucket, package, &grants.keyvalue)?;
        grants.keyvalue.push(grant);
    }
    let secrets = section.texts("secrets")?.unwrap_or_default();
    for name in &secrets {
        check_secret(&section, "secrets", name, rules)?;
        if grants.config.contains_key(name) {
            let what = format_args!("names {name}, which is also a key of `config`: rename one");
            return Err(section.error("secrets", what));
        }
    }
    grants.secrets = secrets.into_iter().collect();
    grants.secret_env = section.text_map("secret_env")?;
    for (variable, name) in &grants.secret_env {
        check_variable(&section, "secret_env", variable)?;
        if grants.env.contains_key(variable) {
            let what = format_args!("sets {variable}, which `env` also sets: leave one out");
            return Err(section.error("secret_env", what));
        }
        check_secret(&section, "secret_env", name, rules)?;
    }
    section.finish()?;
    Ok(grants)
}

/// Refuse a variable that is the host's own.
fn check_variable(section: &Section<'_>, key: &str, name: &str) -> Result<(), Error> {
    if name.starts_with(ENV_PREFIX) {
        let what = format_args!(
            "names {name}: what begins with {ENV_PREFIX} is the host's own, which it sets for each run; choose another name"
        );
        return Err(section.error(key, what));
    }
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err(section.error(key, "must hold names of variables"));
    }
    Ok(())
}

/// Refuse a secret that the host's configuration does not have.
fn check_secret(
    section: &Section<'_>,
    key: &str,
    name: &str,
    rules: &HostRules,
) -> Result<(), Error> {
    if rules.secrets.contains(name) {
        return Ok(());
    }
    // What is like no name may be a value, which is not for logs.
    Err(section.error(key, match nearest(name, rules.secrets.iter().map(String::as_str)) {
        Some(nearest) => format!(
            "names {name}, which is no secret of the host's configuration: did you mean \"{nearest}\"?"
        ),
        None => "must name secrets of the host's configuration, not hold their values: say there, at `[secrets.NAME]`, where each comes from".to_owned(),
    }))
}

/// The most bytes in the name of a bucket or namespace.
const BUCKET_NAME_BYTES_MAX: usize = 128;

fn bucket_grant(
    mut section: Section<'_>,
    package: &str,
    others: &[BucketGrant],
) -> Result<BucketGrant, Error> {
    let Some(bucket) = section.text("bucket")? else {
        return Err(section.error_of_table(
            "needs `bucket`, the name by which the task opens it, such as \"default\"",
        ));
    };
    if bucket.len() > BUCKET_NAME_BYTES_MAX || bucket.contains(char::is_control) {
        let what = format_args!("is {bucket:?}: write at most {BUCKET_NAME_BYTES_MAX} bytes");
        return Err(section.error("bucket", what));
    }
    if others.iter().any(|other| other.bucket == bucket) {
        return Err(section.error(
            "bucket",
            format_args!("is \"{bucket}\", as another bucket of this file already is"),
        ));
    }
    let writable = access(&mut section)?;
    let namespace = match section.text("namespace")? {
        // No shared one can have this name, which has a slash.
        None => format!("{package}/{bucket}"),
        Some(shared) => match package_name_fault(&shared) {
            None => shared,
            Some(_) => {
                let what = format_args!(
                    "is {shared:?}: a namespace that packages share is 1 to 64 letters, digits, `_` or `-`"
                );
                return Err(section.error("namespace", what));
            }
        },
    };
    section.finish()?;
    Ok(BucketGrant {
        bucket,
        namespace,
        writable,
    })
}

/// `access`: whether what is granted may be changed.
fn access(section: &mut Section<'_>) -> Result<bool, Error> {
    match section.text("access")?.as_deref() {
        Some("read") => Ok(false),
        Some("write") => Ok(true),
        Some(other) => Err(section.error(
            "access",
            format_args!("is \"{other}\": write \"read\" or \"write\""),
        )),
        None => Err(section.error_of_table("needs `access`: \"read\" or \"write\"")),
    }
}

fn directory_grant(
    mut section: Section<'_>,
    folder: &Path,
    rules: &HostRules,
    others: &[DirectoryGrant],
) -> Result<DirectoryGrant, Error> {
    let Some(host) = section.text("host")? else {
        return Err(section.error_of_table("needs `host`, a directory of this machine"));
    };
    let Some(guest) = section.text("guest")? else {
        return Err(section.error_of_table("needs `guest`, the path under which the task sees it"));
    };
    let writable = access(&mut section)?;
    if let Some(fault) = guest_path_fault(&guest) {
        return Err(section.error("guest", fault));
    }
    if others.iter().any(|other| other.guest == guest) {
        return Err(section.error(
            "guest",
            format_args!("is \"{guest}\", as another directory of this file already is"),
        ));
    }
    // A relative path is the sidecar's neighbour, wherever the host was started.
    let path = std::path::absolute(folder.join(&host))
        .map_err(|error| section.error("host", format_args!("is \"{host}\": {error}")))?;
    // Where it leads now is what is granted: a link put in its place later is not.
    let path = match path.canonicalize() {
        Ok(found) if found.is_dir() => found,
        Ok(_) => {
            return Err(section.error(
                "host",
                format_args!("is {}, which is not a directory", path.display()),
            ));
        }
        Err(error) => {
            return Err(section.error(
                "host",
                format_args!(
                    "is {}, which cannot be used ({error}): create it, or correct the path",
                    path.display()
                ),
            ));
        }
    };
    if writable && holds(&path, folder) {
        return Err(section.error(
            "host",
            format_args!(
                "is {}, which holds the plugins folder itself: a task that can write there could grant itself anything; grant another directory, or only \"read\"",
                path.display()
            ),
        ));
    }
    if writable && let Some(own) = rules.own_paths.iter().find(|own| reaches(&path, own)) {
        return Err(section.error(
            "host",
            format_args!(
                "is {}, which holds or lies in {}, one of the host's own: a task that can write there could change what the host does; grant another directory, or only \"read\"",
                path.display(),
                own.display()
            ),
        ));
    }
    section.finish()?;
    Ok(DirectoryGrant {
        host: path,
        guest,
        writable,
    })
}

/// Whether `inner` is `outer` or lies below it, through whatever links.
fn holds(outer: &Path, inner: &Path) -> bool {
    let inner = match inner.as_os_str().is_empty() {
        true => Path::new("."),
        false => inner,
    };
    match (outer.canonicalize(), inner.canonicalize()) {
        (Ok(outer), Ok(inner)) => inner.starts_with(outer),
        _ => false,
    }
}

/// Whether `granted` holds `own` or lies in it.
///
/// Both by where `own` leads and by its own name: it may not be there yet, and it may be a link, to be replaced.
fn reaches(granted: &Path, own: &Path) -> bool {
    let folder = match own.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let named = folder.canonicalize().ok().zip(own.file_name());
    let named = named.map(|(folder, name)| folder.join(name));
    let mut places = named.into_iter().chain(own.canonicalize().ok());
    places.any(|own| own.starts_with(granted) || granted.starts_with(&own))
}

/// Why `path` cannot be a path inside a task, if it cannot.
pub(super) fn guest_path_fault(path: &str) -> Option<String> {
    let plain = path.starts_with('/')
        && !path.contains(char::is_control)
        && path.split('/').all(|part| part != ".." && part != ".");
    let tidy = path == "/" || (!path.ends_with('/') && !path.contains("//"));
    if plain && tidy {
        return None;
    }
    Some(format!(
        "is {path:?}, which is not a path inside a task: write one from the root, such as \"/data\", without `.` or `..`"
    ))
}

fn http_grant(mut section: Section<'_>) -> Result<HttpGrant, Error> {
    let scheme = section
        .text("scheme")?
        .unwrap_or_else(|| "https".to_owned());
    if scheme != "http" && scheme != "https" {
        return Err(section.error(
            "scheme",
            format_args!("is \"{scheme}\": write \"https\" or \"http\""),
        ));
    }
    let Some(host) = section.text("host")? else {
        return Err(section.error_of_table("needs `host`, such as \"api.example.com\""));
    };
    let host = host.to_ascii_lowercase();
    if let Some(fault) = host_fault(&host) {
        return Err(section.error("host", fault));
    }
    let port = section.number("port", 1, 65535)?;
    let mut methods = Vec::new();
    for method in section.texts("methods")?.unwrap_or_default() {
        if let Some(fault) = method_fault(&method) {
            return Err(section.error("methods", format_args!("holds {method:?}, {fault}")));
        }
        methods.push(method);
    }
    section.finish()?;
    Ok(HttpGrant {
        scheme,
        host,
        port: port.and_then(|port| u16::try_from(port).ok()),
        methods,
    })
}

fn socket_grant(mut section: Section<'_>) -> Result<SocketGrant, Error> {
    let protocol = match section.text("protocol")? {
        None => Protocol::Tcp,
        Some(protocol) => {
            Protocol::read(&protocol).map_err(|what| section.error("protocol", what))?
        }
    };
    let Some(host) = section.text("host")? else {
        return Err(section.error_of_table("needs `host`, such as \"db.example.com\""));
    };
    let host = host.to_ascii_lowercase();
    if let Some(fault) = host_fault(&host) {
        return Err(section.error("host", fault));
    }
    let Some(port) = section.number("port", 1, 65535)? else {
        return Err(section.error_of_table("needs `port`, such as 5432"));
    };
    section.finish()?;
    Ok(SocketGrant {
        protocol,
        host,
        port: u16::try_from(port).unwrap_or(u16::MAX),
    })
}

/// Why `host` cannot be granted, if it cannot: it must be a name, an address, `*.domain` or `*`.
fn host_fault(host: &str) -> Option<String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_name = !name.is_empty()
        && name.split('.').all(|label| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        });
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if host == "*" || is_name || is_address {
        return None;
    }
    Some(format!(
        "is {host:?}, which is not a host: write a name or an address without scheme, port or path, or \"*.example.com\", or \"*\""
    ))
}

#[cfg(test)]
mod tests;
