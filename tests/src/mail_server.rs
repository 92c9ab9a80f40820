//! A small mail server.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The user and the password that the server accepts.
pub const MAIL_USER: &str = "campanile";
pub const MAIL_PASSWORD: &str = "hunter2-hunter2";

/// How a connection to the server is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    None,
    StartTls,
    Tls,
}

/// A mail that the server has accepted.
#[derive(Clone, Debug)]
pub struct ReceivedMail {
    pub is_encrypted: bool,
    pub user: Option<String>,
    pub to: Vec<String>,
    /// Headers and body, as they were sent.
    pub data: String,
}

impl ReceivedMail {
    /// Return the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.data.lines().take_while(|line| !line.is_empty());
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// A mail server on this machine. It refuses a receiver `nobody@…`.
pub struct MailServer {
    pub port: u16,
    /// The certificate, in PEM.
    pub certificate: String,
    mails: Arc<Mutex<Vec<ReceivedMail>>>,
}

impl MailServer {
    /// Start a server that has no time for the first `busy` mails.
    ///
    /// # Panics
    ///
    /// When it gets no port.
    pub fn start(encryption: Encryption, busy: usize) -> MailServer {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .expect("a configuration of TLS");
        let config = Arc::new(config);
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let mails: Arc<Mutex<Vec<ReceivedMail>>> = Arc::default();
        let received = Arc::clone(&mails);
        std::thread::spawn(move || {
            let mut session = Session {
                busy,
                received,
                is_encrypted: false,
                user: None,
            };
            for stream in listener.incoming().map_while(Result::ok) {
                // A client that does not trust the certificate goes away.
                let _ = session.serve(stream, encryption, &config);
            }
        });
        MailServer {
            port,
            certificate: cert.pem(),
            mails,
        }
    }

    /// Return the mails so far.
    pub fn mails(&self) -> Vec<ReceivedMail> {
        let mails = self.mails.lock().unwrap_or_else(PoisonError::into_inner);
        mails.clone()
    }
}

struct Session {
    busy: usize,
    received: Arc<Mutex<Vec<ReceivedMail>>>,
    is_encrypted: bool,
    user: Option<String>,
}

impl Session {
    fn serve(
        &mut self,
        mut stream: TcpStream,
        encryption: Encryption,
        config: &Arc<ServerConfig>,
    ) -> io::Result<()> {
        self.user = None;
        self.is_encrypted = encryption == Encryption::Tls;
        if encryption != Encryption::Tls {
            stream.write_all(b"220 test ESMTP\r\n")?;
            let offers_tls = encryption == Encryption::StartTls;
            if !self.converse(&mut stream, offers_tls)? {
                return Ok(());
            }
            self.is_encrypted = true;
        }
        let tls = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(tls, stream);
        if encryption == Encryption::Tls {
            stream.write_all(b"220 test ESMTP\r\n")?;
        }
        self.converse(&mut stream, false).map(drop)
    }

    /// Answer commands. Return true when the client begins to encrypt.
    fn converse(&mut self, stream: &mut (impl Read + Write), offers_tls: bool) -> io::Result<bool> {
        let mut to = Vec::new();
        loop {
            let line = read_until(stream, "\r\n")?;
            let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let answer = match command.to_ascii_uppercase().as_str() {
                "EHLO" if offers_tls => "250-test\r\n250 STARTTLS".to_owned(),
                "EHLO" => "250-test\r\n250 AUTH PLAIN".to_owned(),
                "STARTTLS" if offers_tls => {
                    stream.write_all(b"220 go on\r\n")?;
                    return Ok(true);
                }
                "AUTH" => self.login(rest),
                "MAIL" if offers_tls => "530 encrypt first".to_owned(),
                "MAIL" => "250 ok".to_owned(),
                "RCPT" if rest.contains("nobody@") => "550 there is no such person".to_owned(),
                "RCPT" => {
                    to.push(
                        rest.trim_start_matches("TO:")
                            .trim_matches(['<', '>'])
                            .to_owned(),
                    );
                    "250 ok".to_owned()
                }
                "DATA" => {
                    stream.write_all(b"354 send it\r\n")?;
                    let data = read_until(stream, "\r\n.\r\n")?;
                    self.receive(std::mem::take(&mut to), data)
                }
                "QUIT" => {
                    stream.write_all(b"221 bye\r\n")?;
                    return Ok(false);
                }
                _ => "502 what?".to_owned(),
            };
            stream.write_all(format!("{answer}\r\n").as_bytes())?;
        }
    }

    fn login(&mut self, given: &str) -> String {
        let given = given.strip_prefix("PLAIN ").unwrap_or_default();
        let given = STANDARD.decode(given).unwrap_or_default();
        let expected = format!("\0{MAIL_USER}\0{MAIL_PASSWORD}");
        if given != expected.as_bytes() {
            let given = String::from_utf8_lossy(&given).replace('\0', " ");
            return format!("535 not you:{given}");
        }
        self.user = Some(MAIL_USER.to_owned());
        "235 welcome".to_owned()
    }

    fn receive(&mut self, to: Vec<String>, data: String) -> String {
        if self.busy > 0 {
            self.busy -= 1;
            return "451 later".to_owned();
        }
        let mail = ReceivedMail {
            is_encrypted: self.is_encrypted,
            user: self.user.clone(),
            to,
            data,
        };
        let mut mails = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        mails.push(mail);
        "250 accepted".to_owned()
    }
}

/// Read to `end`, and return what is before it.
fn read_until(stream: &mut impl Read, end: &str) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    bytes.truncate(bytes.len() - end.len());
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
