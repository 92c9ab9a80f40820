//! How values of the configuration are read and written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use campanile_model::access::Role;
use campanile_model::labels::Labels;
use campanile_model::text::{duration_text, size_text};
use campanile_package::toml_reader::{Error, Section};
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

/// A text that its type parses and prints.
pub(super) fn text<T: FromStr<Err: Display> + Display + 'static>() -> Kind<T> {
    let read = |section: &mut Section<'_>, key, _: &Path| {
        section.parsed(key, |text| {
            text.parse().map_err(|what: T::Err| what.to_string())
        })
    };
    Kind::new("text", read, |it: &T| it.to_string().into())
}

/// A list of such texts.
pub(super) fn texts<T: FromStr<Err: Display> + Display + 'static>() -> Kind<Vec<T>> {
    let read = |section: &mut Section<'_>, key, _: &Path| {
        let mut number = 0;
        section.list(key, |text| {
            number += 1;
            text.parse()
                .map_err(|what: T::Err| format!("item {number} {what}"))
        })
    };
    let toml = |it: &Vec<T>| Vec::from_iter(it.iter().map(T::to_string)).into();
    Kind::new("list of texts", read, toml)
}

/// A word of a closed set, which the name of the kind lists.
pub(super) fn word<T: Display + 'static>(
    name: &'static str,
    read: fn(&str) -> Result<T, String>,
) -> Kind<T> {
    let read = move |section: &mut Section<'_>, key, _: &Path| section.parsed(key, read);
    Kind::new(name, read, |it: &T| it.to_string().into())
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

pub(super) fn path() -> Kind<PathBuf> {
    Kind::new(
        "path",
        |section, key, home| Ok(section.path(key)?.map(|path| home.join(path))),
        |it| it.to_string_lossy().as_ref().into(),
    )
}

/// Roles by names.
pub(super) fn roles() -> Kind<BTreeMap<String, Role>> {
    Kind::new(
        "table of texts",
        |section, key, _| {
            let roles = section.text_map(key, |name, text| {
                Role::read(text).map_err(|what| format!("of {name:?} {what}"))
            })?;
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
    let text = text::<DatabaseUrl>();
    Kind {
        read: Box::new(move |section, key, home| {
            Ok((text.read)(section, key, home)?.map(|url| url.within(home)))
        }),
        ..text
    }
}
