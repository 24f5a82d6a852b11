//! The records of a TLS 1.3 connection once its handshake is over (RFC 8446, section 5), opened where they lie.
//!
//! # The problem
//! rustls copies each byte that comes three times: into its buffer, into a vector for each record, and out. Of a write of 128 KiB by TLS
//! that is a third of a node's processor time.
//!
//! # The rule
//! rustls does the handshake and every cipher; it hands its keys out, for programs that move records themselves
//! (`rustls::kernel`). A record is opened in the buffer that the socket filled, and its plaintext lies there. Keys change as the
//! other side asks ([section 4.6.3]), and before so many records are sealed with one key that it would show (section 5.5).
//!
//! Example: 131,100 bytes of a client's write come as eight records of 16,406 bytes. Each is opened in its place. Its 16,384 bytes are copied once,
//! into the memory of the command, where they were not [received there](super::landing).
//!
//! # Its guarantee
//! A record is opened once, in order, with the number that it has ([section 5.3]); whatever is not what the other side sealed is an error, and
//! nothing behind it is opened. Answers to changed keys are one for any number of questions, so they take no room.
//!
//! # Its price
//! Framing is ours: the record's header, its kinds, key updates and alerts. Its tests and the fuzzer `tls_records` hold it against rustls' own.
//!
//! [section 4.6.3]: https://www.rfc-editor.org/rfc/rfc8446#section-4.6.3
//! [section 5.3]: https://www.rfc-editor.org/rfc/rfc8446#section-5.3

use henge_io::kernel_tls::{Cipher, Keys};
use rustls::client::ClientConnectionData;
use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundChunks,
    OutboundPlainMessage,
};
use rustls::crypto::tls13::OkmBlock;
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::ServerConnectionData;
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, Error, ExtractedSecrets, InvalidMessage,
    PeerMisbehaved, ProtocolVersion, Tls13CipherSuite,
};
use std::collections::VecDeque;

/// Bytes of a record's header.
pub(crate) const HEADER: usize = 5;
/// Most bytes behind it: a fragment, its kind and padding, and the tag.
pub(crate) const LARGEST: usize = FRAGMENT + 256;
/// Most bytes of data in a record.
pub(crate) const FRAGMENT: usize = 1 << 14;
/// Most bytes of a message of the handshake's kind: a session ticket, at most.
const MESSAGE: usize = 1 << 16;

const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// What was in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opened {
    /// Data: the bytes `from..to` of the record are plain now.
    Data { from: usize, to: usize },
    /// Something for the records themselves.
    Own,
    /// That nothing more comes.
    End,
}

/// Both directions of a connection.
pub(crate) struct Records {
    suite: &'static Tls13CipherSuite,
    /// Most records that are sealed with one key (section 5.5).
    pub(crate) most: u64,
    kernel: Kernel,
    opens: Opens,
    pub(crate) seals: Seals,
    /// The beginning of a message about the connection itself.
    begun: Vec<u8>,
    /// Whether the other side has asked for new keys of ours.
    owes: bool,
    theirs: Vec<CertificateDer<'static>>,
    exporter: OkmBlock,
}

struct Opens {
    key: Box<dyn MessageDecrypter>,
    number: u64,
}

pub(crate) struct Seals {
    by: By,
    /// Of the next record.
    pub(crate) number: u64,
}

/// Who seals.
enum By {
    /// We do. The same key is kept for a kernel that may take over, as long as it is the first.
    Us(Box<dyn MessageEncrypter>, Option<Keys>),
    /// The socket's kernel, which is told what is no data.
    Kernel(VecDeque<Order>),
}

/// What a kernel that seals is told, each after all that was written before.
#[derive(Debug)]
pub enum Order {
    /// To send a record of this kind.
    Record(u8, Vec<u8>),
    /// To take these keys for what follows.
    Keys(Keys),
}

