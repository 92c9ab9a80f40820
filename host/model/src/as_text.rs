//! Types written in JSON as the text they're displayed as and parsed from.

/// Implements serde's traits and the JSON schema for types having `Display` and `FromStr`. Constant generics follow, then
/// what the schema says besides the type, such as `; "maxLength": 9`.
#[macro_export]
macro_rules! as_text {
    ($type:ty $(, const $generic:ident: $kind:ty)* $(; $($key:literal: $bound:expr),*)?) => {
        impl<$(const $generic: $kind),*> serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de, $(const $generic: $kind),*> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }

        impl<$(const $generic: $kind),*> schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" $($(, $key: $bound)*)? })
            }
        }
    };
}
