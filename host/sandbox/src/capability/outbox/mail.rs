//! The delivery of an e-mail of the host, with the guard of tasks' requests.
//!
//! A connection is encrypted from its beginning (`smtps`), or by STARTTLS before anything else is said (`smtp`). Only a mail
//! server on this machine may do without. STARTTLS is spoken here, byte by byte, so that nothing that came before the
//! encryption is read as if it were encrypted.

use std::fmt;
use std::io::{self, Cursor};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use campanile_model::clock::Timestamp;
use campanile_model::ids::MessageId;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::extension::ClientId;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::capability::http::connect::{connect_unencrypted, encrypt};
use crate::capability::http::destination::Destination;
use crate::capability::network::reach::Reach;
use crate::capability::outbox::deliver::{Delivered, DeliveryCall, in_time, shared};
use crate::capability::outbox::target::mail_server;
use crate::capability::shared::Shared;
use crate::grants::Secret;
use crate::run::redaction::Redaction;

/// How this host names itself to a mail server. Its own name is often not one that others know.
const HELLO: ClientId = ClientId::Ipv4(Ipv4Addr::LOCALHOST);
/// The most bytes of one answer before the connection is encrypted.
const REPLY_BYTES_MAX: usize = 4 << 10;

/// An e-mail.
#[derive(Clone, Debug)]
pub struct Mail {
    /// The same at each delivery: the mail has it as its `Message-ID`.
    pub id: MessageId,
    /// The address of the mail server.
    pub server: String,
    pub from: String,
    pub to: Vec<String>,
    pub subject: String,
    pub text: String,
    /// When the mail was written.
    pub at: Timestamp,
    pub login: Option<MailLogin>,
}

/// What this host proves to a mail server.
#[derive(Clone, Debug)]
pub struct MailLogin {
    pub user: String,
    pub password: Secret,
}

/// Why a mail was not accepted.
enum Refused {
    /// The server said so.
    Smtp(Error),
    /// A clause.
    Other(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Smtp(error)
    }
}

/// Check an address of a person or program, such as `ops@example.com`, or `Operators <ops@example.com>`.
///
/// # Errors
/// A clause.
pub fn check_mailbox(text: &str) -> Result<(), String> {
    mailbox(text).map(drop)
}

fn mailbox(text: &str) -> Result<Mailbox, String> {
    text.parse().map_err(|_| {
        format!("is {text:?}, which is no address such as \"ops@example.com\" or \"Operators <ops@example.com>\"")
    })
}

/// Deliver `mail` once.
pub async fn deliver_mail(mail: &Mail, call: DeliveryCall) -> Delivered {
    let message = match message(mail) {
        Ok(message) => message,
        Err(why) => return Delivered::Failed(why),
    };
    let Some(server) = mail_server(&mail.server) else {
        return Delivered::Failed("the address is none of a mail server".to_owned());
    };
    let Some(reach) = server.reach(&call.grants.http) else {
        return Delivered::Failed(server.refusal());
    };
    let redaction = Redaction::of(&call.secrets);
    let wait_max = call.wait_max;
    let shared = shared(call);
    let sending = async {
        match send(mail, &message, (&server, reach), &shared).await {
            Ok(()) => answered(250, String::new()),
            Err(Refused::Smtp(error)) => {
                // A server may repeat what it got.
                let mut text = error.to_string();
                redaction.text(&mut text);
                match error.status() {
                    Some(code) => answered(code.into(), text),
                    None => Delivered::Failed(text),
                }
            }
            Err(Refused::Other(why)) => Delivered::Failed(why),
        }
    };
    in_time(wait_max, sending).await
}

fn answered(status: u16, text: String) -> Delivered {
    Delivered::Answered {
        status,
        text,
        retry_after: None,
    }
}

