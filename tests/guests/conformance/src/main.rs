//! WASI preview 1 as a program meets it, a case for each behaviour. The names are those of the programs of
//! `wasi-testsuite`, the suite of the WASI subgroup; the programs are our own.
//!
//! `case` in the context says which one to run; it exits with code 0, or panics with what is wrong. Without it, the
//! output is the list of all cases, by family. A case finds an empty directory at `/scratch`, in which it may do what
//! it likes, and one at `/library` that it may only read: see `permissions.rs`.

mod clocks;
mod descriptors;
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

/// A case: its name, and what it does with the scratch directory.
type Case = (&'static str, fn(Fd));

/// The cases of one file, each a function of its name.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub const CASES: &[$crate::Case] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use cases;

const FAMILIES: [(&str, &[Case]); 11] = [
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
