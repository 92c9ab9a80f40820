//! The languages of projects, and how each is built.

use clap::ValueEnum;
use serde::Serialize;

use super::template::{self, File};

/// The language of a project.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, schemars::JsonSchema, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Language {
    /// A typed component, with campanile-sdk
    #[default]
    Rust,
    /// A program with a `main`
    RustMain,
    /// A typed component, with generated bindings instead of the SDK
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
    /// Return the files of a project.
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

    /// Return the commands that test and build a project, to run in its folder.
    pub fn build_steps(self, name: &str) -> Vec<String> {
        const TARGET: &str = "rustup target add wasm32-wasip2";
        const BUILD: &str = "./build  # runs the tests first";
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

    /// Return the path of the built package; none when the project has no build.
    pub fn built(self, name: &str) -> Option<String> {
        match self {
            Language::Go => None,
            _ => Some(format!("target/{name}.wasm")),
        }
    }

    /// Return a context for the task.
    pub fn context(self) -> &'static str {
        match self {
            Language::Rust => r#"{"text": "to be or not"}"#,
            _ => r#"{"below": 100000}"#,
        }
    }
}
