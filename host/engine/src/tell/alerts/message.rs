//! The messages of channels. Pure: a message is the same at each of its deliveries.

use serde::Serialize;

use campanile_control::rules::alert_rule::ChannelTemplate;
use campanile_model::clock::Timestamp;
use campanile_model::status::{AlertMessageKind, Severity};
use campanile_model::text::counted;
use campanile_store::alert_messages::ClaimedAlertMessage;
use campanile_store::alerts::Alert;

/// The alerts that a text lists.
const LISTED_MAX: usize = 20;

/// The header of an e-mail that has its title.
pub(crate) const SUBJECT: &str = "subject";

/// The body and the headers of a request, or of an e-mail.
#[derive(Debug, PartialEq)]
pub(crate) struct Content {
    pub(crate) body: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// The body of a webhook, in the form that Standard Webhooks recommends.
#[derive(Serialize)]
struct Webhook<'m> {
    /// `alert.firing`, `alert.resolved` or `alert.test`.
    #[serde(rename = "type")]
    kind: String,
    timestamp: Timestamp,
    data: Data<'m>,
}

#[derive(Serialize)]
struct Data<'m> {
    rule: &'m str,
    alerts: Vec<Item<'m>>,
}

#[derive(Serialize)]
struct Item<'m> {
    id: String,
    kind: &'static str,
    severity: Severity,
    subject: &'m str,
    detail: &'m str,
    since_at: Timestamp,
    fired_at: Option<Timestamp>,
    /// Only in a message that it is resolved: before, the body must not change between two deliveries.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved_at: Option<Timestamp>,
}

/// Returns the content of a message about `alerts`.
pub(crate) fn content(
    template: ChannelTemplate,
    message: &ClaimedAlertMessage,
    alerts: &[Alert],
) -> Content {
    match template {
        ChannelTemplate::Webhook => json(&webhook(message, alerts)),
        ChannelTemplate::Slack => {
            let text = format!("*{}*\n{}", title(message, alerts), text(alerts));
            json(&serde_json::json!({ "text": escaped(&text) }))
        }
        ChannelTemplate::Ntfy => ntfy(message, alerts),
        ChannelTemplate::Email => Content {
            body: text(alerts),
            headers: vec![(SUBJECT.to_owned(), title(message, alerts))],
        },
    }
}

fn webhook<'m>(message: &'m ClaimedAlertMessage, alerts: &'m [Alert]) -> Webhook<'m> {
    let is_resolved = message.kind == AlertMessageKind::Resolved;
    let items = alerts.iter().map(|alert| Item {
        id: alert.id.to_string(),
        kind: alert.kind.as_str(),
        severity: alert.severity,
        subject: &alert.subject,
        detail: &alert.detail,
        since_at: alert.since_at,
        fired_at: alert.fired_at,
        resolved_at: alert.resolved_at.filter(|_| is_resolved),
    });
    Webhook {
        kind: format!("alert.{}", message.kind),
        timestamp: message.created_at,
        data: Data {
            rule: &message.rule,
            alerts: items.collect(),
        },
    }
}

