//! Searching schedules by text and state, for pages and changes of many.

use crate::records::schedule;
use campanile_model::words;
use campanile_store::schedules::{self, Schedule, ScheduleTexts};
use campanile_store::{DbError, Tx};

/// How many schedules' names to read per statement.
const WINDOW: i64 = 2_000;
/// Maximum number of such statements per search.
const WINDOWS_MAX: usize = 5;

words! {
    /// State of a schedule.
    ScheduleState {
        Enabled => "enabled",
        Paused => "paused",
        Ended => "ended",
    }
}

/// What to look for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Search<'a> {
    /// Text in the name, package, rule or note, ignoring case.
    pub text: &'a str,
    pub state: Option<ScheduleState>,
    /// Only paused schedules, or only others.
    pub is_paused: Option<bool>,
}

/// Schedules found.
pub struct Found {
    pub rows: Vec<Schedule>,
    /// The name to continue after, if there may be more.
    pub next: Option<String>,
}

impl Search<'_> {
    /// Whether a schedule with these texts can match. `wanted` is the text in lower case.
    fn may_match(&self, texts: &ScheduleTexts, wanted: &str) -> bool {
        let may_be_in_state = match self.state {
            None => true,
            Some(ScheduleState::Paused) => !texts.enabled,
            Some(ScheduleState::Ended) => texts.enabled && texts.next_slot.is_none(),
            Some(ScheduleState::Enabled) => texts.enabled,
        };
        let note = texts.pause_note.as_deref().unwrap_or_default();
        let searched = [texts.name.as_str(), &texts.package, &texts.expression, note];
        self.is_paused.is_none_or(|paused| paused != texts.enabled)
            && may_be_in_state
            && searched
                .iter()
                .any(|text| text.to_lowercase().contains(wanted))
    }

    /// Returns how many schedules the first statement reads for a page of `limit`. Without a filter, they fill the page.
    fn first_window(&self, limit: usize) -> i64 {
        let has_filter = !self.text.is_empty() || self.state.is_some() || self.is_paused.is_some();
        match i64::try_from(limit + 1) {
            Ok(size) if !has_filter => size.min(WINDOW),
            _ => WINDOW,
        }
    }

    /// Finds up to `limit` schedules after the name `after`, sorted by name. Looks at one window of names at a time, reading only
    /// matching schedules whole.
    ///
    /// # Errors
    ///
    /// Fails if the database does.
    pub async fn find(&self, tx: &mut Tx, after: &str, limit: usize) -> Result<Found, DbError> {
        let wanted = self.text.to_lowercase();
        let (mut after, mut rows) = (after.to_owned(), Vec::new());
        let mut size = self.first_window(limit);
        for _ in 0..WINDOWS_MAX {
            let window = schedules::texts(tx, &after, size).await?;
            let is_last = (window.len() as i64) < size;
            size = WINDOW;
            let likely = window.iter().filter(|texts| self.may_match(texts, &wanted));
            let likely = Vec::from_iter(likely.map(|texts| texts.name.as_str()));
            for names in likely.chunks(limit + 1) {
                let mut found = schedules::named(tx, names).await?;
                let state = self.state.map(ScheduleState::as_str);
                found.retain(|row| state.is_none_or(|state| schedule::state(row) == state));
                found.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
                rows.append(&mut found);
                if rows.len() > limit {
                    rows.truncate(limit);
                    let next = rows.last().map(|last| last.definition.name.clone());
                    return Ok(Found { rows, next });
                }
            }
            if is_last {
                return Ok(Found { rows, next: None });
            }
            if let Some(last) = window.last() {
                after.clone_from(&last.name);
            }
        }
        let next = Some(after);
        Ok(Found { rows, next })
    }
}
