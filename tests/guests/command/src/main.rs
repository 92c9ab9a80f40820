//! A program without the SDK, with its context on stdin and its output on stdout. The key `do` sets its behaviour. With the
//! first argument `raw` it prints what it gets, and the file that the second argument names.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("raw") {
        println!("{}", raw()?);
        return Ok(ExitCode::SUCCESS);
    }
    let context: Value = serde_json::from_reader(std::io::stdin())?;
    let number = |key: &str| context[key].as_u64().unwrap_or(0);
    match context["do"].as_str().unwrap_or("echo") {
        "echo" => println!("{}", inputs(&context)),
        "exit" => {
            println!("leaving");
            eprintln!("the bell has cracked");
            std::process::exit(number("code") as i32);
        }
        "return" => return Ok(ExitCode::from(number("code") as u8)),
        "fail" => return Err("no rope".into()),
        "panic" => panic!("the bell has cracked"),
        "say" => println!("ding dong"),
        "read" => {
            let path = context["path"].as_str().unwrap_or("/");
            print!("{}", json!(std::fs::read_to_string(path)?));
        }
        "flood" => flood(number("bytes"))?,
        "list" => print!("{}", json!("a".repeat(number("bytes") as usize))),
        "spin" => loop {
            std::hint::black_box(0);
        },
        "hoard" => {
            let mut blocks = Vec::new();
            loop {
                blocks.push(vec![1_u8; 1 << 20]);
                std::hint::black_box(&blocks);
            }
        }
        other => return Err(format!("there is no behaviour {other}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Return the program's stdin as text, variables, arguments, working directory, and the text of the file that an argument
/// names.
fn raw() -> Result<Value, Box<dyn Error>> {
    let mut inputs = inputs(&Value::Null);
    let file = std::env::args().nth(2).map(std::fs::read_to_string);
    inputs["stdin"] = std::io::read_to_string(std::io::stdin())?.into();
    inputs["cwd"] = std::env::current_dir()?.display().to_string().into();
    inputs["file"] = file.transpose()?.into();
    Ok(inputs)
}

/// Return the program's context, variables and arguments.
fn inputs(context: &Value) -> Value {
    let variables: Map<String, Value> = std::env::vars()
        .map(|(name, value)| (name, value.into()))
        .collect();
    let arguments: Vec<String> = std::env::args().collect();
    json!({ "context": context, "env": variables, "arguments": arguments })
}

fn flood(bytes: u64) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    for _ in 0..bytes / 10 {
        stdout.write_all(b"ding dong\n")?;
    }
    Ok(())
}