fn json(value: &impl Serialize) -> Content {
    Content {
        // The keys are texts, so this cannot fail.
        body: serde_json::to_string(value).unwrap_or_default(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
    }
}

fn ntfy(message: &ClaimedAlertMessage, alerts: &[Alert]) -> Content {
    let worst = alerts.iter().map(|alert| match alert.severity {
        Severity::Info => "low",
        Severity::Warning => "default",
        Severity::Critical => "urgent",
    });
    let is_firing = message.kind == AlertMessageKind::Firing;
    let priority = worst.filter(|_| is_firing).max_by_key(|word| {
        ["low", "default", "urgent"]
            .iter()
            .position(|it| it == word)
    });
    let tag = if is_firing {
        "rotating_light"
    } else {
        "white_check_mark"
    };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    Content {
        body: text(alerts),
        headers: vec![
            header("content-type", "text/plain; charset=utf-8"),
            header("title", &title(message, alerts)),
            header("priority", priority.unwrap_or("default")),
            header("tags", tag),
        ],
    }
}

/// One line. Names of rules are ASCII, so it can be a header.
fn title(message: &ClaimedAlertMessage, alerts: &[Alert]) -> String {
    let rule = &message.rule;
    match message.kind {
        AlertMessageKind::Test => "Campanile: a test of this channel".to_owned(),
        AlertMessageKind::Firing => {
            format!(
                "Campanile: {rule}: {} firing",
                counted(alerts.len(), "alert")
            )
        }
        AlertMessageKind::Resolved => {
            format!(
                "Campanile: {rule}: {} resolved",
                counted(alerts.len(), "alert")
            )
        }
    }
}

fn text(alerts: &[Alert]) -> String {
    if alerts.is_empty() {
        return "An operator tried this channel. It works.".to_owned();
    }
    let lines = alerts.iter().take(LISTED_MAX);
    let mut lines: Vec<String> = lines
        .map(|alert| format!("{}: {}", alert.severity, alert.detail))
        .collect();
    if alerts.len() > LISTED_MAX {
        lines.push(format!("and {} more", alerts.len() - LISTED_MAX));
    }
    lines.join("\n")
}

/// Escape the characters that have a meaning in a text for Slack.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    use campanile_model::ids::{AlertId, MessageId};
    use campanile_model::status::{AlertKind, AlertStatus};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros((1_800_000_000 + seconds) * 1_000_000)
    }

    fn message(kind: AlertMessageKind) -> ClaimedAlertMessage {
        ClaimedAlertMessage {
            id: MessageId::FIRST,
            channel: "ops".to_owned(),
            rule: "nightly".to_owned(),
            kind,
            attempts: 1,
            created_at: at(1),
            give_up_at: at(100),
        }
    }

    fn alert() -> Alert {
        Alert {
            id: AlertId::FIRST,
            rule: "nightly".to_owned(),
            kind: AlertKind::Failed,
            severity: Severity::Critical,
            status: AlertStatus::Resolved,
            subject: "backup".to_owned(),
            subject_id: "1".to_owned(),
            detail: "it failed: <disk> & more".to_owned(),
            version: 3,
            since_at: at(0),
            fired_at: Some(at(0)),
            notified_at: Some(at(0)),
            clear_at: Some(at(50)),
            resolved_at: Some(at(60)),
            flaps: 0,
        }
    }

    #[test]
    fn a_webhook_that_an_alert_fires_is_the_same_after_it_is_resolved() {
        let firing = message(AlertMessageKind::Firing);
        let open = Alert {
            resolved_at: None,
            clear_at: None,
            status: AlertStatus::Firing,
            ..alert()
        };
        let content = |alert: &Alert| {
            content(
                ChannelTemplate::Webhook,
                &firing,
                std::slice::from_ref(alert),
            )
        };
        assert_eq!(content(&open), content(&alert()));
        let body: serde_json::Value = serde_json::from_str(&content(&alert()).body).unwrap();
        assert_eq!(body["type"], "alert.firing");
        assert_eq!(body["data"]["rule"], "nightly");
        assert_eq!(body["data"]["alerts"][0]["subject"], "backup");
        assert_eq!(body["data"]["alerts"][0].get("resolved_at"), None);
    }

    #[test]
    fn each_template_has_its_body() {
        let resolved = message(AlertMessageKind::Resolved);
        let body = content(ChannelTemplate::Webhook, &resolved, &[alert()]).body;
        assert!(body.contains(r#""resolved_at":""#), "{body}");
        let slack = content(ChannelTemplate::Slack, &resolved, &[alert()]).body;
        assert_eq!(
            slack,
            r#"{"text":"*Campanile: nightly: 1 alert resolved*\ncritical: it failed: &lt;disk&gt; &amp; more"}"#
        );
        let firing = message(AlertMessageKind::Firing);
        let ntfy = content(ChannelTemplate::Ntfy, &firing, &[alert()]);
        assert_eq!(ntfy.body, "critical: it failed: <disk> & more");
        let header = |name: &str| {
            ntfy.headers
                .iter()
                .find(|(key, _)| key == name)
                .unwrap()
                .1
                .clone()
        };
        assert_eq!(header("priority"), "urgent");
        assert_eq!(header("title"), "Campanile: nightly: 1 alert firing");
        let email = content(ChannelTemplate::Email, &firing, &[alert()]);
        assert_eq!(email.body, ntfy.body);
        let subject = ("subject".to_owned(), header("title"));
        assert_eq!(email.headers, [subject]);
        let many = vec![alert(); 30];
        let text = content(ChannelTemplate::Ntfy, &firing, &many).body;
        assert!(text.ends_with("and 10 more"), "{text}");
        let test = content(ChannelTemplate::Ntfy, &message(AlertMessageKind::Test), &[]);
        assert_eq!(test.body, "An operator tried this channel. It works.");
    }
}
