//! A receiver of requests over HTTP, and of traces over OTLP/HTTP in the JSON form.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;

/// A request.
pub struct Request {
    /// The request line.
    pub line: String,
    /// The request line and the headers, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

/// Start a receiver that hands over each request. It answers the first ones with `answers`, a status line and headers
/// without its version, and the others with 200.
///
/// # Panics
///
/// When it gets no port.
pub fn receiver(answers: &'static [&'static str]) -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let answers = answers.iter().copied();
        let answers = answers.chain(std::iter::repeat("200 OK\r\n"));
        for (stream, answer) in listener.incoming().map_while(Result::ok).zip(answers) {
            receive(stream, answer, &sender).expect("a request");
        }
    });
    (port, received)
}

fn receive(mut stream: TcpStream, answer: &str, sender: &Sender<Request>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let line = head.lines().next().unwrap_or_default().to_owned();
    head.make_ascii_lowercase();
    let body = read_body(&mut reader, &head)?;
    // The test may have ended.
    let _ = sender.send(Request { line, head, body });
    let end = match answer.starts_with("204") {
        true => "connection: close\r\n\r\n",
        false => {
            "content-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
        }
    };
    stream.write_all(format!("HTTP/1.1 {answer}{end}").as_bytes())
}

/// Read a body to its end: a client may fail if the connection closes while it still sends.
fn read_body(reader: &mut impl BufRead, head: &str) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = u64::from_str_radix(size.trim_end(), 16).map_err(std::io::Error::other)?;
            reader.by_ref().take(size).read_to_end(&mut body)?;
            reader.read_line(&mut String::new())?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    body.resize(
        length.and_then(|length| length.parse().ok()).unwrap_or(0),
        0,
    );
    reader.read_exact(&mut body)?;
    Ok(body)
}

/// Return the spans of a request of OTLP.
///
/// # Panics
///
/// When it is none.
pub fn spans(request: &Request) -> Vec<Span> {
    let Request { head, body, .. } = request;
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(
        head.contains("\r\ncontent-type: application/json\r\n"),
        "{head}"
    );
    let request: ExportTraceServiceRequest =
        serde_json::from_slice(body).expect("a request of OTLP");
    let mut spans = Vec::new();
    for part in request.resource_spans {
        let resource = part.resource.expect("a resource");
        assert_eq!(resource.attributes[0].key, "service.name");
        spans.extend(part.scope_spans.into_iter().flat_map(|scope| scope.spans));
    }
    spans
}

/// Return the attribute of a span as text.
///
/// # Panics
///
/// When it is neither a text nor an integer.
pub fn attribute(span: &Span, key: &str) -> Option<String> {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == key)?;
    match found.value.clone()?.value? {
        any_value::Value::StringValue(text) => Some(text),
        any_value::Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    }
}
