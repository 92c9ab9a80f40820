//! A conformance test of WASI preview 1, with a case for each behaviour.
//!
//! The cases have the names of the programs in `wasi-testsuite`, the test suite of the WASI subgroup. The code is our own.
//!
//! The key `case` in the context names the case to run. The program exits with code 0, or panics with the fault. Without
//! the key, the output is the list of all cases by family. A case has an empty, writable directory at `/scratch`, and a
//! read-only directory at `/library`, which `permissions.rs` describes.

mod clocks;
mod descriptors;
mod devices;
mod directories;
mod files;
mod links;
mod opening;
mod p1;
mod paths;
mod permissions;
mod process;
mod random;
mod stdio;

use serde_json::{Map, Value};

use p1::Fd;

/// A case: its name, and a function of the scratch directory.
type Case = (&'static str, fn(Fd));

/// Define the cases of a module. Each case is a function of the same name.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::Case] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use cases;

const FAMILIES: [(&str, &[Case]); 12] = [
    ("process", process::CASES),
    ("clocks", clocks::CASES),
    ("random", random::CASES),
    ("stdio", stdio::CASES),
    ("descriptors", descriptors::CASES),
    ("files", files::CASES),
    ("directories", directories::CASES),
    ("opening", opening::CASES),
    ("paths", paths::CASES),
    ("links", links::CASES),
    ("permissions", permissions::CASES),
    ("devices", devices::CASES),
];

fn main() {
    let context: Value = serde_json::from_reader(std::io::stdin()).expect("the context is JSON");
    let Some(wanted) = context["case"].as_str() else {
        println!("{}", all());
        return;
    };
    let mut cases = FAMILIES.iter().flat_map(|(_, cases)| cases.iter());
    let (_, case) = cases
        .find(|(name, _)| *name == wanted)
        .unwrap_or_else(|| panic!("there is no case {wanted}"));
    case(p1::preopened("/scratch"));
}

fn all() -> Value {
    let names = |cases: &[Case]| cases.iter().map(|(name, _)| Value::from(*name)).collect();
    let families = FAMILIES
        .iter()
        .map(|(family, cases)| ((*family).to_owned(), names(cases)));
    Value::Object(families.collect::<Map<String, Value>>())
}
