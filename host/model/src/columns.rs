//! How ids, instants and words are stored: the same Rust types on both databases. The ids derive it in `ids.rs`.
//!
//! | type            | SQLite                          | Postgres      |
//! |-----------------|---------------------------------|---------------|
//! | ids             | BLOB of 16 bytes                | UUID          |
//! | [`Timestamp`]   | INTEGER, microseconds from 1970 | TIMESTAMPTZ   |
//! | SHA-256         | BLOB of 32 bytes                | BYTEA         |
//! | words           | TEXT                            | TEXT          |

use chrono::{DateTime, Utc};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgHasArrayType, PgTypeInfo};
use sqlx::{ColumnIndex, Database, Decode, Encode, FromRow, Postgres, Row, Sqlite, Type};

use crate::clock::Timestamp;
use crate::ids::{ArtifactDigest, ChainHash, InputHash, LaunchId, LaunchKind, RunId};
use crate::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use crate::status::{
    BackfillStatus, Decision, EndReason, EventKind, FailureKind, LaunchStatus, Origin, OrphanCause,
    Overlap, RunStatus, VersionDecision,
};

/// Store a closed set of words, through `as_str` and `FromStr`.
macro_rules! word_column {
    ($($name:ty),*) => {$(
        impl<DB: Database> Type<DB> for $name
        where
            str: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <str as Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <str as Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $name
        where
            &'static str: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, buf: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                let word: &'static str = self.as_str();
                word.encode_by_ref(buf)
            }
        }

        impl PgHasArrayType for $name {
            fn array_type_info() -> PgTypeInfo {
                <&str as PgHasArrayType>::array_type_info()
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $name
        where
            &'r str: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                Ok(<&str as Decode<DB>>::decode(value)?.parse()?)
            }
        }
    )*};
}

word_column!(
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
    Overlap,
    EventKind,
    EndReason,
    VersionDecision,
    OrphanCause
);

/// Store a SHA-256 as its bytes.
macro_rules! sha256_column {
    ($($name:ident),*) => {$(
        impl<DB: Database> Type<DB> for $name
        where
            Vec<u8>: Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <Vec<u8> as Type<DB>>::type_info()
            }

            fn compatible(ty: &DB::TypeInfo) -> bool {
                <Vec<u8> as Type<DB>>::compatible(ty)
            }
        }

        impl<'q, DB: Database> Encode<'q, DB> for $name
        where
            Vec<u8>: Encode<'q, DB>,
        {
            fn encode_by_ref(&self, buf: &mut DB::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
                hex::decode(&self.0)?.encode(buf)
            }
        }

        impl PgHasArrayType for $name {
            fn array_type_info() -> PgTypeInfo {
                <Vec<u8> as PgHasArrayType>::array_type_info()
            }
        }

        impl<'r, DB: Database> Decode<'r, DB> for $name
        where
            &'r [u8]: Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
                Ok($name(hex::encode(<&[u8] as Decode<DB>>::decode(value)?)))
            }
        }
    )*};
}

sha256_column!(ArtifactDigest, ChainHash, InputHash);

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

type Buffer<DB> = <DB as Database>::ArgumentBuffer;

impl Type<Sqlite> for Timestamp {
    fn type_info() -> <Sqlite as Database>::TypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(ty: &<Sqlite as Database>::TypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(ty)
    }
}

impl Encode<'_, Sqlite> for Timestamp {
    fn encode_by_ref(&self, buf: &mut Buffer<Sqlite>) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<Sqlite>>::encode(self.micros(), buf)
    }
}

impl<'r> Decode<'r, Sqlite> for Timestamp {
    fn decode(value: <Sqlite as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Timestamp::from_micros(<i64 as Decode<Sqlite>>::decode(
            value,
        )?))
    }
}

impl Type<Postgres> for Timestamp {
    fn type_info() -> <Postgres as Database>::TypeInfo {
        <DateTime<Utc> as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Timestamp {
    fn array_type_info() -> PgTypeInfo {
        <DateTime<Utc> as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Timestamp {
    fn encode_by_ref(&self, buf: &mut Buffer<Postgres>) -> Result<IsNull, BoxDynError> {
        <DateTime<Utc> as Encode<Postgres>>::encode(self.to_chrono(), buf)
    }
}

impl<'r> Decode<'r, Postgres> for Timestamp {
    fn decode(value: <Postgres as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Timestamp::from(
            <DateTime<Utc> as Decode<Postgres>>::decode(value)?,
        ))
    }
}
