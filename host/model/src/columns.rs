//! How ids, instants and words are stored: the same Rust types on both databases. The ids derive it in `ids.rs`.
//!
//! | type            | SQLite                      | Postgres      |
//! |-----------------|-----------------------------|---------------|
//! | ids             | BLOB of 16 bytes            | UUID          |
//! | [`Timestamp`]   | TEXT of fixed width, in UTC | TIMESTAMPTZ   |
//! | words, digests  | TEXT                        | TEXT          |

use chrono::{DateTime, Utc};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::{ColumnIndex, Database, Decode, Encode, FromRow, Postgres, Row, Sqlite, Type};

use crate::clock::Timestamp;
use crate::ids::LaunchKind;
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
        <str as Type<Sqlite>>::type_info()
    }
}

impl Encode<'_, Sqlite> for Timestamp {
    fn encode_by_ref(&self, buf: &mut Buffer<Sqlite>) -> Result<IsNull, BoxDynError> {
        <String as Encode<Sqlite>>::encode(self.to_fixed_text(), buf)
    }
}

impl<'r> Decode<'r, Sqlite> for Timestamp {
    fn decode(value: <Sqlite as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(<&str as Decode<Sqlite>>::decode(value)?.parse()?)
    }
}

impl Type<Postgres> for Timestamp {
    fn type_info() -> <Postgres as Database>::TypeInfo {
        <DateTime<Utc> as Type<Postgres>>::type_info()
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
