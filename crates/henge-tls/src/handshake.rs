//! A TLS 1.3 handshake in the caller's buffers (RFC 8446, section 4), by rustls; its records after that are [`Records`].
//!
//! Who drives it gives it bytes as they come, whole records of them ([`record_len`]), and sends what it puts into the queue.
//! Example: a server gets the client's hello, 200 bytes. [`Handshake::step`] takes them all and queues its own messages. The client's
//! last message ends the handshake; then [`Handshake::end`] gives the keys, and the first byte of data is still in the caller's buffer.

use crate::records::{HEADER, LARGEST, Records};
use rustls::client::UnbufferedClientConnection;
use rustls::crypto::tls13::OkmBlock;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, Error, KeyLog, ServerConfig};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// What rustls calls the secret that [`Records::exported`] is made of.
const EXPORTER: &str = "EXPORTER_SECRET";

/// One side of a handshake.
pub struct Handshake {
    side: Side,
    exporter: Arc<Exporter>,
}

enum Side {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// How far a handshake came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Bytes of the input that are done with, from its beginning. The rest is to be given again, with more behind it.
    pub taken: usize,
    /// Whether it is over.
    pub over: bool,
}

impl Handshake {
    /// The side that is dialled.
    pub(crate) fn server(config: &ServerConfig) -> Result<Handshake, Error> {
        let exporter = Arc::new(Exporter::default());
        let key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let mut config = config.clone();
        (config.key_log, config.enable_secret_extraction) = (key_log, true);
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok(Handshake { side: Side::Server(Box::new(connection)), exporter })
    }

    /// The side that dials. [`Handshake::step`] without input queues its first message.
    pub(crate) fn client(config: &ClientConfig, name: ServerName<'static>) -> Result<Handshake, Error> {
        let exporter = Arc::new(Exporter::default());
        let key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let mut config = config.clone();
        (config.key_log, config.enable_secret_extraction) = (key_log, true);
        let connection = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Ok(Handshake { side: Side::Client(Box::new(connection)), exporter })
    }

    /// Takes whole records, and puts into `out` what is to be sent. After an error, too: the other side hears why.
    pub(crate) fn step(&mut self, input: &mut [u8], out: &mut VecDeque<Vec<u8>>) -> Result<Step, Error> {
        let mut taken = 0;
        loop {
            let rest = &mut input[taken..];
            let (discard, next) = match &mut self.side {
                Side::Server(connection) => act(connection.process_tls_records(rest), out),
                Side::Client(connection) => act(connection.process_tls_records(rest), out),
            };
            taken += discard;
            match next {
                Ok(None) => {}
                Ok(Some(over)) => return Ok(Step { taken, over }),
                Err(why) => {
                    self.last_words(&mut input[taken..], out);
                    return Err(why);
                }
            }
        }
    }

    /// The alert that tells the other side why it ends. `rest`: what was not taken, which rustls looks for where it was.
    fn last_words(&mut self, rest: &mut [u8], out: &mut VecDeque<Vec<u8>>) {
        let _ = match &mut self.side {
            Side::Server(connection) => act(connection.process_tls_records(rest), out),
            Side::Client(connection) => act(connection.process_tls_records(rest), out),
        };
    }

    /// The certificates that the other side has shown, its own first.
    fn theirs(&self) -> Vec<CertificateDer<'static>> {
        let state: &CommonState = match &self.side {
            Side::Server(connection) => connection,
            Side::Client(connection) => connection,
        };
        let chain = state.peer_certificates().unwrap_or_default();
        chain.iter().map(|certificate| certificate.clone().into_owned()).collect()
    }

    /// The records behind a handshake that is over.
    pub(crate) fn end(self) -> Result<Records, Error> {
        let theirs = self.theirs();
        let (secrets, kernel) = match self.side {
            Side::Server(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, kernel.into())
            }
            Side::Client(connection) => {
                let (secrets, kernel) = connection.dangerous_into_kernel_connection()?;
                (secrets, kernel.into())
            }
        };
        let exporter = self.exporter.0.get().cloned().ok_or(Error::HandshakeNotComplete)?;
        Records::new(secrets, kernel, theirs, exporter)
    }
}

/// What rustls asks for is done: how many bytes are to be discarded, and whether the handshake is over, if it can go on no further.
fn act<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut VecDeque<Vec<u8>>,
) -> (usize, Result<Option<bool>, Error>) {
    let next = match status.state {
        Err(why) => Err(why),
        Ok(ConnectionState::EncodeTlsData(mut message)) => {
            let mut record = Vec::new();
            if let Err(EncodeError::InsufficientSize(e)) = message.encode(&mut record) {
                record.resize(e.required_size, 0);
            }
            message
                .encode(&mut record)
                .map(|_| out.push_back(record))
                .map_err(|e| Error::General(e.to_string()))
                .map(|()| None)
        }
        Ok(ConnectionState::TransmitTlsData(state)) => {
            state.done();
            Ok(None)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Some(false)),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Some(true)),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Err(Error::HandshakeNotComplete),
        // No record behind the handshake's last one is ever given to it.
        Ok(_) => Err(Error::General("data before the end of the handshake".into())),
    };
    (status.discard, next)
}

/// Keeps the secret that keys for others are made of, of all that rustls would log.
#[derive(Default)]
struct Exporter(OnceLock<OkmBlock>);

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exporter")
    }
}

impl KeyLog for Exporter {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        if label == EXPORTER {
            let _ = self.0.set(OkmBlock::new(secret));
        }
    }
    fn will_log(&self, label: &str) -> bool {
        label == EXPORTER
    }
}

/// Bytes of the record that begins here, as far as they have come; `None` while its header is not whole. A header that no record can have
/// counts alone: whoever takes it says what is wrong.
pub(crate) fn record_len(input: &[u8]) -> Option<usize> {
    let header = input.first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let possible = matches!(header[0], 20..=24) && len <= LARGEST;
    Some(if possible { HEADER + len } else { HEADER })
}
