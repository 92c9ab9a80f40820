//! Closed sets of words: an enum in Rust, and one text in the database, on the command line and in JSON.

/// A word that this version of Campanile does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a word this version of Campanile knows")]
pub struct UnknownWord(pub String);

/// Declare an enum with a word for each value.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The word of every value, in the order of declaration.
            pub const WORDS: &'static [&'static str] = &[$($text),*];

            /// Read a word from an author or an operator.
            ///
            /// The error is a clause that lists the words and suggests the nearest one.
            pub fn read(text: &str) -> Result<$name, String> {
                text.parse().map_err(|_| {
                    let words = $name::WORDS.join("` or `");
                    let hint = $crate::text::did_you_mean(text, $name::WORDS.iter().copied());
                    format!("must be `{words}`{hint}")
                })
            }

            /// Returns the word, as stored and printed.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                $name::read(&text)
                    .map_err(|why| serde::de::Error::custom(format!("`{text}` {why}")))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(text: &str) -> Result<$name, $crate::words::UnknownWord> {
                let known = $name::ALL.iter().find(|word| word.as_str() == text);
                known.copied().ok_or_else(|| $crate::words::UnknownWord(text.to_owned()))
            }
        }
    };
}
