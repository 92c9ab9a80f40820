//! A task that repeats an effect of one kind, each with the run and a number, to see when a stopped run ends.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use campanile_sdk::{Error, Explain, Package, Result, Run, Task};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Context {
    /// `file`, `request`, `tcp`, `udp` or `bucket`.
    kind: String,
    /// A path, a URL ending in `?`, an address, or a bucket.
    target: String,
    times: u32,
    pause_ms: u64,
}

#[derive(Serialize)]
struct Repeated {
    times: u32,
}

/// What an effect needs, opened before the first.
enum Effect<'a> {
    File(std::fs::File),
    Request(&'a str),
    Tcp(TcpStream),
    Udp(UdpSocket, &'a str),
    Bucket(&'a str),
}

impl<'a> Effect<'a> {
    fn open(context: &'a Context) -> Result<Effect<'a>> {
        let target = context.target.as_str();
        let opening = || format!("opening {target}");
        Ok(match context.kind.as_str() {
            "file" => Effect::File(
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(target)
                    .explain(opening)?,
            ),
            "request" => Effect::Request(target),
            "tcp" => Effect::Tcp(TcpStream::connect(target).explain(opening)?),
            "udp" => Effect::Udp(UdpSocket::bind("0.0.0.0:0").explain(opening)?, target),
            "bucket" => Effect::Bucket(target),
            other => return Err(Error::permanent(format!("no effect is called {other}"))),
        })
    }

    fn once(&mut self, run: &Run, line: &str) -> Result<()> {
        match self {
            Effect::File(file) => file.write_all(format!("{line}\n").as_bytes())?,
            Effect::Request(url) => request(&format!("{url}{}", line.replace(' ', "+")))?,
            Effect::Tcp(stream) => stream.write_all(format!("{line}\n").as_bytes())?,
            Effect::Udp(socket, address) => {
                socket.send_to(line.as_bytes(), *address)?;
            }
            Effect::Bucket(bucket) => run.bucket(bucket)?.set(&run.run_id(), line)?,
        }
        Ok(())
    }
}

#[cfg(target_family = "wasm")]
fn request(url: &str) -> Result<()> {
    fetch::get(url, Duration::from_secs(10), 1 << 20)
        .map(drop)
        .map_err(|failure| Error::retryable(failure.to_string()))
}

#[cfg(not(target_family = "wasm"))]
fn request(url: &str) -> Result<()> {
    Err(Error::retryable(format!("{url}: there is no sandbox")))
}

/// Repeat an effect: each is `<run id> <number>`.
fn repeat(run: &Run, context: Context) -> Result<Repeated> {
    let mut effect = Effect::open(&context)?;
    for number in 1..=context.times {
        effect.once(run, &format!("{} {number}", run.run_id()))?;
        thread::sleep(Duration::from_millis(context.pause_ms));
    }
    Ok(Repeated {
        times: context.times,
    })
}

fn package() -> Package {
    Package::new("repeat", env!("CARGO_PKG_VERSION")).task(Task::new("repeat", repeat))
}

campanile_sdk::export!(package);
