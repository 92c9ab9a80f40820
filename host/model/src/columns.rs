//! How ids, instants and words are stored: the same Rust types on both databases. The ids derive it in `ids.rs`.
//!
//! | type            | SQLite                          | Postgres      |
//! |-----------------|---------------------------------|---------------|
//! | ids             | BLOB of 16 bytes                | UUID          |
//! | [`Timestamp`]   | INTEGER, microseconds from 1970 | TIMESTAMPTZ   |
//! | SHA-256         | BLOB of 32 bytes                | BYTEA         |
//! | histograms      | BLOB of some bytes              | BYTEA         |
//! | words           | TEXT                            | TEXT          |
//! | labels          | TEXT, separated by commas       | TEXT          |
//! | namespaces      | TEXT, without `@` and `/`       | TEXT          |
//! | trace contexts  | TEXT, a `traceparent`           | TEXT          |

use chrono::{DateTime, Utc};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgHasArrayType, PgTypeInfo, PgValueFormat};
use sqlx::{ColumnIndex, Database, Decode, Encode, FromRow, Postgres, Row, Sqlite, Type};

use crate::access::{Channel, Role};
use crate::clock::Timestamp;
use crate::ids::{ArtifactDigest, ChainHash, InputHash, LaunchId, LaunchKind, RunId, TokenHash};
use crate::labels::Labels;
use crate::namespace::Namespace;
use crate::rollup::{DurationBuckets, LagBuckets, Period};
use crate::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use crate::status::{
    AlertKind, AlertMessageKind, AlertStatus, BackfillStatus, Decision, EndReason, EventKind,
    FailureKind, LaunchStatus, MessageStatus, Origin, OrphanCause, Overlap, RunStatus, Severity,
    VersionDecision,
};
use crate::trace_context::TraceContext;

/// Store types as `$stored`. `$encode` makes of a value the `$encoded` that is bound, and `$decode` reads a `&$stored`.
macro_rules! column {
    (
        $stored:ty, $encoded:ty, |$value:ident| $encode:expr, |$read:ident| $decode:expr;
        $($name:ident),* $(,)?
    ) => {$(
        impl<DB: Database> Type<DB> for $name
        where
            $stored: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <$stored as Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <$stored as Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $name
        where
            $encoded: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, buf: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                let $value = self;
                <$encoded as Encode<DB>>::encode($encode, buf)
            }
        }

        impl PgHasArrayType for $name {
            fn array_type_info() -> PgTypeInfo {
                <&$stored as PgHasArrayType>::array_type_info()
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $name
        where
            &'r $stored: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                let $read = <&$stored as Decode<DB>>::decode(value)?;
                Ok($decode)
            }
        }
    )*};
}

// A word is stored as it is printed.
column!(str, &'static str, |word| word.as_str(), |text| text.parse()?;
    RuleKind,
    DayMatch,
    DstGap,
    DstFold,
    LaunchKind,
    LaunchStatus,
    Decision,
    RunStatus,
    Origin,
    FailureKind,
    BackfillStatus,
    MessageStatus,
    Overlap,
    AlertKind,
    AlertStatus,
    AlertMessageKind,
    Severity,
    EventKind,
    EndReason,
    VersionDecision,
    OrphanCause,
    Role,
    Channel,
    Period,
);

column!(str, String, |labels| labels.to_string(), |text| Labels::stored(text);
    Labels,
);

column!(str, String, |namespace| namespace.to_string(), |text| text.parse()?;
    Namespace,
);

column!(str, String, |context| context.to_string(), |text| text.parse()?;
    TraceContext,
);

// A SHA-256 is stored as its bytes.
column!([u8], Vec<u8>, |hash| hex::decode(&hash.0)?, |bytes| Self(hex::encode(bytes));
    ArtifactDigest,
    ChainHash,
    InputHash,
    TokenHash,
);

column!([u8], Vec<u8>, |buckets| buckets.to_bytes(), |bytes| Self::read(bytes).ok_or("these bytes are no histogram")?;
    DurationBuckets,
    LagBuckets,
);

/// The launch and the number of a run.
impl<'r, R: Row> FromRow<'r, R> for RunId
where
    &'static str: ColumnIndex<R>,
    LaunchId: Decode<'r, R::Database> + Type<R::Database>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<RunId, sqlx::Error> {
        Ok(RunId::of(row.try_get("launch_id")?, row.try_get("number")?))
    }
}

/// The columns of a rule, of which the exclusions are a JSON list.
impl<'r, R: Row> FromRow<'r, R> for RuleText
where
    &'static str: ColumnIndex<R>,
    String: Decode<'r, R::Database> + Type<R::Database>,
    Option<Timestamp>: Decode<'r, R::Database> + Type<R::Database>,
    RuleKind: Decode<'r, R::Database> + Type<R::Database>,
    DayMatch: Decode<'r, R::Database> + Type<R::Database>,
    DstGap: Decode<'r, R::Database> + Type<R::Database>,
    DstFold: Decode<'r, R::Database> + Type<R::Database>,
{
    fn from_row(row: &'r R) -> Result<RuleText, sqlx::Error> {
        let exclude: String = row.try_get("exclude")?;
        Ok(RuleText {
            kind: row.try_get("kind")?,
            expression: row.try_get("expression")?,
            anchor: row.try_get("anchor")?,
            timezone: row.try_get("timezone")?,
            day_match: row.try_get("day_match")?,
            dst_gap: row.try_get("dst_gap")?,
            dst_fold: row.try_get("dst_fold")?,
            exclude: serde_json::from_str(&exclude).map_err(|error| sqlx::Error::ColumnDecode {
                index: "exclude".to_owned(),
                source: Box::new(error),
            })?,
        })
    }
}

/// 2000-01-01, from which Postgres counts microseconds.
const MICROS_OF_2000: i64 = 946_684_800_000_000;

/// Store an instant on one database as `$stored`.
macro_rules! instant_column {
    ($database:ident, $stored:ty, $encode:ident) => {
        impl Type<$database> for Timestamp {
            fn type_info() -> <$database as Database>::TypeInfo {
                <$stored as Type<$database>>::type_info()
            }

            fn compatible(ty: &<$database as Database>::TypeInfo) -> bool {
                <$stored as Type<$database>>::compatible(ty)
            }
        }

        impl Encode<'_, $database> for Timestamp {
            fn encode_by_ref(
                &self,
                buf: &mut <$database as Database>::ArgumentBuffer,
            ) -> Result<IsNull, BoxDynError> {
                <$stored as Encode<$database>>::encode(self.$encode(), buf)
            }
        }
    };
}

instant_column!(Sqlite, i64, micros);
instant_column!(Postgres, DateTime<Utc>, to_chrono);

impl<'r> Decode<'r, Sqlite> for Timestamp {
    fn decode(value: <Sqlite as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Timestamp::from_micros(<i64 as Decode<Sqlite>>::decode(
            value,
        )?))
    }
}

impl<'r> Decode<'r, Postgres> for Timestamp {
    fn decode(value: <Postgres as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Ok(<DateTime<Utc> as Decode<Postgres>>::decode(value)?.into());
        }
        // Not by way of `chrono`, which panics on `infinity` and on years it can't hold.
        let since_2000 = <i64 as Decode<Postgres>>::decode(value)?;
        let micros = since_2000.saturating_add(MICROS_OF_2000);
        Ok(Timestamp::from_micros(micros))
    }
}

impl PgHasArrayType for Timestamp {
    fn array_type_info() -> PgTypeInfo {
        <DateTime<Utc> as PgHasArrayType>::array_type_info()
    }
}
