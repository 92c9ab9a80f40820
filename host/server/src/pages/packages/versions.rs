//! The versions of a package: when each was active, and what was decided about it.

use maud::{Markup, html};

use super::super::charts;
use super::super::parts::{ActionForm, badge_of, field};
use super::super::words::{Clock, counted, line, moment, shell, short, time};
use super::super::{Visit, links};
use super::{PARTS_MAX, TEXT_MAX, VERSION_MAX};
use campanile_control::records::package::{PackageDetail, VersionRecord};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::size_rounded;
use campanile_store::package_versions::Version;

/// The most versions of the lane: the last ones that were active.
const SEGMENTS_MAX: usize = 12;
/// The least share of the lane, in percent, that has room for the name of a version.
const NAMED_MIN: f64 = 6.0;

/// The height of the lane, in pixels.
const HEIGHT: f64 = 14.0;
/// The space between two versions, in percent of the lane.
const GAP: f64 = 0.15;

/// The time in which a version was active.
struct Segment<'d> {
    record: &'d VersionRecord,
    from: Timestamp,
    /// None of the version that is active now.
    until: Option<Timestamp>,
}

/// Returns when versions were active, the oldest first. Of each version only its last time is on record.
fn segments(detail: &PackageDetail) -> Vec<Segment<'_>> {
    let activated = detail.versions.iter();
    let activated = activated.filter_map(|record| Some((record, record.version.activated_at?)));
    let mut activated = Vec::from_iter(activated);
    activated.sort_by_key(|(_, at)| *at);
    let untils = activated.iter().skip(1).map(|(_, at)| Some(*at));
    let untils = Vec::from_iter(untils.chain([None]));
    let of = activated.into_iter().zip(untils);
    of.map(|((record, from), until)| Segment {
        record,
        from,
        until,
    })
    .collect()
}

/// Returns what a version is called: its number, or else the first digits of its digest.
fn name(record: &VersionRecord) -> String {
    match &record.manifest_version {
        Some(number) => short(number, VERSION_MAX),
        None => record.version.digest.short().to_owned(),
    }
}

/// Shows which version was active when. Nothing for a package that had one alone.
pub(super) fn lane(detail: &PackageDetail, clock: Clock) -> Markup {
    let all = segments(detail);
    let shown = all
        .get(all.len().saturating_sub(SEGMENTS_MAX)..)
        .unwrap_or_default();
    let Some(first) = shown.first().filter(|_| shown.len() > 1) else {
        return html! {};
    };
    let whole = clock.now.since(first.from).as_secs_f64().max(1e-6);
    let place = |at: Timestamp| (at.since(first.from).as_secs_f64() / whole * 100.0).min(100.0);
    let words = shown.iter().map(|segment| {
        let from = clock.short(segment.from);
        let failed = failed(&segment.record.version);
        format!("{} since {from}, failed: {failed}", name(segment.record))
    });
    let words = Vec::from_iter(words).join(", ");
    html! {
        section.card.w12 aria-labelledby="lane" {
            header {
                h2 #lane { "Active version over time" }
                span.far { "from " (time(first.from, clock)) " to now" }
            }
            div.pad {
                svg.strip role="img" aria-label={ "Active versions: " (words) } {
                    @for segment in shown {
                        @let (left, right) = (place(segment.from), place(segment.until.unwrap_or(clock.now)));
                        rect class=(class(segment)) x={ (format!("{left:.2}")) "%" } y="0" width={ (format!("{:.2}", (right - left - GAP).max(0.2))) "%" } height=(HEIGHT) {
                            title { (name(segment.record)) " from " (clock.whole(segment.from)) @if let Some(until) = segment.until { " to " (clock.whole(until)) } ", failed: " (failed(&segment.record.version)) }
                        }
                        @if right - left >= NAMED_MIN { text x={ (format!("{left:.2}")) "%" } y="28" { (name(segment.record)) } }
                        (failed_part(segment, (left, right)))
                    }
                }
                @if all.len() > shown.len() { p.far { "The last " (shown.len()) " of " (counted(all.len() as u64, "version")) " that were active." } }
            }
        }
    }
}

/// Shows which part of the launches of a version failed: as much of the height of its segment, and at least a line.
fn failed_part(segment: &Segment<'_>, (left, right): (f64, f64)) -> Markup {
    let version = &segment.record.version;
    let share = version.failed as f64 / (version.succeeded + version.failed).max(1) as f64;
    let height = (share * HEIGHT).max(1.5);
    html! {
        @if version.failed > 0 {
            rect.bad x={ (format!("{left:.2}")) "%" } y=(format!("{:.1}", HEIGHT - height)) width={ (format!("{:.2}", (right - left - GAP).max(0.2))) "%" } height=(format!("{height:.1}")) {}
        }
    }
}

