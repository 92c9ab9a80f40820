//! What stands beside the log: the launches around it, what it returned, what happened to it, and what it used.

use std::fmt::Display;
use std::time::Duration;

use maud::{Markup, html};

use super::super::charts::{self, Bar, class};
use super::super::words::{both, line, moment, short, span, tail};
use super::super::{links, parts};
use super::Shown;
use campanile_control::records::run::TaskCall;
use campanile_model::text::size_rounded;
use campanile_store::LaunchStatus;
use campanile_store::troubles::RecentLaunch;

/// The most outputs and contexts that are shown, and the bytes of one.
const OUTPUTS_MAX: usize = 6;
const OUTPUT_BYTES_MAX: usize = 4 << 10;
/// The most limited resources that are shown at once.
const LIMITS_SHOWN: usize = 4;
/// The most characters of a name.
const NAME_MAX: usize = 60;

/// Shows the launches around it as bars, each a link.
pub(super) fn around(shown: &Shown) -> Markup {
    const TALL: f64 = 40.0;
    const STEP: f64 = 10.0;
    let now = shown.clock.now;
    let bar_of =
        |launch: &RecentLaunch| (Some(launch.id), launch.scheduled_time, Bar::of(launch, now));
    let launch = shown.launch();
    let own = Bar {
        status: launch.status,
        took: shown.took(),
    };
    let mut bars = Vec::from_iter(shown.before.iter().rev().map(bar_of));
    bars.push((None, launch.scheduled_time, own));
    bars.extend(shown.after.iter().map(bar_of));
    let longest = bars.iter().filter_map(|(.., bar)| bar.took).max();
    let longest = longest.unwrap_or_default().as_secs_f64().max(1e-6);
    let words = |bar: &Bar, at| {
        let took = bar
            .took
            .map_or(String::new(), |took| format!(", {}", span(took)));
        format!("{}, {}{took}", shown.clock.short(at), bar.status.as_str())
    };
    let all = links::query(&[("schedule", &launch.schedule)]);
    html! {
        section.card aria-labelledby="around" {
            header {
                h2 #around { "The launches around it" }
                a.far href={ "/launches" (all) } { "all of its schedule" }
            }
            div.pad {
                svg.around viewBox={ "0 0 " (STEP * bars.len() as f64) " 48" } preserveAspectRatio="none" role="group" aria-label={ "Launches around it, by duration and outcome: " (charts::outcomes(bars.iter().map(|(.., bar)| bar.status))) } {
                    @for (place, (id, at, bar)) in bars.iter().enumerate() {
                        @let share = bar.took.map_or(0.0, |took| (took.as_secs_f64() / longest).sqrt());
                        @let tall = if bar.status == LaunchStatus::Skipped { 3.0 } else { 6.0 + share * (TALL - 6.0) };
                        @let x = place as f64 * STEP;
                        @let words = words(bar, *at);
                        @let rect = html! {
                            rect class=(class(bar.status.as_str())) x=(format!("{x:.0}")) y=(format!("{:.1}", TALL - tall)) width="8" height=(format!("{tall:.1}")) { title { (words) } }
                        };
                        @match id {
                            Some(id) => a href=(links::path(&["launches", &id.to_string()])) aria-label=(words) { (rect) },
                            None => { (rect) path.now d=(format!("M{x:.0} 45h8")) {} },
                        }
                    }
                }
            }
        }
    }
}

/// Shows what the calls returned, the last first.
pub(super) fn outputs(shown: &Shown) -> Markup {
    let calls = shown.runs.iter().flat_map(|run| &run.tasks);
    let mut calls = Vec::from_iter(calls);
    calls.sort_by_key(|call| call.row.finished_at);
    let texts = calls.iter().rev().flat_map(|call| {
        let row = &call.row;
        [
            ("Output", &row.output),
            ("Context for the next tasks", &row.context),
        ]
        .map(|(what, text)| Some((what, row.task.as_str(), text.as_deref()?)))
    });
    let is_empty = |text: &str| text.is_empty() || text == "null" || text == "{}";
    let texts = texts.flatten().filter(|(.., text)| !is_empty(text));
    let texts = Vec::from_iter(texts.take(OUTPUTS_MAX));
    html! {
        @if !texts.is_empty() {
            section.card aria-labelledby="output" {
                @for (what, task, text) in texts.iter().take(1) {
                    header { h2 #output { (what) " of " (short(task, NAME_MAX)) } span.far { "JSON" } }
                    div.pad.output { (json(text)) }
                }
                @if texts.len() > 1 {
                    details.more {
                        summary { "Outputs and contexts of the calls before" }
                        @for (what, task, text) in texts.iter().skip(1) {
                            h3 { (what) " of " (short(task, NAME_MAX)) }
                            (json(text))
                        }
                    }
                }
            }
        }
    }
}

/// Shows JSON with a line for each value.
fn json(text: &str) -> Markup {
    let pretty = pretty(text);
    let (shown, left_out) = tail(&pretty, OUTPUT_BYTES_MAX);
    html! {
        @if left_out > 0 { p.far { "The first " (left_out) " bytes are left out; the command and the API show them." } }
        pre tabindex="0" { (shown) }
    }
}

/// Pure: returns JSON with line breaks. Numbers and texts stay as they are written.
fn pretty(json: &str) -> String {
    /// Deeper values are set in no further.
    const DEPTH_MAX: usize = 12;
    let mut pretty = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    let break_line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
    };
    while let Some(next) = rest.next() {
        if in_text {
            pretty.push(next);
            in_text = escaped || next != '"';
            escaped = next == '\\' && !escaped;
            continue;
        }
        match next {
            '"' => {
                in_text = true;
                pretty.push(next);
            }
            '{' | '[' => {
                pretty.push(next);
                while rest.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                if !matches!(rest.peek(), Some('}' | ']')) {
                    depth += 1;
                    break_line(&mut pretty, depth);
                } else if let Some(end) = rest.next() {
                    pretty.push(end);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut pretty, depth);
                pretty.push(next);
            }
            ',' => {
                pretty.push(next);
                break_line(&mut pretty, depth);
            }
            ':' => pretty.push_str(": "),
            blank if blank.is_ascii_whitespace() => {}
            other => pretty.push(other),
        }
    }
    pretty
}

