//! Labels: what a host says of itself, and what a launch needs of a host.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest label.
const LENGTH_MAX: usize = 64;

/// A set of labels. As text: sorted, separated by commas. As JSON: a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, schemars::JsonSchema)]
pub struct Labels(BTreeSet<String>);

impl Labels {
    /// The most labels of a set.
    pub const MOST: usize = 16;

    /// Returns the set of these labels.
    ///
    /// # Errors
    /// When there are too many, or one is none; the error is a clause that continues the name of the key.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Labels, String> {
        let labels: BTreeSet<String> = names.into_iter().map(str::to_owned).collect();
        // A comma separates labels, and a statement compares them by LIKE, where `_` and `%` stand for others.
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_label =
            |name: &str| (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(is_plain);
        if let Some(wrong) = labels.iter().find(|name| !is_label(name)) {
            return Err(format!(
                "names {wrong:?}, which is no label: use 1 to {LENGTH_MAX} lower-case letters, digits, `-` or `.`"
            ));
        }
        if labels.len() > Labels::MOST {
            Err(format!(
                "names {} labels, and {} are the most",
                labels.len(),
                Labels::MOST
            ))
        } else {
            Ok(Labels(labels))
        }
    }

    /// Returns the labels that the database holds as `text`.
    pub fn stored(text: &str) -> Labels {
        let names = text.split(',').filter(|name| !name.is_empty());
        Labels(names.map(str::to_owned).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a host with these labels has all of `needed`.
    pub fn satisfy(&self, needed: Option<&Labels>) -> bool {
        needed.is_none_or(|needed| needed.0.is_subset(&self.0))
    }

    /// Returns the labels for a sentence: "the labels `gpu`, `ssd`".
    pub fn named(&self) -> String {
        let names: Vec<String> = self.iter().map(|name| format!("`{name}`")).collect();
        let noun = if names.len() == 1 { "label" } else { "labels" };
        format!("the {noun} {}", names.join(", "))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Labels, String> {
        Labels::new(text.split(',').map(str::trim))
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Labels, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        if names.is_empty() {
            Ok(Labels::default())
        } else {
            Labels::new(names.iter().map(String::as_str)).map_err(D::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_in_any_order_and_written_in_one() {
        let labels: Labels = "ssd, gpu,ssd".parse().unwrap();
        assert_eq!(labels.to_string(), "gpu,ssd");
        assert_eq!(Labels::stored("gpu,ssd"), labels);
        assert_eq!(Labels::stored(""), Labels::default());
        assert_eq!(labels.named(), "the labels `gpu`, `ssd`");
        let many: Vec<String> = (0..17).map(|n| format!("l{n}")).collect();
        assert!(many[1..].join(",").parse::<Labels>().is_ok());
        let many = many.join(",");
        for (text, clause) in [
            ("", "names \"\", which is no label"),
            ("gpu,", "names \"\", which is no label"),
            ("GPU", "names \"GPU\", which is no label"),
            ("a_b", "names \"a_b\", which is no label"),
            ("a%", "names \"a%\", which is no label"),
            (many.as_str(), "names 17 labels, and 16 are the most"),
        ] {
            let fault = text.parse::<Labels>().unwrap_err();
            assert!(fault.starts_with(clause), "{fault}");
        }
    }

    #[test]
    fn a_host_satisfies_a_launch_when_it_has_all_its_labels() {
        let of = |text: &str| Labels::stored(text);
        let host = of("eu,gpu,ssd");
        assert!(host.satisfy(None));
        for (needed, expected) in [
            ("gpu", true),
            ("eu,ssd", true),
            ("eu,gpu,ssd", true),
            ("gp", false),
            ("gpu,us", false),
        ] {
            assert_eq!(host.satisfy(Some(&of(needed))), expected, "{needed}");
        }
        assert!(!of("").satisfy(Some(&of("gpu"))));
    }
}