fn message(mail: &Mail) -> Result<Message, String> {
    let from = mailbox(&mail.from).map_err(|what| format!("the sender {what}"))?;
    let domain = from.email.domain();
    let at = u64::try_from(mail.at.micros()).unwrap_or(0);
    let mut builder = Message::builder()
        .message_id(Some(format!("<{}@{domain}>", mail.id)))
        .date(SystemTime::UNIX_EPOCH + Duration::from_micros(at))
        .subject(mail.subject.as_str())
        // Programs that answer mails by themselves leave this one alone.
        .raw_header(HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".to_owned(),
        ))
        .header(ContentType::TEXT_PLAIN)
        .from(from);
    for to in &mail.to {
        builder = builder.to(mailbox(to).map_err(|what| format!("the receiver {what}"))?);
    }
    let message = builder.body(mail.text.clone());
    message.map_err(|error| format!("the mail cannot be written: {error}"))
}

async fn send(
    mail: &Mail,
    message: &Message,
    (server, reach): (&Destination, Reach),
    shared: &Shared,
) -> Result<(), Refused> {
    let stream = connect(server, reach, shared).await;
    let stream = stream.map_err(Refused::Other)?;
    let mut server = AsyncSmtpConnection::connect_with_transport(Box::new(stream), &HELLO).await?;
    if let Some(MailLogin { user, password }) = &mail.login {
        let credentials = Credentials::new(user.clone(), password.reveal().to_owned());
        let mechanisms = [Mechanism::Plain, Mechanism::Login];
        server.auth(&mechanisms, &credentials).await?;
    }
    server
        .send(message.envelope(), &message.formatted())
        .await?;
    // The server has the mail.
    let _ = server.quit().await;
    Ok(())
}

/// Connect to a mail server. The error is a clause.
async fn connect(
    server: &Destination,
    reach: Reach,
    shared: &Shared,
) -> Result<MailStream, String> {
    let failed = |error| {
        // A refusal of an address says what it leads to.
        let denied = shared.denied().map(str::to_owned);
        denied.unwrap_or_else(|| format!("no answer: {error}"))
    };
    let mut stream = connect_unencrypted(server, reach, shared)
        .await
        .map_err(failed)?;
    let peer = stream
        .stream
        .peer_addr()
        .map_err(|error| error.to_string())?;
    if server.scheme == "smtps" {
        let stream = encrypt(stream, server, &[]).await.map_err(failed)?;
        return Ok(MailStream::new(Vec::new(), stream, peer));
    }
    let greeting = reply(&mut stream, "220").await?;
    say(&mut stream, &format!("EHLO {HELLO}\r\n")).await?;
    let extensions = reply(&mut stream, "250").await?;
    let mut extensions = extensions.lines();
    let offers_tls = extensions.any(|line| {
        let name = line.get(4..).unwrap_or_default();
        name.trim().eq_ignore_ascii_case("STARTTLS")
    });
    if offers_tls {
        say(&mut stream, "STARTTLS\r\n").await?;
        reply(&mut stream, "220").await?;
        let stream = encrypt(stream, server, &[]).await.map_err(failed)?;
        return Ok(MailStream::new(greeting.into_bytes(), stream, peer));
    }
    if peer.ip().to_canonical().is_loopback() {
        Ok(MailStream::new(greeting.into_bytes(), stream, peer))
    } else {
        Err("the mail server offers no STARTTLS, so the mail would not be encrypted: use an address such as \"smtps://smtp.example.com\", or another server".to_owned())
    }
}

async fn say(stream: &mut (impl AsyncWrite + Unpin), line: &str) -> Result<(), String> {
    let sent = stream.write_all(line.as_bytes()).await;
    sent.map_err(|error| format!("no answer: {error}"))
}