/// Shows what happened to it and when, and all else that is on record.
pub(super) fn facts(shown: &Shown) -> Markup {
    let decided = &shown.detail.decided;
    let (launch, clock) = (&decided.launch, shown.clock);
    let by = decided.host.as_deref();
    let run = shown.detail.runs.last();
    let host = run.and_then(|run| run.host.as_deref());
    html! {
        section.card aria-labelledby="steps" {
            header { h2 #steps { "What happened" } }
            div.pad {
                dl.facts {
                    dt { "Slot" }
                    dd {
                        (both(launch.scheduled_time, launch.scheduled_local.as_str(), clock))
                        @if launch.slot_count > 1 { br; "and " (launch.slot_count - 1) " more slots until " (moment(launch.last_scheduled_time, clock)) }
                    }
                    dt { "Decided" }
                    dd {
                        (launch.decision.as_str()) " " (moment(launch.decided_at, clock)) " by "
                        @match by { Some(host) => (short(host, NAME_MAX)), None => "a person" }
                        @if let Some(reason) = &launch.reason { ", reason " code { (line(reason)) } }
                        @if let Some(other) = launch.overlaps { ", because of the launch " (links::launch(other)) }
                        @if let Some(other) = launch.retry_of { ", a retry of " (links::launch(other)) }
                    }
                    @if let Some(opened) = decided.opened_at { dt { "Left the queue" } dd { (moment(opened, clock)) } }
                    @if launch.fire_time != launch.scheduled_time { dt { "Could start" } dd { (moment(launch.fire_time, clock)) } }
                    @if let Some(started) = shown.started() {
                        dt { "Ran" }
                        dd { "from " (moment(started, clock)) @if let Some(host) = host.filter(|_| shown.detail.runs.len() == 1) { " on " (short(host, NAME_MAX)) } ", " (span(started.since(launch.fire_time))) " after it could" @if let Some(ended) = launch.finished_at { "; ended " (moment(ended, clock)) } }
                    }
                    @if let Some(ended) = launch.finished_at.filter(|_| shown.started().is_none()) { dt { "Ended" } dd { (launch.status.as_str()) " " (moment(ended, clock)) } }
                    dt { "Package" }
                    dd { (links::package(&launch.package)) @if let Some(digest) = &launch.digest { " " code { (digest.short()) } } }
                    dt { "Id" } dd { code { (launch.id) } }
                }
                (all_facts(shown))
            }
        }
    }
}

fn all_facts(shown: &Shown) -> Markup {
    let decided = &shown.detail.decided;
    let launch = &decided.launch;
    let fact = |name: &str, value: Option<&dyn Display>| {
        html! { @if let Some(value) = value { dt { (name) } dd { code { (line(&value.to_string())) } } } }
    };
    let run = shown.detail.runs.last();
    html! {
        details {
            summary { "All facts" }
            dl.facts {
                (fact("Kind", Some(&launch.kind.as_str())))
                (fact("Revision of the schedule", Some(&decided.schedule_revision)))
                (fact("Its revision now", Some(&decided.newest_revision)))
                (fact("Digest of the package", launch.digest.as_ref().map(|it| it as &dyn Display)))
                (fact("Priority", Some(&launch.priority)))
                (fact("Concurrency group", launch.group.as_ref().map(|it| it as &dyn Display)))
                (fact("Claims", Some(&launch.attempts)))
                (fact("Recoveries", Some(&launch.recoveries)))
                (fact("Time zone database", launch.tzdata_version.as_ref().map(|it| it as &dyn Display)))
                (fact("Arguments", decided.args.as_ref().map(|it| it as &dyn Display)))
                (fact("Trace context", Some(&shown.detail.traceparent)))
                (fact("Hash of the grants", run.and_then(|run| run.grants_hash.as_ref()).map(|it| it as &dyn Display)))
                (fact("Hash of the context", run.and_then(|run| run.context_hash.as_ref()).map(|it| it as &dyn Display)))
                (fact("Version of the host", run.and_then(|run| run.host_version.as_ref()).map(|it| it as &dyn Display)))
                (fact("Version of wasmtime", run.and_then(|run| run.wasmtime_version.as_ref()).map(|it| it as &dyn Display)))
            }
        }
    }
}

/// What the amounts of a resource are.
#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Bytes,
    Count,
}