/// Where rustls makes the keys that follow.
pub(crate) enum Kernel {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl From<KernelConnection<ServerConnectionData>> for Kernel {
    fn from(kernel: KernelConnection<ServerConnectionData>) -> Kernel {
        Kernel::Server(kernel)
    }
}

impl From<KernelConnection<ClientConnectionData>> for Kernel {
    fn from(kernel: KernelConnection<ClientConnectionData>) -> Kernel {
        Kernel::Client(kernel)
    }
}

impl Records {
    pub(crate) fn new(
        secrets: ExtractedSecrets,
        kernel: Kernel,
        theirs: Vec<CertificateDer<'static>>,
        exporter: OkmBlock,
    ) -> Result<Records, Error> {
        let suite = match &kernel {
            Kernel::Server(kernel) => kernel.negotiated_cipher_suite(),
            Kernel::Client(kernel) => kernel.negotiated_cipher_suite(),
        };
        let suite = suite.tls13().ok_or_else(|| Error::General("TLS 1.3 was not agreed on".into()))?;
        let opens = Opens::new(suite, secrets.rx)?;
        let seals = Seals::new(suite, secrets.tx)?;
        let most = suite.common.confidentiality_limit;
        Ok(Records { suite, most, kernel, opens, seals, begun: Vec::new(), owes: false, theirs, exporter })
    }

    /// The certificates that the other side has shown, its own first.
    pub(crate) fn theirs(&self) -> &[CertificateDer<'static>] {
        &self.theirs
    }

    /// Opens a record, which is whole (`record_len`). After an error no other one can be.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<Opened, Error> {
        let Some((header, sealed)) = record.split_first_chunk_mut::<HEADER>() else {
            return Err(InvalidMessage::MessageTooShort.into());
        };
        Ok(match self.open_apart(header, sealed)? {
            Opened::Data { from, to } => Opened::Data { from: HEADER + from, to: HEADER + to },
            other => other,
        })
    }

    /// The same where the header is not in front of the rest, in which the data is then.
    pub(crate) fn open_apart(&mut self, header: &[u8; HEADER], sealed: &mut [u8]) -> Result<Opened, Error> {
        let begin = sealed.as_ptr().addr();
        if header[0] != u8::from(ContentType::ApplicationData) {
            return Err(unexpected(ContentType::from(header[0])));
        }
        if usize::from(u16::from_be_bytes([header[3], header[4]])) != sealed.len() || sealed.len() > LARGEST {
            return Err(Error::PeerSentOversizedRecord);
        }
        let message =
            InboundOpaqueMessage::new(ContentType::ApplicationData, ProtocolVersion::TLSv1_2, &mut *sealed);
        let plain = self.opens.key.decrypt(message, self.opens.number)?;
        self.opens.number += 1;
        let from = plain.payload.as_ptr().addr() - begin;
        let to = from + plain.payload.len();
        let kind = plain.typ;
        match kind {
            ContentType::Handshake => {}
            // Its pieces come one behind the other.
            _ if !self.begun.is_empty() => return Err(unexpected(kind)),
            ContentType::ApplicationData => return Ok(Opened::Data { from, to }),
            ContentType::Alert => return alert(plain.payload),
            _ => return Err(unexpected(kind)),
        }
        let payload = &sealed[from..to];
        if payload.is_empty() || self.begun.len() + payload.len() > MESSAGE {
            return Err(unexpected(kind));
        }
        self.begun.extend_from_slice(payload);
        self.messages()?;
        Ok(Opened::Own)
    }

