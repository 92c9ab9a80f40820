//! Loading a file: checking, compiling and linking it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wasmparser::{Encoding, Parser, Payload};
use wasmtime::Module;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, InstancePre};
use wasmtime_wasi::p2::bindings::exports::wasi::cli::run as command;

use crate::bindings::campanile::task::types::{Completion, Failure};
use crate::bindings::exports::campanile::task::{describe, task};
use crate::engine::{Engines, LinkedEngine};
use crate::ledger::footprint::Footprint;
use crate::linker::is_provided;
use crate::load::compile_cost;
use crate::load::component_size;
use crate::load::foreign::not_provided;
use crate::load::outline::Labels;
use crate::load::recognise::{Form, Recognised, recognise};
use crate::load::refusal::{Refusal, one_line, refuse};
use crate::state::HostState;

/// Compiled and linked code, ready for any number of calls.
pub(crate) struct Code {
    pub(crate) form: Form,
    pub(crate) labels: Labels,
    pub(crate) opens_paths: bool,
    /// What each call takes before running any code.
    pub(crate) footprint: Footprint,
    /// Host memory taken, in bytes.
    pub(crate) bytes: u64,
    /// The linked code.
    pub(crate) instance: InstancePre<HostState>,
    pub(crate) entry: Entry,
    pub(crate) describe: Option<describe::GuestIndices>,
}

/// The exported function that a call invokes.
pub(crate) enum Entry {
    Task(task::GuestIndices),
    Command(command::GuestIndices),
}

/// Check, compile and link `bytes`. The cost of compiling is not estimated again if it `is_known` to be acceptable.
pub(crate) fn load(engines: &Engines, bytes: &[u8], is_known: bool) -> Result<Code, Refusal> {
    let loaded = catch_unwind(AssertUnwindSafe(|| {
        let recognised = recognise(bytes, |bytes| {
            if is_known {
                Ok(())
            } else {
                check_features(engines, bytes)
            }
        })?;
        let footprint = component_size::check(&recognised.component, engines.component_limits())?;
        if !is_known {
            compile_cost::check(&recognised.component)?;
        }
        let (component, engine) = compile(engines, &recognised.component)?;
        link(engine, &component, (recognised, footprint))
    }));
    // The libraries that read files may panic on a hostile file.
    loaded.unwrap_or_else(|_| {
        refuse("the file is damaged in a way that stopped its reader; build it or copy it again")
    })
}

/// Refuses instructions the engine doesn't support, in a module or the modules of a component. Checked before anything that needs much
/// memory, so a file built for threads gets this reason however large it is.
fn check_features(engines: &Engines, bytes: &[u8]) -> Result<(), Refusal> {
    let engine = match &engines.pooled {
        Some(pooled) => &pooled.engine,
        None => {
            &(engines
                .on_demand()
                .map_err(|error| Refusal::new(error.to_string()))?)
            .engine
        }
    };
    let mut modules = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(|error| compile_cost::invalid(&error))?;
        match payload {
            Payload::Version {
                encoding: Encoding::Module,
                range,
                ..
            } if range.start == 0 => {
                modules.push(0..bytes.len());
            }
            Payload::ModuleSection {
                unchecked_range, ..
            } => modules.push(unchecked_range),
            _ => {}
        }
    }
    for module in modules.into_iter().filter_map(|range| bytes.get(range)) {
        Module::validate(engine, module)
            .map_err(|error| compile_cost::invalid(&format!("{error:#}")))?;
    }
    Ok(())
}

/// Compile for the pool, or on demand when the component does not fit the pool's slots.
fn compile<'e>(
    engines: &'e Engines,
    bytes: &[u8],
) -> Result<(Component, &'e LinkedEngine), Refusal> {
    if let Some(pooled) = &engines.pooled
        && let Ok(component) = Component::from_binary(&pooled.engine, bytes)
    {
        return Ok((component, pooled));
    }
    // A component that is not valid fails here again, with the reason.
    let engine = engines.on_demand();
    let engine = engine.map_err(|error| Refusal::new(error.to_string()))?;
    let component = Component::from_binary(&engine.engine, bytes)
        .map_err(|error| compile_cost::invalid(&format!("{error:#}")))?;
    Ok((component, engine))
}

fn link(
    engine: &LinkedEngine,
    component: &Component,
    (recognised, footprint): (Recognised<'_>, Footprint),
) -> Result<Code, Refusal> {
    let missing = missing_imports(engine, component);
    if !missing.is_empty() {
        return Err(not_provided(&missing));
    }
    let refuse = |error: wasmtime::Error| {
        let why = format!("{error:#}");
        let why = one_line(&why);
        Refusal::new(format!(
            "the component does not fit this version of Campanile: {why}; build it with a matching campanile-sdk"
        ))
    };
    let instance = engine.linker.instantiate_pre(component).map_err(refuse)?;
    let entry = if recognised.form.is_command() {
        command::GuestIndices::new(&instance).map(Entry::Command)
    } else {
        task::GuestIndices::new(&instance).map(Entry::Task)
    };
    let entry = entry.map_err(refuse)?;
    let describe = describe::GuestIndices::new(&instance).ok();
    check_types(engine, component).map_err(refuse)?;
    // Linked here, so that the first call is as fast as later ones, and an error is one of the load.
    component.initialize_copy_on_write_image().map_err(refuse)?;
    Ok(Code {
        form: recognised.form,
        labels: recognised.labels,
        opens_paths: recognised.opens_paths,
        footprint,
        bytes: code_bytes(component),
        instance,
        entry,
        describe,
    })
}

/// Returns the host memory taken by compiled code, in bytes, possibly overestimating a little.
///
/// All of it is in memory once. Anything but machine code exists a second time: data as images for instantiating memories, and the
/// description of the code in parsed form.
fn code_bytes(component: &Component) -> u64 {
    let image = component.image_range();
    let image = (image.end as usize).saturating_sub(image.start as usize);
    (2 * image).saturating_sub(component.text().len()) as u64
}

/// Returns the imported interfaces that the host does not define. An interface of types only needs no definition.
fn missing_imports(engine: &LinkedEngine, component: &Component) -> Vec<String> {
    let engine = &engine.engine;
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

/// Check that the exported functions have the types of the contract, so that no call fails for it.
fn check_types(engine: &LinkedEngine, component: &Component) -> wasmtime::Result<()> {
    let component = component.component_type();
    let types = component.instance_type();
    for (name, export) in component.exports(&engine.engine) {
        let ComponentItem::ComponentInstance(interface) = &export.ty else {
            continue;
        };
        let function = |name| match interface.get_export(&engine.engine, name)?.ty {
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
