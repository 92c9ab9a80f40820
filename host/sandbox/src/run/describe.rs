//! The manifest of a package: from its `describe` function, run without any capability, or from the labels of the file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::capability::shared::Call;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::load::loaded::HeldCode;
use crate::load::refusal::Refusal;
use crate::run::time::{Ended, bounded};
use crate::run::trap::trap_message;
use crate::state;
use crate::stop_signal::StopSignal;
use campanile_model::clock::Clock;
use campanile_model::json_depth;

const TIMEOUT: Duration = Duration::from_secs(1);
const MEMORY_BYTES_MAX: u64 = 32 << 20;
const MANIFEST_BYTES_MAX: usize = 256 << 10;

/// Returns the package's manifest, or none when it has neither a `describe` function nor labels.
pub(crate) async fn describe(
    held: &HeldCode,
    ledger: Arc<Ledger>,
    clock: Clock,
) -> Result<Option<Value>, Refusal> {
    let code = held.code();
    let Some(describe) = &code.describe else {
        let labels = serde_json::to_value(&code.labels).ok();
        return Ok(labels.filter(|labels| *labels != json!({})));
    };
    let refuse = |trouble: String| Refusal::new(format!("the package's describe() {trouble}"));
    let limits = Limits {
        timeout: TIMEOUT,
        memory_bytes_max: MEMORY_BYTES_MAX,
        ..Limits::default()
    };
    let charge = ledger.admit("", code.footprint, &limits).await;
    let charge = charge.map_err(|why| refuse(format!("cannot be called: {why}")))?;
    let call = Call::ungranted(limits, clock.now());
    let engine = code.instance.engine();
    let mut store = state::open(engine, (call, charge, ledger), clock, None);
    let stop = StopSignal::default();
    let calling = async {
        let instance = code.instance.instantiate_async(&mut store).await?;
        let guest = describe.load(&mut store, &instance)?;
        guest.call_describe(&mut store).await
    };
    let ended = bounded(async { Some(calling.await) }, TIMEOUT, &stop).await;
    let text = match ended {
        Ended::Returned(text) => text,
        Ended::Broke(error) => {
            let state = store.data();
            return Err(refuse(match state.memory.refusal() {
                Some(message) => format!("needs too much: {message}"),
                None => format!("broke off: {}", trap_message(&error, &state.stderr)),
            }));
        }
        Ended::TimedOut | Ended::CpuSpent | Ended::Dropped => {
            return Err(refuse(format!(
                "did not return within {}; it may only return what it knows, without waiting or computing",
                humantime::format_duration(TIMEOUT)
            )));
        }
    };
    manifest(&text).map(Some).map_err(refuse)
}

fn manifest(text: &str) -> Result<Value, String> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(format!(
            "returned {} bytes and its limit is {MANIFEST_BYTES_MAX}",
            text.len()
        ));
    }
    json_depth::check(text.as_bytes())
        .map_err(|too_deep| format!("returned JSON that {too_deep}; return it flatter"))?;
    match serde_json::from_str(text) {
        Ok(manifest @ Value::Object(_)) => Ok(manifest),
        Ok(_) => Err("returned JSON that is not an object".to_owned()),
        Err(error) => Err(format!("returned a text that is not JSON: {error}")),
    }
}
