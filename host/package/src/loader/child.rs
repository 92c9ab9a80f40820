//! The child process: it reads one file from stdin, compiles it, and writes a [`Verdict`] to stdout.
//!
//! It confines itself before it reads the first byte. It leaves the compiled code in the cache, where the host finds it.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use campanile_model::clock::Clock;
use campanile_sandbox::{CodeCache, Refusal, Sandbox, SandboxSettings};

use super::exchange::{ChildSettings, Verdict, is_out_of_memory};
use super::manifest_of;
use crate::assemble::FILE_BYTES_MAX;

/// The stack of the thread that reads the file. The host reads it again with twice as much, so that a file that is
/// nested too deeply ends this process and never the host.
const STACK_BYTES: usize = 1 << 20;

/// Load the file on stdin, and write the verdict to stdout.
///
/// The caller must not have started a second thread: the kernel would not confine that thread.
pub fn load_in_this_process(settings: &str) -> ExitCode {
    let settings: ChildSettings = match serde_json::from_str(settings) {
        Ok(settings) => settings,
        Err(error) => return fail(&format!("the settings of the load are wrong: {error}")),
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = super::confine::confine(&settings) {
        return fail(&format!("the process cannot be confined: {error}"));
    }
    let loading = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || verdict(&settings));
    let verdict = match loading.map(thread::JoinHandle::join) {
        Ok(Ok(Ok(verdict))) => verdict,
        Ok(Ok(Err(error))) => return fail(&error),
        Ok(Err(_)) => return fail("the reader of the file panicked"),
        Err(error) => return fail(&format!("its thread did not start: {error}")),
    };
    let written = serde_json::to_vec(&verdict)
        .map_err(io::Error::other)
        .and_then(|text| io::stdout().write_all(&text));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("the result cannot be written: {error}")),
    }
}

fn fail(message: &str) -> ExitCode {
    // The parent reads stderr. Nothing else can be done when it is closed.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::FAILURE
}

/// Load the file. An error is trouble of this process, not of the file.
fn verdict(settings: &ChildSettings) -> Result<Verdict, String> {
    let trouble = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let mut bytes = Vec::new();
    io::stdin()
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(trouble("the file cannot be read"))?;
    let sandbox = SandboxSettings {
        calls_max: 1,
        guest_threads: 1,
        code_cache: CodeCache::Directory(settings.cache_dir.clone()),
        memory_bytes_max: settings.memory_bytes_max,
        stack_bytes_max: settings.stack_bytes_max,
    };
    let sandbox = Sandbox::new(sandbox, Clock::system()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(trouble("the runtime did not start"))?;
    let described = sandbox
        .load(&bytes)
        .and_then(|artifact| runtime.block_on(sandbox.describe(&Arc::new(artifact))));
    Ok(match described {
        Ok(description) => match manifest_of(&settings.package, description.as_ref()) {
            Ok(_) => Verdict::Loaded { description },
            Err(message) => Verdict::Refused { message },
        },
        Err(Refusal { message }) if is_out_of_memory(&message) => return Err(message),
        Err(Refusal { message }) => Verdict::Refused { message },
    })
}
