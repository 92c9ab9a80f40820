//! The child process: it reads one file from stdin, compiles it, and writes a [`Verdict`] to stdout.
//!
//! It confines itself before it reads the first byte. It leaves the compiled code in the cache, where the host finds it.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;
use std::thread;

use campanile_model::clock::Clock;
use campanile_sandbox::{CodeCache, Refusal, Sandbox, SandboxSettings, sparse_image_bytes_max};

use super::exchange::{Accepted, ChildSettings, Verdict, is_out_of_memory};
use super::manifest_of;
use crate::assemble::FILE_BYTES_MAX;

/// The stack of the thread that reads the file. The host reads it again with twice as much, so that a file that is
/// nested too deeply ends this process and never the host.
const STACK_BYTES: usize = 1 << 20;

/// Load the file on stdin, and write the verdict to stdout.
///
/// The caller must not have started a second thread: the kernel would not confine that thread.
pub fn load_in_this_process(settings: &str) -> ExitCode {
    match load(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // The parent reads stderr. Nothing else can be done when it is closed.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn load(settings: &str) -> Result<(), String> {
    let settings: ChildSettings = serde_json::from_str(settings)
        .map_err(|error| format!("the settings of the load are wrong: {error}"))?;
    #[cfg(target_os = "linux")]
    super::confine::confine(&settings)
        .map_err(|error| format!("the process cannot be confined: {error}"))?;
    let loading = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(move || verdict(&settings))
        .map_err(trouble("its thread did not start"))?;
    let ended = loading.join();
    let verdict = ended.map_err(|_| "the reader of the file panicked")??;
    serde_json::to_vec(&verdict)
        .map_err(io::Error::other)
        .and_then(|text| io::stdout().write_all(&text))
        .map_err(trouble("the result cannot be written"))
}

fn trouble(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

/// Load the file. An error is trouble of this process, not of the file.
fn verdict(settings: &ChildSettings) -> Result<Verdict, String> {
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
        component_limits: settings.component_limits,
        memory_total_bytes: settings.limits.memory_bytes,
        loaded_bytes_max: settings.loaded_bytes_max,
        sparse_image_bytes_max: sparse_image_bytes_max(bytes.len() as u64),
    };
    let sandbox = Sandbox::new(sandbox, Clock::system()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(trouble("the runtime did not start"))?;
    let described = sandbox.load(&bytes).and_then(|artifact| {
        let description = runtime.block_on(sandbox.describe(&artifact))?;
        Ok((artifact, description))
    });
    match described {
        Ok((artifact, description)) => {
            let manifest = manifest_of(&settings.package, description.as_ref());
            Ok(manifest.map(|_| Accepted {
                form: artifact.form,
                code_bytes: artifact.code_bytes,
                description,
            }))
        }
        Err(Refusal { message }) if is_out_of_memory(&message) => Err(message),
        Err(Refusal { message }) => Ok(Err(message)),
    }
}