fn class(segment: &Segment<'_>) -> &'static str {
    match (&*segment.record.state, segment.until) {
        ("rolled_back" | "rejected", _) => "warn",
        (_, None) => "ok",
        _ => "skip",
    }
}

/// Shows the versions, the newest first.
pub(super) fn table(visit: &Visit, detail: &PackageDetail, clock: Clock) -> Markup {
    let segments = segments(detail);
    html! {
        header {
            h2 #versions { "Versions" }
            span.far { (counted(detail.versions.len() as u64, "version")) " on record, " (size_rounded(detail.bytes_kept)) " in the database" }
        }
        table.cards {
            thead {
                tr {
                    th scope="col" { "Version" }
                    th scope="col" { "Active" }
                    th.number scope="col" { "Failed" }
                    th.number scope="col" { "First seen" }
                    th.number scope="col" { "Size" }
                    th scope="col" { "Decision" }
                    th.number scope="col" { "Actions" }
                }
            }
            tbody {
                @for record in detail.versions.iter().rev().take(PARTS_MAX) {
                    @let segment = segments.iter().find(|segment| segment.record.version.digest == record.version.digest);
                    (row(visit, detail, record, segment, clock))
                }
            }
        }
        @if detail.versions.len() > PARTS_MAX { p.more { "The newest " (PARTS_MAX) " are shown." } }
    }
}

fn row(
    visit: &Visit,
    detail: &PackageDetail,
    record: &VersionRecord,
    segment: Option<&Segment<'_>>,
    clock: Clock,
) -> Markup {
    let version = &record.version;
    let active = detail.package.row.digest.as_ref();
    let other = active.filter(|active| **active != version.digest);
    html! {
        tr {
            td {
                @if let Some(number) = &record.manifest_version { span.name { (short(number, VERSION_MAX)) } " " }
                code.fit { (version.digest.short()) } " "
                @if record.state != "former" { (state(&record.state)) }
                @if let Some(name) = &record.name { br; span.far { (short(name, TEXT_MAX)) } }
            }
            td {
                @match segment {
                    Some(Segment { from, until: Some(until), .. }) => { (time(*from, clock)) " – " (time(*until, clock)) },
                    Some(Segment { from, until: None, .. }) => { "since " (moment(*from, clock)) },
                    None => span.far { "never" },
                }
            }
            td.number { (failed(version)) }
            td.number.rest { (moment(version.first_seen_at, clock)) }
            td.number.rest {
                (size_rounded(version.size_bytes.unsigned_abs()))
                @if version.removed_at.is_some() { br; span.far { "bytes removed" } }
            }
            td.rest {
                @if let (Some(decision), Some(at)) = (version.decision, version.decided_at) {
                    (decision.as_str().replace('_', " ")) " by " (line(version.decided_by.as_deref().unwrap_or("unknown"))) " " (moment(at, clock))
                    @if let Some(note) = &version.note { ": " (line(note)) }
                }
                @if let Some(signer) = &record.signed_by { div.far { "signed by the key " code { (line(signer)) } } }
            }
            td.number {
                @if let Some(active) = other { a href=(compare(&detail.package.row.name, active, &version.digest)) { "Compare" } " " }
                (roll_back(visit, detail, record))
            }
        }
    }
}

/// Returns how many launches of a version failed, of those that count.
fn failed(version: &Version) -> String {
    let ended = version.succeeded + version.failed;
    if ended == 0 {
        return "no launch".to_owned();
    }
    let share = charts::percent(version.failed, ended);
    format!("{} of {ended} ({share})", version.failed)
}

fn state(word: &str) -> Markup {
    let class = match word {
        "active" => "plain",
        word => charts::class(word),
    };
    badge_of(class, &word.replace('_', " "))
}

/// Links to what changes from the active version to another.
pub(super) fn compare(name: &str, active: &ArtifactDigest, other: &ArtifactDigest) -> String {
    let query = links::query(&[("from", active.short()), ("to", other.short())]);
    format!("{}/diff{query}", links::path(&["packages", name]))
}

/// Shows the form that makes a former version active, if its bytes are on record.
fn roll_back(visit: &Visit, detail: &PackageDetail, record: &VersionRecord) -> Markup {
    let is_former = matches!(&*record.state, "former" | "rolled_back");
    let digest = record.version.digest.as_str();
    let form = ActionForm {
        action: "roll_back",
        label: "Roll back to this version",
        hidden: &[("digest", digest)],
        fields: html! {
            p { "It becomes active, and the versions after it stay inactive." }
            (field(visit, "note", "Why", "for the record"))
        },
        command: format!(
            "campanile package rollback {} --to {} --note NOTE",
            shell(&detail.package.row.name),
            record.version.digest.short()
        ),
    };
    html! {
        @if is_former && record.version.removed_at.is_none() {
            details.menu.small {
                summary { "Roll back" }
                div { (form.show(visit)) }
            }
        }
    }
}
