//! Verify the record: each slot has one decision, the columns of a row agree, and no sealed row was changed.
//!
//! ```text
//! chain      seals ─▶ hashes, leaves ─▶ compare with launches and events
//! slots      revisions ─▶ rules ─▶ compare with the decisions, in their order
//! rows       launches, lost runs ─▶ rules of one row
//! artifacts  stored bytes ─▶ digests
//! ```
//!
//! Each page is read in a transaction of its own, so that a verification does not hold back the database. A
//! verification changes no row.

mod chain;
mod slots;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::problem::{ErrorCode, Problem};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, ChainHash};
use campanile_model::time_text::GivenTime;
use campanile_model::words;
use campanile_store::{Db, DbError, Tx, packages, seals};

/// The most faults that a report lists.
const FAULTS_MAX: usize = 1_000;

words! {
    /// What is wrong with the record.
    FaultKind {
        /// A slot before the cursor has no decision.
        SlotMissing => "slot_missing",
        /// A slot has more than one decision.
        SlotTwice => "slot_twice",
        /// A decision is about a time that is no slot, or about a wrong number of slots.
        SlotWrong => "slot_wrong",
        /// A launch is not as it was when it was sealed.
        LaunchChanged => "launch_changed",
        /// A sealed launch is gone, and retention has not removed it.
        LaunchDeleted => "launch_deleted",
        /// A launch was added after its span was sealed.
        LaunchAdded => "launch_added",
        /// Columns of a launch contradict each other.
        LaunchImpossible => "launch_impossible",
        EventChanged => "event_changed",
        EventDeleted => "event_deleted",
        EventAdded => "event_added",
        /// The chain of seals is broken, or does not agree with a checkpoint.
        SealBroken => "seal_broken",
        /// Stored bytes do not have their digest.
        ArtifactChanged => "artifact_changed",
    }
}

/// Something that is wrong with the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Fault {
    pub kind: FaultKind,
    /// The schedule, launch, event, seal or artifact.
    pub subject: String,
    /// One clause.
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault {
            kind,
            subject,
            text,
        } = self;
        write!(f, "{kind}: {subject}: {text}")
    }
}

/// Rows that are as they are because something was corrected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Explained {
    pub kind: FaultKind,
    /// The schedule of slots, or the host whose clock went back.
    pub subject: String,
    pub rows: u64,
    /// One clause: the correction.
    pub text: String,
}

/// The numbers of rows that a verification compared, and the faults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Verification {
    /// The schedules whose slots were computed again, and these slots.
    pub schedules: u64,
    pub slots: u64,
    /// Slots of days from which retention has removed launches: their decisions may be gone.
    pub slots_removed: u64,
    /// Launches that were compared, and those of them that are not sealed yet.
    pub launches: u64,
    pub launches_unsealed: u64,
    pub events: u64,
    pub seals: u64,
    pub artifacts: u64,
    /// What would be a fault, and was caused by a recorded correction: a command or a clock that was set back.
    pub explained: Vec<Explained>,
    /// What could not be compared, and why.
    pub notes: Vec<String>,
    pub faults: Vec<Fault>,
    /// Faults that are not listed.
    pub faults_left_out: u64,
}

/// What `audit verify` found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuditReport {
    /// Whether there is no fault.
    pub ok: bool,
    #[serde(flatten)]
    pub verification: Verification,
}

/// A link of the chain that was kept elsewhere: the chain must still have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The hash of the first seal. It tells one database from another.
    pub first: ChainHash,
    /// The number of the last seal.
    pub number: i64,
    /// The end of its span.
    pub until: Timestamp,
    pub hash: ChainHash,
}

/// What to verify of the record.
#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Verify {
    /// Verify slots and decisions from this time on [default: the beginning of the record]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub from: Option<GivenTime>,
    /// Verify slots and decisions up to this time [default: now]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub to: Option<GivenTime>,
    /// A checkpoint of this database: the chain must still have it
    #[cfg_attr(feature = "clap", arg(skip))]
    pub checkpoint: Option<Checkpoint>,
}

