//! Closed sets of words: an enum on the inside, one text for the database, the command line and JSON.

/// A stored or typed word that this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a word this version of Campanile knows")]
pub struct UnknownWord(pub String);

/// Declare an enum whose values are written as words.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Read what a person wrote; the error is a clause that names the words there are, and the nearest one.
            pub fn read(text: &str) -> Result<$name, String> {
                text.parse().map_err(|_| {
                    let words: Vec<String> = $name::ALL.iter().map(|word| format!("`{word}`")).collect();
                    let hint = $crate::text::nearest(text, $name::ALL.iter().map(|word| word.as_str()))
                        .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                    format!("must be {}{hint}", words.join(" or "))
                })
            }

            /// The word that is stored and printed.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)*
                }
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
                match text {
                    $($text => Ok($name::$variant),)*
                    other => Err($crate::words::UnknownWord(other.to_owned())),
                }
            }
        }
    };
}
