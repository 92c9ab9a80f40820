//! A generated or changed package: load it, and ask for its manifest. Run it under a limit of memory (`-rss_limit_mb`):
//! the host loads files in a child process, and this target does not.

#![no_main]

use std::sync::{Arc, LazyLock};

use campanile_model::clock::Clock;
use campanile_sandbox::{CodeCache, Sandbox, SandboxSettings};
use tokio::runtime::Runtime;

static SANDBOX: LazyLock<Sandbox> = LazyLock::new(|| {
    let settings = SandboxSettings {
        calls_max: 1,
        guest_threads: 1,
        code_cache: CodeCache::None,
        memory_bytes_max: 64 << 20,
        ..SandboxSettings::default()
    };
    Sandbox::new(settings, Clock::system()).expect("a sandbox")
});

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(package) = campanile_tests::fuzz::package(bytes) else {
        return;
    };
    let refusal = match SANDBOX.load(&package) {
        Ok(artifact) => {
            let artifact = Arc::new(artifact);
            RUNTIME.block_on(SANDBOX.describe(&artifact)).err()
        }
        Err(refusal) => Some(refusal),
    };
    if let Some(refusal) = refusal {
        let message = refusal.message;
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
    }
});