impl Verify {
    /// Returns the time span to verify.
    ///
    /// # Errors
    ///
    /// Fails for spans ending before they begin.
    pub fn span(&self, now: Timestamp) -> Result<Span, Problem> {
        let span = Span {
            from: self.from.map_or(Timestamp::FIRST, |from| from.0),
            to: self.to.map_or(now, |to| to.0),
        };
        if span.from > span.to {
            let message = "`from` is later than `to`, or than now";
            return Err(Problem::new(ErrorCode::InvalidArgument, message)
                .hint("write the earlier time as `from`"));
        }
        Ok(span)
    }
}

/// The span of decisions and slots to verify, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Span {
    fn contains(&self, at: Timestamp) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

impl Verification {
    /// Counts a row explained by a correction.
    fn explain(&mut self, kind: FaultKind, subject: &str, text: String) {
        let mut same = self.explained.iter_mut();
        match same.find(|it| it.kind == kind && it.subject == subject && it.text == text) {
            Some(known) => known.rows += 1,
            None => self.explained.push(Explained {
                kind,
                subject: subject.to_owned(),
                rows: 1,
                text,
            }),
        }
    }

    fn fault(&mut self, kind: FaultKind, subject: impl ToString, text: impl Into<String>) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(Fault {
                kind,
                subject: subject.to_string(),
                text: text.into(),
            });
        } else {
            self.faults_left_out += 1;
        }
    }
}

/// Verify the record in `span`. The chain is verified as a whole.
pub async fn verify(
    db: &Db,
    span: Span,
    checkpoint: Option<&Checkpoint>,
    now: Timestamp,
) -> Result<Verification, DbError> {
    let mut report = Verification::default();
    chain::verify(db, span, checkpoint, now, &mut report).await?;
    slots::verify(db, span, &mut report).await?;
    artifacts(db, &mut report).await?;
    Ok(report)
}

/// Verify the record in `span`, against `checkpoint` if there is one.
///
/// # Errors
///
/// When the checkpoint is of another database, or the database does not answer.
pub async fn audit(
    db: &Db,
    span: Span,
    checkpoint: Option<&Checkpoint>,
    now: Timestamp,
) -> Result<AuditReport, Problem> {
    let newest = self::checkpoint(&mut db.read().await?).await?;
    refuse_other(newest.as_ref(), checkpoint)?;
    let verification = verify(db, span, checkpoint, now).await?;
    Ok(AuditReport {
        ok: verification.faults.is_empty(),
        verification,
    })
}

/// Refuse a checkpoint of another database. `newest` is the end of this one's chain.
fn refuse_other(
    newest: Option<&Checkpoint>,
    checkpoint: Option<&Checkpoint>,
) -> Result<(), Problem> {
    let is_other =
        |checkpoint: &&Checkpoint| newest.is_none_or(|newest| newest.first != checkpoint.first);
    let Some(checkpoint) = checkpoint.filter(is_other) else {
        return Ok(());
    };
    let here = newest.map_or("has no seal".to_owned(), |newest| {
        format!("with {}", newest.first.short())
    });
    let message = format!(
        "the checkpoint is of another database: its chain begins with {}, and the chain here {here}",
        checkpoint.first.short()
    );
    let hint =
        "name a checkpoint of this database; if it is of this one, the whole chain was made again";
    Err(Problem::new(ErrorCode::InvalidArgument, message).hint(hint))
}

/// Returns the newest link of the chain; none while nothing is sealed.
pub async fn checkpoint(tx: &mut Tx) -> Result<Option<Checkpoint>, DbError> {
    let first = seals::page(tx, 0, 1).await?.into_iter().next();
    let newest = seals::newest(tx).await?;
    Ok(first.zip(newest).map(|(first, newest)| Checkpoint {
        first: first.hash,
        number: newest.number,
        until: newest.until_at,
        hash: newest.hash,
    }))
}

/// Compare stored bytes with their digests.
async fn artifacts(db: &Db, report: &mut Verification) -> Result<(), DbError> {
    let artifacts = seals::artifacts(&mut db.read().await?).await?;
    for (digest, is_stored) in artifacts {
        if !is_stored {
            continue;
        }
        // One at a time: each may be large. Retention may have removed the bytes meanwhile.
        let bytes = packages::artifact(&mut db.read().await?, &digest).await?;
        let Some(bytes) = bytes else {
            continue;
        };
        report.artifacts += 1;
        if ArtifactDigest::of(&bytes) != digest {
            let text = "the stored bytes of this version of a package do not have its digest";
            report.fault(FaultKind::ArtifactChanged, &digest, text);
        }
    }
    Ok(())
}
