//! What was typed into the form of a launch by hand, and the schedule it is of.

use super::super::context_form::ContextForm;
use super::super::form::Form;
use crate::call::{Call, Result};
use campanile_control::admin::schedule_admin;
use campanile_control::schedules::definition;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_schedule::policy::Overlap;
use campanile_store::{Tx, packages};

/// A schedule as the form needs it.
pub(super) struct Launched {
    pub(super) package: String,
    /// The context of the schedule, over which that of the launch is merged.
    pub(super) base: JsonObject,
    pub(super) context: ContextForm,
    pub(super) overlap: Overlap,
}

/// Returns the form as `bodies::trigger` reads it.
pub(in super::super) async fn prepared(call: &Call, form: &Form) -> Result<Form> {
    let mut tx = call.read().await?;
    let launched = Launched::read(&mut tx, call.name("name")).await?;
    drop(tx);
    let context = launched.context.read(form, &launched.base).checked()?;
    let context = match context.is_empty() {
        true => String::new(),
        false => text_of(&context),
    };
    let taken = ["args", "overlap"].map(|name| (name.to_owned(), form.get(name).to_owned()));
    let mut fields = Vec::from(taken);
    fields.push(("context".to_owned(), context));
    Ok(Form::of(fields))
}

impl Launched {
    pub(super) async fn read(tx: &mut Tx, name: &str) -> Result<Launched> {
        let row = schedule_admin::find(tx, name).await?;
        let package = row.definition.package.clone();
        let manifest = packages::find(tx, &package).await?;
        let manifest = manifest.map(|row| row.manifest).unwrap_or_default();
        Ok(Launched {
            context: ContextForm::of_manifest(&manifest),
            base: serde_json::from_str(&row.definition.context).unwrap_or_default(),
            overlap: definition::policies(&row.definition)
                .unwrap_or_default()
                .overlap,
            package,
        })
    }
}
