//! What a person is told, and ticks, before a version becomes active that asks for what isn't granted.

use maud::{Markup, html};

use super::super::form::Form;
use super::super::words::{line, short};
use super::TEXT_MAX;
use crate::call::{Call, Result};
use campanile_control::admin::approval;
use campanile_control::admin::approval::ungranted::{effects, ungranted_requests};
use campanile_package::requests::{Request, sidecar_lines};
use campanile_store::{package_versions, packages};

/// The field with which an operator activates a version although not all of its requests are granted: that of the order.
const ANYWAY: &str = "anyway";

/// Shows what the version that a form activates lacks, with the tick; nothing if all its requests are granted, or if the form
/// has the tick. Whether the version may be activated is the order's to say.
pub(in super::super) async fn tick(call: &Call, form: &Form) -> Result<Markup> {
    let mut tx = call.read().await?;
    let Some(row) = packages::find(&mut tx, call.name("name")).await? else {
        return Ok(html! {});
    };
    let versions = package_versions::of_package(&mut tx, &row.name).await?;
    let wanted = approval::version(&row.name, &versions, form.get("digest").trim());
    let Ok(version) = wanted else {
        return Ok(html! {});
    };
    let ungranted = ungranted_requests(&mut tx, &row, &version.digest).await?;
    drop(tx);
    let is_ticked = form.given(ANYWAY).is_some();
    Ok(html! { @if !is_ticked { (missing(&row.name, &ungranted)) (field(&ungranted)) } })
}

/// Shows the tick for a version with these ungranted requests; nothing without one.
pub(super) fn field(ungranted: &[Request]) -> Markup {
    html! {
        @if !ungranted.is_empty() {
            label { input type="checkbox" name=(ANYWAY) value="yes" required; " Activate it although that isn't granted" }
        }
    }
}

/// Shows what becomes of the calls with this version active, and the lines that grant what it lacks; nothing if it lacks
/// nothing.
pub(super) fn missing(package: &str, ungranted: &[Request]) -> Markup {
    html! {
        @if !ungranted.is_empty() {
            p { "Add to " code { (line(package)) ".toml" } " in the plugins folder:" }
            (lines(ungranted))
            @for effect in effects(ungranted) {
                p.warning { "With this version active, " (short(&effect, TEXT_MAX)) "." }
            }
        }
    }
}

/// Shows the lines of a sidecar that grant requests.
pub(in super::super) fn lines<'r>(requests: impl IntoIterator<Item = &'r Request>) -> Markup {
    let lines = sidecar_lines(requests);
    html! { pre tabindex="0" { @for each in lines.lines() { (line(each)) "\n" } } }
}
