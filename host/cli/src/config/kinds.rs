//! How values of the configuration are read and written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use campanile_control::traces_endpoint::TracesEndpoint;
use campanile_model::access::Role;
use campanile_model::labels::Labels;
use campanile_model::text::{duration_text, size_text};
use campanile_package::signature::PublicKey;
use campanile_package::toml_reader::{Error, Section};
use campanile_server::{Listen, Network};
use campanile_store::DatabaseUrl;

/// The bounds of the ages in `[retention]`.
const AGE: (Duration, Duration) = (
    Duration::from_secs(60),
    Duration::from_secs(100 * 31_557_600),
);
/// How an age is written that never comes.
const FOR_EVER: &str = "forever";

/// How the value of a key is read and written.
pub(super) struct Kind<T> {
    /// The type and the unit, as the reference names them.
    pub(super) name: &'static str,
    /// The least and the greatest value.
    pub(super) bounds: Option<String>,
    pub(super) read: Read<T>,
    pub(super) toml: Write<T>,
}

/// Reads a key, or returns `None` when the file does not set it. A relative path starts at the given folder.
pub(super) type Read<T> =
    Box<dyn Fn(&mut Section<'_>, &'static str, &Path) -> Result<Option<T>, Error>>;

/// Writes a value, or returns `None` for one that is not set.
pub(super) type Write<T> = Box<dyn Fn(&T) -> Option<toml::Value>>;

pub(super) fn age_text(age: Option<Duration>) -> String {
    age.map_or_else(|| FOR_EVER.to_owned(), duration_text)
}

impl<T: 'static> Kind<T> {
    /// Make a kind without bounds, whose value is always set.
    fn new(
        name: &'static str,
        read: impl Fn(&mut Section<'_>, &'static str, &Path) -> Result<Option<T>, Error> + 'static,
        toml: impl Fn(&T) -> toml::Value + 'static,
    ) -> Kind<T> {
        Kind {
            name,
            bounds: None,
            read: Box::new(read),
            toml: Box::new(move |it| Some(toml(it))),
        }
    }

    /// Say that `read` refuses a value that is not from `least` to `most`.
    fn within(self, least: impl Display, most: impl Display) -> Kind<T> {
        let bounds = format!("{least} to {most}");
        Kind {
            bounds: Some(bounds),
            ..self
        }
    }
}

/// A value that may be left out.
pub(super) fn optional<T: 'static>(kind: Kind<T>) -> Kind<Option<T>> {
    let Kind { read, toml, .. } = kind;
    Kind {
        name: kind.name,
        bounds: kind.bounds,
        read: Box::new(move |section, key, home| Ok(read(section, key, home)?.map(Some))),
        toml: Box::new(move |it| toml(it.as_ref()?)),
    }
}

pub(super) fn duration(least: Duration, most: Duration) -> Kind<Duration> {
    Kind::new(
        "duration",
        move |section, key, _| section.duration(key, least, most),
        |it| duration_text(*it).into(),
    )
    .within(duration_text(least), duration_text(most))
}

/// An age, or never.
pub(super) fn age() -> Kind<Option<Duration>> {
    let (least, most) = AGE;
    Kind::new(
        "duration, or \"forever\"",
        move |section, key, _| section.duration_or(key, FOR_EVER, least, most),
        |it| age_text(*it).into(),
    )
    .within(duration_text(least), duration_text(most))
}

/// A number of bytes.
pub(super) fn size(least: u64, most: u64) -> Kind<u64> {
    Kind::new(
        "size",
        move |section, key, _| section.size(key, least, most),
        |it| size_text(*it).into(),
    )
    .within(size_text(least), size_text(most))
}

pub(super) fn number(least: u32, most: u32) -> Kind<u32> {
    Kind::new(
        "number",
        move |section, key, _| section.number(key, least.into(), most.into()),
        |it| i64::from(*it).into(),
    )
    .within(least, most)
}

pub(super) fn boolean() -> Kind<bool> {
    let read = |section: &mut Section<'_>, key, _: &Path| section.boolean(key);
    Kind::new("true or false", read, |it| (*it).into())
}

