//! A receiver of requests that keeps what it got.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A whole request.
#[derive(Clone, Debug)]
pub struct Received {
    /// By name, in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A receiver on a port of this machine, which answers 204.
pub struct Receiver {
    pub port: u16,
    /// Whether it answers. Else it closes each connection, and the delivery fails.
    is_up: AtomicBool,
    received: Mutex<Vec<Received>>,
}

impl Receiver {
    /// Start a receiver that is up or down.
    pub fn start(is_up: bool) -> Arc<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Arc::new(Receiver {
            port: listener.local_addr().expect("an address").port(),
            is_up: AtomicBool::new(is_up),
            received: Mutex::default(),
        });
        let of_thread = Arc::clone(&receiver);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.is_up.load(Ordering::SeqCst) {
                    // A host that dies leaves half a request, which is an error here.
                    let _ = of_thread.receive(stream);
                }
            }
        });
        receiver
    }

    /// Answer the connections that begin from now on.
    pub fn bring_up(&self) {
        if !self.is_up.load(Ordering::SeqCst) {
            // Connections are accepted in their order: once this one is closed, those of a dead host are.
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("a connection");
            assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
            self.is_up.store(true, Ordering::SeqCst);
        }
    }

    /// Return the requests, in their order.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no reader panics").clone()
    }

    fn receive(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            match line.trim().split_once(": ") {
                Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
                None if line.trim().is_empty() => break,
                None => None,
            };
        }
        let length = headers.get("content-length");
        let mut body = vec![0; length.and_then(|text| text.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8_lossy(&body).into_owned();
        let mut received = self.received.lock().expect("no reader panics");
        received.push(Received { headers, body });
        drop(received);
        stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
    }
}