    /// Acts on messages that are whole.
    fn messages(&mut self) -> Result<(), Error> {
        while let Some(&[kind, a, b, c]) = self.begun.first_chunk::<4>() {
            let end = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
            if end > MESSAGE {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let Some(body) = self.begun.get(4..end) else { return Ok(()) };
            match (kind, body, &mut self.kernel) {
                (KEY_UPDATE, &[asks @ (0 | 1)], kernel) => {
                    if self.begun.len() > end {
                        return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                    }
                    let secrets = match kernel {
                        Kernel::Server(kernel) => kernel.update_rx_secret(),
                        Kernel::Client(kernel) => kernel.update_rx_secret(),
                    }?;
                    self.opens = Opens::new(self.suite, secrets)?;
                    self.owes |= asks == 1;
                }
                (KEY_UPDATE, ..) => return Err(InvalidMessage::InvalidKeyUpdate.into()),
                (NEW_SESSION_TICKET, body, Kernel::Client(kernel)) => {
                    kernel.handle_new_session_ticket(body)?
                }
                _ => return Err(unexpected(ContentType::Handshake)),
            }
            self.begun.drain(..end);
        }
        Ok(())
    }

    /// Whether the other side waits for keys of ours: [`Records::seal`] says them before anything else.
    pub(crate) fn owes(&self) -> bool {
        self.owes
    }

    /// Keys by which a kernel can seal what follows, as far as it has not been told of others.
    pub(crate) fn keys(&mut self) -> Option<Keys> {
        let By::Us(_, keys) = &mut self.seals.by else { return None };
        let mut keys = keys.take()?;
        keys.number = self.seals.number;
        Some(keys)
    }

    /// A kernel has taken these keys.
    pub(crate) fn hand_over(&mut self) {
        self.seals.by = By::Kernel(VecDeque::new());
    }

    /// The orders for the kernel, if one seals.
    pub(crate) fn orders(&mut self) -> Option<&mut VecDeque<Order>> {
        match &mut self.seals.by {
            By::Us(..) => None,
            By::Kernel(orders) => Some(orders),
        }
    }

    /// Whether a kernel seals, and has orders to be told.
    pub(crate) fn has_orders(&self) -> bool {
        matches!(&self.seals.by, By::Kernel(orders) if !orders.is_empty())
    }

    /// The kernel is to seal so many records more: new keys come first where the ones that it has must not be used for as many.
    pub(crate) fn make_room(&mut self, records: u64) -> Result<(), Error> {
        if self.seals.number.saturating_add(records).saturating_add(1) >= self.most {
            self.renew(&mut VecDeque::new())?;
        }
        Ok(())
    }

    /// Seals data, as a record for each 16 KiB of it at most, behind what else is due; puts the records into `out`.
    pub(crate) fn seal(
        &mut self,
        data: &OutboundChunks<'_>,
        out: &mut VecDeque<Vec<u8>>,
    ) -> Result<(), Error> {
        if self.owes {
            self.owes = false;
            self.renew(out)?;
        }
        let mut at = 0;
        while at < data.len() {
            if self.seals.number.saturating_add(1) >= self.most {
                self.renew(out)?;
            }
            let end = data.len().min(at + FRAGMENT);
            let fragment = data.split_at(end).0.split_at(at).1;
            self.seals.put(ContentType::ApplicationData, fragment, out)?;
            at = end;
        }
        Ok(())
    }

    /// Tells of new keys by the old ones, and takes them.
    pub(crate) fn renew(&mut self, out: &mut VecDeque<Vec<u8>>) -> Result<(), Error> {
        self.seals.put(ContentType::Handshake, OutboundChunks::Single(&[KEY_UPDATE, 0, 0, 1, 0]), out)?;
        let secrets = match &mut self.kernel {
            Kernel::Server(kernel) => kernel.update_tx_secret(),
            Kernel::Client(kernel) => kernel.update_tx_secret(),
        }?;
        self.seals.renew(self.suite, secrets)
    }

    /// The last record: why it ends, or that all is said.
    pub(crate) fn close(&mut self, why: Option<&Error>, out: &mut VecDeque<Vec<u8>>) -> Result<(), Error> {
        let (level, description) = match why {
            None => (WARNING, AlertDescription::CloseNotify),
            Some(Error::DecryptError) => (FATAL, AlertDescription::BadRecordMac),
            Some(Error::PeerSentOversizedRecord) => (FATAL, AlertDescription::RecordOverflow),
            Some(Error::InvalidCertificate(why)) => (FATAL, why.clone().into()),
            Some(Error::InvalidMessage(_)) => (FATAL, AlertDescription::DecodeError),
            Some(_) => (FATAL, AlertDescription::UnexpectedMessage),
        };
        self.seals.put(ContentType::Alert, OutboundChunks::Single(&[level, description.into()]), out)
    }

    /// Bytes that both ends know, and nobody else (section 7.5), for a use that `label` names.
    pub(crate) fn exported(&self, label: &[u8]) -> Option<[u8; 32]> {
        let (hkdf, hash) = (self.suite.hkdf_provider, self.suite.common.hash_provider);
        let empty = hash.hash(&[]);
        let expand = |secret: &OkmBlock, label: &[u8], len: usize| {
            let mut bytes = [0; OkmBlock::MAX_LEN];
            let bytes = bytes.get_mut(..len)?;
            let named = u8::try_from(LABEL.len() + label.len()).ok()?;
            let context = u8::try_from(empty.as_ref().len()).ok()?;
            let len = u16::try_from(len).ok()?.to_be_bytes();
            let info: [&[u8]; 6] = [&len, &[named], LABEL, label, &[context], empty.as_ref()];
            hkdf.expander_for_okm(secret).expand_slice(&info, bytes).ok()?;
            Some(OkmBlock::new(bytes))
        };
        const LABEL: &[u8] = b"tls13 ";
        let secret = expand(&self.exporter, label, hash.output_len())?;
        expand(&secret, b"exporter", 32)?.as_ref().try_into().ok()
    }
}

impl Opens {
    fn new(
        suite: &Tls13CipherSuite,
        (number, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Opens, Error> {
        let (key, iv) = key_of(secrets)?;
        Ok(Opens { key: suite.aead_alg.decrypter(key, iv), number })
    }
}

impl Seals {
    pub(crate) fn new(
        suite: &Tls13CipherSuite,
        (number, secrets): (u64, ConnectionTrafficSecrets),
    ) -> Result<Seals, Error> {
        let keys = keys_of(&secrets, number);
        let (key, iv) = key_of(secrets)?;
        Ok(Seals { by: By::Us(suite.aead_alg.encrypter(key, iv), keys), number })
    }

    /// From here on it seals with these.
    fn renew(
        &mut self,
        suite: &Tls13CipherSuite,
        next: (u64, ConnectionTrafficSecrets),
    ) -> Result<(), Error> {
        let number = next.0;
        match &mut self.by {
            By::Us(..) => {
                let (key, iv) = key_of(next.1)?;
                self.by = By::Us(suite.aead_alg.encrypter(key, iv), None);
            }
            By::Kernel(orders) => {
                let keys = keys_of(&next.1, number).ok_or_else(unknown_cipher)?;
                orders.push_back(Order::Keys(keys));
            }
        }
        self.number = number;
        Ok(())
    }

    pub(crate) fn put(
        &mut self,
        typ: ContentType,
        payload: OutboundChunks<'_>,
        out: &mut VecDeque<Vec<u8>>,
    ) -> Result<(), Error> {
        match &mut self.by {
            By::Us(key, _) => {
                let message = OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload };
                out.push_back(key.encrypt(message, self.number)?.encode());
            }
            By::Kernel(orders) => orders.push_back(Order::Record(typ.into(), payload.to_vec())),
        }
        self.number += 1;
        Ok(())
    }
}

fn alert(payload: &[u8]) -> Result<Opened, Error> {
    match *payload {
        [_, description] => match AlertDescription::from(description) {
            AlertDescription::CloseNotify => Ok(Opened::End),
            why => Err(Error::AlertReceived(why)),
        },
        _ => Err(InvalidMessage::TrailingData("Alert").into()),
    }
}

fn unexpected(got_type: ContentType) -> Error {
    Error::InappropriateMessage { expect_types: vec![ContentType::ApplicationData], got_type }
}

/// The key and the first nonce of a direction, whichever cipher they are for.
fn key_of(secrets: ConnectionTrafficSecrets) -> Result<(AeadKey, Iv), Error> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    match secrets {
        Aes128Gcm { key, iv } | Aes256Gcm { key, iv } | Chacha20Poly1305 { key, iv } => Ok((key, iv)),
        _ => Err(unknown_cipher()),
    }
}

fn unknown_cipher() -> Error {
    Error::General("a cipher that nobody knows here".into())
}

/// The same in the kernel's words.
fn keys_of(secrets: &ConnectionTrafficSecrets, number: u64) -> Option<Keys> {
    use ConnectionTrafficSecrets::{Aes128Gcm, Aes256Gcm, Chacha20Poly1305};
    let (cipher, key, iv) = match secrets {
        Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        Chacha20Poly1305 { key, iv } => (Cipher::Chacha20Poly1305, key, iv),
        _ => return None,
    };
    Keys::new(cipher, key.as_ref(), iv.as_ref().try_into().ok()?, number)
}
