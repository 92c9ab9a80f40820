//! The `campanile` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    campanile::main()
}
