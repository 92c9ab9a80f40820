//! The routes of alerts, and of the messages of tasks.

use axum::http::StatusCode;

use crate::bodies;
use crate::call::{Call, Reply, Result};
use crate::change::change;
use crate::problem::ApiProblem;
use crate::read::last;
use campanile_control::alert_admin::{self, NewSilence, SILENCES_MAX};
use campanile_control::message_admin;
use campanile_control::orders::Nothing;
use campanile_model::ids::{AlertId, MessageId};
use campanile_model::status::MessageStatus;
use campanile_model::text;
use campanile_store::{alert_messages, alerts, outbox};

pub(crate) async fn alerts(call: Call) -> Result {
    let (all, limit) = (call.query.is_set("all")?, call.query.limit()?);
    let after = call.query.parsed::<AlertId>("after")?;
    let mut tx = call.read().await?;
    let rows = match all {
        true => alerts::list(&mut tx, after, limit).await?,
        false => alerts::list_unresolved(&mut tx, after, limit).await?,
    };
    Reply::page(&call, &rows, last(&rows, limit, |row| row.id.to_string()))
}

pub(crate) async fn alert(call: Call) -> Result {
    let id = call.id::<AlertId>("id")?;
    Reply::json(&alert_admin::find(&mut call.read().await?, id).await?)
}

pub(crate) async fn deliveries(call: Call) -> Result {
    let limit = call.query.limit()?;
    let after = call.query.parsed::<MessageId>("after")?;
    let channel = call.query.text("channel");
    let rows = alert_messages::list(&mut call.read().await?, after, channel, limit).await?;
    Reply::page(&call, &rows, last(&rows, limit, |row| row.id.to_string()))
}

pub(crate) async fn test_channel(call: Call) -> Result {
    let Nothing {} = call.json()?;
    let name = call.name("name");
    let settings = &call.state.app.settings;
    if !settings.alerts.channels.contains_key(name) {
        return Err(ApiProblem::not_found(settings.alerts.no_channel(name)));
    }
    change!(call, StatusCode::OK, |tx, now| {
        (
            alert_admin::test(tx, name, settings.give_up_after, now).await?,
            None,
        )
    })
}

pub(crate) async fn silences(call: Call) -> Result {
    Reply::json(&alerts::silences(&mut call.read().await?, call.now(), SILENCES_MAX).await?)
}

pub(crate) async fn silence(call: Call) -> Result {
    let body = call.json::<bodies::NewSilence>()?;
    let span = text::duration(&body.span);
    let span = span.map_err(|error| ApiProblem::invalid(format!("`for`: {error}")))?;
    let rules = call.state.app.settings.alerts.rule_names();
    change!(call, StatusCode::CREATED, |tx, now| {
        let wanted = NewSilence {
            rule: body.rule.as_deref(),
            subject: body.subject.as_deref(),
            rules: &rules,
            note: body.note.as_deref(),
            span,
            by: call.by(),
        };
        (alert_admin::silence(tx, wanted, now).await?, None)
    })
}

pub(crate) async fn messages(call: Call) -> Result {
    let (query, limit) = (&call.query, call.query.limit()?);
    let after = query.parsed::<MessageId>("after")?;
    let status = query.read_with("status", MessageStatus::read)?;
    let package = call.text_in_namespace("package")?;
    let rows = outbox::list(&mut call.read().await?, after, status, package, limit).await?;
    Reply::page(&call, &rows, last(&rows, limit, |row| row.id.to_string()))
}

pub(crate) async fn message(call: Call) -> Result {
    let id = call.id::<MessageId>("id")?;
    Reply::json(&message_admin::find(&mut call.read().await?, id).await?)
}

pub(crate) async fn retry_message(call: Call) -> Result {
    let id = call.id::<MessageId>("id")?;
    let Nothing {} = call.json()?;
    let give_up_after = call.state.app.settings.give_up_after;
    change!(call, StatusCode::OK, |tx, now| {
        let message = message_admin::retry(tx, id, give_up_after, call.by(), now).await?;
        (message.row, None)
    })
}