/// Read one answer, with all its lines and nothing after them. `code` is the one that is expected.
async fn reply(stream: &mut (impl AsyncRead + Unpin), code: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    let mut line = 0;
    loop {
        if bytes.len() >= REPLY_BYTES_MAX {
            return Err(format!(
                "the mail server answers with more than {REPLY_BYTES_MAX} bytes"
            ));
        }
        let byte = stream.read_u8().await;
        bytes.push(byte.map_err(|error| format!("no answer: {error}"))?);
        if !bytes.ends_with(b"\r\n") {
            continue;
        }
        // The last line has a space after its code.
        if bytes.get(line + 3) != Some(&b'-') {
            break;
        }
        line = bytes.len();
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    if text.starts_with(code) {
        Ok(text)
    } else {
        Err(format!("the mail server answered {}", text.trim_end()))
    }
}

/// The bytes of a connection, encrypted or not.
trait Bytes: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Bytes for T {}

/// A connection that repeats the greeting of its server, which was read before it was encrypted.
struct MailStream {
    greeting: Cursor<Vec<u8>>,
    stream: Box<dyn Bytes>,
    peer: SocketAddr,
}

impl MailStream {
    fn new(greeting: Vec<u8>, stream: impl Bytes + 'static, peer: SocketAddr) -> MailStream {
        MailStream {
            greeting: Cursor::new(greeting),
            stream: Box::new(stream),
            peer,
        }
    }
}

impl fmt::Debug for MailStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MailStream({})", self.peer)
    }
}

impl AsyncTokioStream for MailStream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl AsyncRead for MailStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = io::Read::read(&mut self.greeting, buffer.initialize_unfilled())?;
        if read > 0 {
            buffer.advance(read);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MailStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_is_the_same_at_each_delivery_and_has_no_line_of_its_subject_as_a_header() {
        let mail = Mail {
            id: MessageId::FIRST,
            server: String::new(),
            from: "Campanile <campanile@example.com>".to_owned(),
            to: vec!["a@example.com".to_owned(), "b@example.com".to_owned()],
            subject: "Campanile\r\nBcc: c@example.com".to_owned(),
            text: "größer\n.\nend".to_owned(),
            at: Timestamp::from_micros(1_800_000_000_000_000),
            login: None,
        };
        let text = String::from_utf8(message(&mail).unwrap().formatted()).unwrap();
        assert_eq!(message(&mail).unwrap().formatted(), text.as_bytes());
        let line = |start: &str| text.lines().find(|line| line.starts_with(start));
        assert!(
            line("Message-ID: <").unwrap().ends_with("@example.com>"),
            "{text}"
        );
        assert_eq!(
            line("Date: "),
            Some("Date: Fri, 15 Jan 2027 08:00:00 +0000")
        );
        assert_eq!(line("To: "), Some("To: a@example.com, b@example.com"));
        assert_eq!(line("Bcc: "), None);
        assert!(text.is_ascii(), "{text}");
    }

    #[tokio::test]
    async fn an_answer_is_read_to_its_end_and_no_further() {
        let read = async |text: &'static str, code: &str| {
            let mut stream = text.as_bytes();
            (reply(&mut stream, code).await, stream.len())
        };
        let (text, rest) = read("250-a\r\n250 STARTTLS\r\nmore", "250").await;
        assert_eq!(
            (text.as_deref(), rest),
            (Ok("250-a\r\n250 STARTTLS\r\n"), 4)
        );
        let (refused, _) = read("554 go away\r\n", "220").await;
        assert_eq!(
            refused,
            Err("the mail server answered 554 go away".to_owned())
        );
        assert!(read("220 no end", "220").await.0.is_err());
        let endless = "250-x\r\n".repeat(REPLY_BYTES_MAX);
        let mut stream = endless.as_bytes();
        assert!(
            reply(&mut stream, "250")
                .await
                .unwrap_err()
                .contains("more than")
        );
    }

    #[test]
    fn an_address_is_one_of_a_person_or_a_program() {
        assert!(check_mailbox("ops@example.com").is_ok());
        assert!(check_mailbox("Operators <ops@example.com>").is_ok());
        for wrong in [
            "",
            "ops",
            "ops@",
            "a@example.com, b@example.com",
            "a@b\r\nX: y",
        ] {
            assert!(check_mailbox(wrong).is_err(), "{wrong}");
        }
    }
}