pub(super) fn text() -> Kind<String> {
    let read = |section: &mut Section<'_>, key, _: &Path| section.text(key);
    Kind::new("text", read, |it| it.as_str().into())
}

/// A word of a closed set, which the name of the kind lists.
pub(super) fn word<T: Copy + 'static>(
    name: &'static str,
    read: fn(&str) -> Result<T, String>,
    text: fn(T) -> &'static str,
) -> Kind<T> {
    let read = move |section: &mut Section<'_>, key, _: &Path| section.parsed(key, read);
    Kind::new(name, read, move |it| text(*it).into())
}

pub(super) fn labels() -> Kind<Labels> {
    Kind::new(
        "list of texts",
        |section, key, _| {
            let read = |names: Vec<String>| Labels::new(names.iter().map(String::as_str));
            let labels = section.texts(key)?.map(read).transpose();
            labels.map_err(|what| section.error(key, what))
        },
        |it: &Labels| it.iter().collect::<Vec<_>>().into(),
    )
}

pub(super) fn public_keys() -> Kind<Vec<PublicKey>> {
    Kind::new(
        "list of texts",
        |section, key, _| {
            let read = |texts: Vec<String>| {
                let keys = texts.iter().zip(1..).map(|(text, number)| {
                    PublicKey::read(text).map_err(|why| format!("item {number} {why}"))
                });
                keys.collect::<Result<_, _>>()
            };
            let keys = section.texts(key)?.map(read).transpose();
            keys.map_err(|what: String| section.error(key, what))
        },
        |it: &Vec<PublicKey>| Vec::from_iter(it.iter().map(PublicKey::as_str)).into(),
    )
}

pub(super) fn path() -> Kind<PathBuf> {
    Kind::new(
        "path",
        |section, key, home| Ok(section.path(key)?.map(|path| home.join(path))),
        |it| it.to_string_lossy().as_ref().into(),
    )
}

/// The address of a collector of traces.
pub(super) fn traces_endpoint() -> Kind<TracesEndpoint> {
    let read =
        |section: &mut Section<'_>, key, _: &Path| section.parsed(key, TracesEndpoint::from_str);
    Kind::new("text", read, |it| it.to_string().into())
}

/// Where the API listens.
pub(super) fn listen() -> Kind<Listen> {
    let read = |section: &mut Section<'_>, key, _: &Path| section.parsed(key, Listen::from_str);
    Kind::new("text", read, |it| it.to_string().into())
}

/// Addresses and networks.
pub(super) fn networks() -> Kind<Vec<Network>> {
    Kind::new(
        "list of texts",
        |section, key, _| {
            let read = |texts: Vec<String>| texts.iter().map(|text| text.parse()).collect();
            let networks = section.texts(key)?.map(read).transpose();
            networks.map_err(|what: String| section.error(key, what))
        },
        |it: &Vec<Network>| Vec::from_iter(it.iter().map(Network::to_string)).into(),
    )
}

/// Roles by names.
pub(super) fn roles() -> Kind<BTreeMap<String, Role>> {
    Kind::new(
        "table of texts",
        |section, key, _| {
            let texts = section.text_map(key)?;
            let read = |(name, text): (String, String)| match Role::read(&text) {
                Ok(role) => Ok((name, role)),
                Err(what) => Err(section.error(key, format_args!("of {name:?} {what}"))),
            };
            let roles: BTreeMap<_, _> = texts.into_iter().map(read).collect::<Result<_, _>>()?;
            Ok((!roles.is_empty()).then_some(roles))
        },
        |it: &BTreeMap<String, Role>| {
            let roles = it.iter();
            let roles = roles.map(|(name, role)| (name.clone(), role.as_str().into()));
            toml::Value::Table(roles.collect())
        },
    )
}

/// A database, which is shown without its password.
pub(super) fn database() -> Kind<DatabaseUrl> {
    Kind::new(
        "text",
        |section, key, home| {
            let parse = |url: &str| DatabaseUrl::from_str(url).map_err(|error| error.to_string());
            Ok(section.parsed(key, parse)?.map(|url| url.within(home)))
        },
        |it| it.to_string().into(),
    )
}
