//! The routes beginning backfills. Counting slots takes long, so it happens before the write transaction.

use axum::http::StatusCode;

use crate::call::{Call, Reply, Result};
use crate::change::change;
use campanile_control::order::Desk;
use campanile_control::orders::backfills::NewBackfill;
use campanile_control::records::backfill::SurveyReport;

pub(crate) async fn preview_backfill(call: Call) -> Result {
    let wanted = call.json::<NewBackfill>()?;
    let preview = wanted
        .preview(&call.desk(), &mut call.read().await?)
        .await?;
    Reply::json(&SurveyReport {
        schedule: wanted.schedule,
        survey: preview.survey,
    })
}

pub(crate) async fn begin_backfill(call: Call) -> Result {
    let mut wanted = call.json::<NewBackfill>()?;
    let desk = call.desk();
    // Tries after a collision begin the same one.
    wanted.choose_id(desk.now);
    let preview = wanted.preview(&desk, &mut call.read().await?).await?;
    wanted.check_confirmed(&preview.survey, "\"yes\": true")?;
    change!(call, StatusCode::CREATED, |tx, now| {
        let desk = Desk { now, ..desk };
        (wanted.begin(&preview, &desk, tx).await?, None)
    })
}
