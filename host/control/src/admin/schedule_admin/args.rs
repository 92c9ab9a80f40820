//! Checks of the arguments that a schedule or a trigger gives to a program.

use super::{Result, ScheduleError, Trigger, read};
use crate::schedules::program_args::{no_program, parse};
use campanile_package::context::RESERVED;
use campanile_sandbox::{ARGUMENT_BYTES_MAX, ContextValues, Form, JsonObject};
use campanile_store::packages::PackageRow;
use campanile_store::schedules::Schedule;
use campanile_store::{Tx, sidecars};

/// Refuse arguments that cannot be read, or whose package is not a program.
pub(super) fn check_args(args: &[String], package: &str, form: Option<Form>) -> Result {
    parse(args).map_err(ScheduleError::Refused)?;
    match form.filter(|form| !form.is_command()) {
        None => Ok(()),
        Some(form) => Err(ScheduleError::Refused(no_program(package, form))),
    }
}

/// Returns how the active version of a package communicates, if this version knows that.
pub(super) fn form_of(package: &PackageRow) -> Option<Form> {
    package.form.as_ref()?.parse().ok()
}

/// Refuse a launch at once whose arguments its package cannot get, or that name a value that its context does not have.
///
/// The context of a sidecar counts, whichever host has it.
pub(super) async fn check_launch_args(
    tx: &mut Tx,
    schedule: &Schedule,
    package: &PackageRow,
    trigger: &Trigger<'_>,
) -> Result {
    let definition = read(&schedule.definition)?;
    let Some(args) = trigger.args.or(definition.args.as_deref()) else {
        return Ok(());
    };
    check_args(args, &package.name, form_of(package))?;
    let args = parse(args).map_err(ScheduleError::Refused)?;
    let mut context = JsonObject::new();
    for text in sidecars::contexts(tx, &definition.package).await? {
        let table: JsonObject = serde_json::from_str(&text).unwrap_or_default();
        context.extend(table);
    }
    context.extend(definition.context);
    context.extend(trigger.context.cloned().unwrap_or_default());
    let mut values = ContextValues::new(&context, ARGUMENT_BYTES_MAX);
    for (template, number) in args.iter().zip(1..) {
        // The host sets the reserved keys when it calls the program.
        let own = template.keys();
        let mut own = own.filter(|key| !RESERVED.contains(&key.first()));
        let filled = own.try_for_each(|key| values.text(key).map(drop));
        filled.map_err(|what| {
            ScheduleError::Refused(format!(
                "argument {number} of the program cannot be filled in: {what}; give it with --context"
            ))
        })?;
    }
    Ok(())
}
