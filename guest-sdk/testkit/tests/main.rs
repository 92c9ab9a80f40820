//! Tests of the testkit with real packages. A single binary, because each binary links the sandbox.

mod conformance;
mod first_party;
mod limits;
