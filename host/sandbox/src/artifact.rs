//! From a file's bytes to something that can be called.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre};
use wasmtime_wasi::p2::bindings::exports::wasi::cli::run as command;

use super::effort;
use super::engine::{Engines, Workshop};
use super::imports::bindings::campanile::task::types::{Completion, Failure};
use super::imports::bindings::exports::campanile::task::{describe, task};
use super::imports::is_provided;
use super::recognise::{listed, one_line, recognise};
use super::store::HostState;
use super::{Artifact, Form, Refusal};
use campanile_model::ids::ArtifactDigest;

/// What a call needs of an artifact: its code, linked, and where its functions are.
pub(super) struct Linked {
    pub(super) instance: InstancePre<HostState>,
    pub(super) entry: Entry,
    pub(super) describe: Option<describe::GuestIndices>,
}

/// The function that a call calls.
pub(super) enum Entry {
    Task(task::GuestIndices),
    Command(command::GuestIndices),
}

/// Check, compile and link `bytes`.
pub(super) fn load(engines: &Engines, bytes: &[u8]) -> Result<Artifact, Refusal> {
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let recognised = recognise(bytes)?;
        effort::check(&recognised.component)?;
        let (component, workshop) = compile(engines, &recognised.component)?;
        Ok(Artifact {
            digest: ArtifactDigest::of(bytes),
            form: recognised.form,
            labels: recognised.labels,
            linked: link(workshop, &component, recognised.form)?,
        })
    }));
    // The libraries that read files do not promise never to panic on a hostile one.
    loaded.unwrap_or_else(|_| {
        Err(Refusal {
            message:
                "the file is damaged in a way that stopped its reader; build it or copy it again"
                    .to_owned(),
        })
    })
}

/// Compile for the pool, or on demand when the component does not fit the pool's slots.
fn compile<'e>(engines: &'e Engines, bytes: &[u8]) -> Result<(Component, &'e Workshop), Refusal> {
    if let Some(pooled) = engines.pooled()
        && let Ok(component) = Component::from_binary(&pooled.engine, bytes)
    {
        return Ok((component, pooled));
    }
    // A component that is wrong in itself fails here again, early and with the reason that matters.
    let workshop = engines.on_demand().map_err(|error| Refusal {
        message: error.to_string(),
    })?;
    let component = Component::from_binary(&workshop.engine, bytes)
        .map_err(|error| effort::invalid(&format!("{error:#}")))?;
    Ok((component, workshop))
}

fn link(workshop: &Workshop, component: &Component, form: Form) -> Result<Linked, Refusal> {
    let missing = missing_imports(workshop, component);
    if !missing.is_empty() {
        return Err(Refusal {
            message: format!(
                "this component imports {}, which Campanile does not provide; it provides WASI 0.2, wasi:http/outgoing-handler, \
                 wasi:logging, wasi:config/store, wasi:keyvalue and campanile:task/run-info",
                listed(&missing)
            ),
        });
    }
    let refuse = |error: wasmtime::Error| Refusal {
        message: format!(
            "the component does not fit this version of Campanile: {}; build it with a matching campanile-sdk",
            one_line(&format!("{error:#}"))
        ),
    };
    let instance = workshop.linker.instantiate_pre(component).map_err(refuse)?;
    let entry = match form.is_command() {
        true => command::GuestIndices::new(&instance).map(Entry::Command),
        false => task::GuestIndices::new(&instance).map(Entry::Task),
    };
    let entry = entry.map_err(refuse)?;
    let describe = describe::GuestIndices::new(&instance).ok();
    check_types(workshop, component).map_err(refuse)?;
    // So that the first call is as fast as the next; a call would do it otherwise, and report why it failed.
    component.initialize_copy_on_write_image().map_err(refuse)?;
    Ok(Linked {
        instance,
        entry,
        describe,
    })
}

/// Imported interfaces with functions in them that nobody defines; one of types only needs no definition.
fn missing_imports(workshop: &Workshop, component: &Component) -> Vec<String> {
    let engine = &workshop.engine;
    component
        .component_type()
        .imports(engine)
        .filter(|(name, import)| match &import.ty {
            ComponentItem::ComponentInstance(instance) => {
                let only_types = instance
                    .exports(engine)
                    .all(|(_, export)| matches!(export.ty, ComponentItem::Type(_)));
                !only_types && !is_provided(name)
            }
            _ => true,
        })
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// The exported functions have the types of the contract: a call then need not fail for it.
fn check_types(workshop: &Workshop, component: &Component) -> wasmtime::Result<()> {
    let component = component.component_type();
    let types = component.instance_type();
    for (name, export) in component.exports(&workshop.engine) {
        let ComponentItem::ComponentInstance(interface) = &export.ty else {
            continue;
        };
        let function = |name| match interface.get_export(&workshop.engine, name)?.ty {
            ComponentItem::ComponentFunc(function) => Some(function),
            _ => None,
        };
        let checked = if name.starts_with("campanile:task/task@") {
            function("run")
                .map(|run| run.typecheck::<(&str, &str), (Result<Completion, Failure>,)>(&types))
        } else if name.starts_with("campanile:task/describe@") {
            function("describe").map(|describe| describe.typecheck::<(), (String,)>(&types))
        } else if name.starts_with("wasi:cli/run@0.2.") {
            function("run").map(|run| run.typecheck::<(), (Result<(), ()>,)>(&types))
        } else {
            None
        };
        if let Some(Err(error)) = checked {
            return Err(error.context(format!("`{name}` has another type than the contract")));
        }
    }
    Ok(())
}
