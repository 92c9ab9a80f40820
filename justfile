# Short names for what is typed often. Nothing here is needed: every line is a command of its own.

# Serve ./plugins on ./campanile.db
serve *arguments:
    cargo run -- serve {{arguments}}

# All tests, on both databases
test:
    ./test

# Everything a change must pass
ci:
    .ci/run

# Put the style right
format:
    cargo fmt --all
    cd plugins && cargo fmt
    cd tests/guests && cargo fmt
    cd examples/rust-task && cargo fmt

# The lints that .ci/run turns into errors
lint:
    cargo clippy --workspace --all-targets

# Build the committed .wasm files anew
packages:
    plugins/build

# The guide to the source, in a browser
doc:
    cargo doc --no-deps --open --package campanile --package campanile-sdk

# Licences, advisories and sources of the dependencies; `cargo install cargo-deny` once
deny:
    cargo deny check

# A release archive with manual pages, completions and checksums, in target/dist
release:
    examples/deployment/release