/// How much of a limit a call used.
struct Use {
    resource: String,
    unit: Unit,
    task: String,
    used: u64,
    limit: u64,
    is_close: bool,
}

impl Use {
    fn share(&self) -> f64 {
        (self.used as f64 / self.limit.max(1) as f64).min(1.0)
    }

    /// Returns an amount as people write it.
    fn amount(&self, amount: u64) -> String {
        match self.unit {
            Unit::Milliseconds => span(Duration::from_millis(amount)),
            Unit::Bytes => size_rounded(amount),
            Unit::Count => amount.to_string(),
        }
    }
}

/// Shows of each limit the greatest share that a call used.
pub(super) fn usage(shown: &Shown) -> Markup {
    let calls = shown.runs.iter().flat_map(|run| &run.tasks);
    let uses = greatest(calls.clone());
    let cpu: f64 = calls.clone().map(|call| call.row.cpu_ms).sum();
    let memory = calls.map(|call| call.row.memory_peak_bytes).max();
    html! {
        @if !uses.is_empty() {
            section.card aria-labelledby="usage" {
                header {
                    h2 #usage { "Use of limits" }
                    span.far { (format!("CPU {cpu:.0} ms")) @if let Some(memory) = memory { " · memory " (size_rounded(memory.unsigned_abs())) } }
                }
                div.pad {
                    dl.facts { @for one in uses.iter().take(LIMITS_SHOWN) { (use_row(one)) } }
                    @if uses.len() > LIMITS_SHOWN {
                        details {
                            summary { "All " (uses.len()) " limits" }
                            dl.facts { @for one in uses.iter().skip(LIMITS_SHOWN) { (use_row(one)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the greatest share of each resource, the greatest first.
fn greatest<'c>(calls: impl Iterator<Item = &'c TaskCall>) -> Vec<Use> {
    let mut uses: Vec<Use> = Vec::new();
    for call in calls {
        for share in &call.usage {
            let one = Use {
                resource: share.resource.to_string(),
                task: call.row.task.clone(),
                unit: match (share.is_time(), share.is_bytes()) {
                    (true, _) => Unit::Milliseconds,
                    (_, true) => Unit::Bytes,
                    _ => Unit::Count,
                },
                used: share.used,
                limit: share.limit,
                is_close: share.is_close(),
            };
            match uses.iter_mut().find(|known| known.resource == one.resource) {
                Some(known) if known.share() < one.share() => *known = one,
                Some(_) => {}
                None => uses.push(one),
            }
        }
    }
    uses.sort_by(|a, b| b.share().total_cmp(&a.share()));
    uses
}

fn use_row(one: &Use) -> Markup {
    let class = if one.is_close { "warn" } else { "run" };
    html! {
        dt { (one.resource.replace('_', " ")) }
        dd.use title={ "the task " (line(&one.task)) } {
            span { (one.amount(one.used)) " of " (one.amount(one.limit)) @if one.is_close { " " (parts::badge_of("warn", "close")) } }
            svg.bar viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
                rect.track x="0" y="3" width="1000" height="4" {}
                rect class=(class) x="0" y="1" width=(format!("{:.0}", (one.share() * 1_000.0).max(4.0))) height="8" {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_a_line_for_each_value_and_keeps_its_words() {
        assert_eq!(
            pretty(r#"{"a":1.50,"b":[ ],"c":["x,\"y{",null]}"#),
            "{\n  \"a\": 1.50,\n  \"b\": [],\n  \"c\": [\n    \"x,\\\"y{\",\n    null\n  ]\n}"
        );
        assert_eq!(pretty("\"text: a\""), "\"text: a\"");
        assert_eq!(pretty(&"[".repeat(100)).matches('[').count(), 100);
    }

    #[test]
    fn an_amount_has_its_unit() {
        let of = |unit: Unit| Use {
            resource: "memory".to_owned(),
            unit,
            task: String::new(),
            used: 0,
            limit: 0,
            is_close: false,
        };
        assert_eq!(of(Unit::Bytes).amount(1_114_112), "1.1 MiB");
        assert_eq!(of(Unit::Milliseconds).amount(61_000), "1 min 1 s");
        assert_eq!(of(Unit::Count).amount(256), "256");
        assert_eq!(of(Unit::Bytes).share(), 0.0);
    }
}
