//! The contract of `wit/` in Rust.

wasmtime::component::bindgen!({
    path: "wit",
    world: "campanile:task/described-package",
    imports: {
        "wasi:keyvalue/store": async | trappable,
        "wasi:keyvalue/atomics": async | trappable,
        "wasi:keyvalue/batch": async | trappable,
        "campanile:task/session": async | trappable,
        "campanile:task/outbox": async | trappable,
    },
    exports: { default: async },
    with: { "wasi:keyvalue/store.bucket": crate::capability::keyvalue::host::OpenBucket },
});
