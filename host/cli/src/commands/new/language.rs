//! The languages that a project can be in, and how each is built.

use clap::ValueEnum;
use serde::Serialize;

use super::template::{self, File};

/// The language of a project, and in Rust the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Language {
    /// A typed component, with campanile-sdk
    #[default]
    Rust,
    /// A program with a `main`
    RustMain,
    /// A typed component, with bindings instead of the SDK
    RustWit,
    /// A typed component, by componentize-py
    Python,
    /// A typed component, by jco
    Javascript,
    /// A typed component, by tsc and jco
    Typescript,
    /// A program, by `zig cc`
    C,
    /// A program, by `zig c++`
    Cpp,
    /// A program
    Zig,
    /// A README only: the steps with componentize-go
    Go,
}

impl Language {
    /// The files of a project that is called `name`.
    pub fn files(self, name: &str) -> Vec<File> {
        match self {
            Language::Rust => template::RUST.files(name),
            Language::RustMain => template::RUST_MAIN.files(name),
            Language::RustWit => template::RUST_WIT.files(name),
            Language::Python => template::PYTHON.files(name),
            Language::Javascript => template::JAVASCRIPT.files(name),
            Language::Typescript => template::TYPESCRIPT.files(name),
            Language::C => template::C.files(name),
            Language::Cpp => template::CPP.files(name),
            Language::Zig => template::ZIG.files(name),
            Language::Go => vec![template::go(name)],
        }
    }

    /// What tests the task and builds it, typed in the folder of a project that is called `name`.
    pub fn build_steps(self, name: &str) -> Vec<String> {
        const TARGET: &str = "rustup target add wasm32-wasip2";
        const BUILD: &str = "./build  # tests it first";
        let steps: &[&str] = match self {
            Language::Rust => &[
                TARGET,
                template::GET_SDK,
                "cargo test",
                "cargo build --release --target wasm32-wasip2",
                &template::rename_module(name),
            ],
            Language::RustMain | Language::RustWit => &[TARGET, BUILD],
            Language::Go => &[],
            _ => &[BUILD],
        };
        steps.iter().map(|step| (*step).to_owned()).collect()
    }

    /// What the steps of the build make of a project that is called `name`, if there are any.
    pub fn built(self, name: &str) -> Option<String> {
        match self {
            Language::Go => None,
            _ => Some(format!("target/{name}.wasm")),
        }
    }

    /// A context that the task understands.
    pub fn context(self) -> &'static str {
        match self {
            Language::Rust => r#"{"text": "to be or not"}"#,
            _ => r#"{"below": 100000}"#,
        }
    }
}
