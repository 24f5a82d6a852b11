//! TLS records that the kernel makes of what is written to a socket (tls(7), Linux's `Documentation/networking/tls.rst`).
//!
//! Once a socket has [keys](seal_by), whatever is written to it goes out as TLS 1.3 records of data. A record of another kind is
//! [named](send_record). What comes is not touched. Before Linux 6.14 a socket keeps its first key for ever. TLS 1.3 lets each end ask
//! the other for new ones (RFC 8446, section 4.6.3), so such a kernel [does not do](look).

#![allow(unsafe_code)] // neither std, rustix nor socket2 has these options

use rustix::io::{Errno, Result};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

/// The option by which a socket gets another protocol above TCP (tcp(7)).
const TCP_ULP: libc::c_int = 31;
/// Options of `linux/tls.h`.
const TLS_TX: libc::c_int = 1;
const TLS_SET_RECORD_TYPE: libc::c_int = 1;
const TLS_1_3: u16 = 0x0304;
/// Bytes of the longest form: version and cipher, nonce, key, and number.
const LONGEST: usize = 4 + 12 + Keys::LONGEST + 8;

/// What a direction of a connection is sealed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cipher {
    /// AES-GCM with a key of 128 bits.
    Aes128Gcm,
    /// AES-GCM with a key of 256 bits.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    Chacha20Poly1305,
}

/// What the kernel needs to seal what follows.
#[derive(Clone)]
pub struct Keys {
    cipher: Cipher,
    key: [u8; Keys::LONGEST],
    iv: [u8; 12],
    /// Of the next record.
    pub number: u64,
}

impl Keys {
    const LONGEST: usize = 32;

    /// `None` where the key is not as long as the cipher's are.
    pub fn new(cipher: Cipher, key: &[u8], iv: [u8; 12], number: u64) -> Option<Keys> {
        let mut kept = [0; Keys::LONGEST];
        let place = kept.get_mut(..cipher.key_len())?;
        if key.len() != place.len() {
            return None;
        }
        place.copy_from_slice(key);
        Some(Keys { cipher, key: kept, iv, number })
    }

    /// Which cipher they are for.
    pub fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// The key and the first nonce.
    pub fn secret(&self) -> (&[u8], [u8; 12]) {
        (&self.key[..self.cipher.key_len()], self.iv)
    }

    /// `struct tls12_crypto_info_…` of the cipher, which TLS 1.3 has, too: how many bytes of it count.
    fn info(&self) -> ([u8; LONGEST], usize) {
        let (mut bytes, mut len) = ([0; LONGEST], 0);
        let mut put = |piece: &[u8]| {
            bytes[len..len + piece.len()].copy_from_slice(piece);
            len += piece.len();
        };
        put(&TLS_1_3.to_ne_bytes());
        put(&self.cipher.number().to_ne_bytes());
        let (key, iv) = self.secret();
        match self.cipher {
            // Of AES-GCM's nonce the first four bytes are the salt, which is behind the key.
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => {
                put(&iv[4..]);
                put(key);
                put(&iv[..4]);
            }
            Cipher::Chacha20Poly1305 => {
                put(&iv);
                put(key);
            }
        }
        put(&self.number.to_be_bytes());
        (bytes, len)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.key = [0; Keys::LONGEST];
        // Who may look at it has the compiler leave it there.
        std::hint::black_box(&self.key);
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keys({:?})", self.cipher)
    }
}

impl Cipher {
    fn key_len(self) -> usize {
        match self {
            Cipher::Aes128Gcm => 16,
            Cipher::Aes256Gcm | Cipher::Chacha20Poly1305 => 32,
        }
    }

    /// `TLS_CIPHER_…`
    fn number(self) -> u16 {
        match self {
            Cipher::Aes128Gcm => 51,
            Cipher::Aes256Gcm => 52,
            Cipher::Chacha20Poly1305 => 54,
        }
    }
}

fn set(socket: impl AsFd, (level, option): (libc::c_int, libc::c_int), value: &[u8]) -> Result<()> {
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads as many bytes as there are; the descriptor is open as long as it is borrowed.
    let told = unsafe {
        libc::setsockopt(socket, level, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    if told == 0 { Ok(()) } else { Err(last()) }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

/// Lets the kernel have keys for this socket, which is a connected one of TCP. Until it has some, bytes go out as they are.
pub fn attach(socket: impl AsFd) -> Result<()> {
    set(socket, (libc::IPPROTO_TCP, TCP_ULP), b"tls")
}

/// From here on the kernel seals what is written to the socket, which is [attached](attach). New keys in the place of earlier ones hold
/// for what is written next.
pub fn seal_by(socket: impl AsFd, keys: &Keys) -> Result<()> {
    let (info, len) = keys.info();
    set(socket, (libc::SOL_TLS, TLS_TX), &info[..len])
}

/// Has the kernel send these bytes as a record of this kind, without waiting (RFC 8446, section 5.1).
pub fn send_record(socket: impl AsFd, kind: u8, bytes: &[u8]) -> Result<usize> {
    /// One control message, with the room that its alignment asks for.
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        kind: libc::size_t,
    }
    // SAFETY: all of these are numbers and pointers, for which zeroes are a value.
    let (mut control, mut message) =
        unsafe { (std::mem::zeroed::<Control>(), std::mem::zeroed::<libc::msghdr>()) };
    control.header.cmsg_level = libc::SOL_TLS;
    control.header.cmsg_type = TLS_SET_RECORD_TYPE;
    // SAFETY: it counts.
    control.header.cmsg_len = unsafe { libc::CMSG_LEN(1) } as _;
    control.kind = libc::size_t::from_ne_bytes(std::array::from_fn(|at| if at == 0 { kind } else { 0 }));
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the message names a control message and bytes that live until the call is over, and the kernel only reads them.
    let sent = unsafe {
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    usize::try_from(sent).map_err(|_| last())
}

/// Whether the kernel seals for this process, and takes new keys; if not, why. It is found out by a connection within this machine.
pub fn look() -> std::result::Result<(), String> {
    let no_connection = |e| format!("no connection within this machine: {e}");
    // While it lives, the connection does.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(no_connection)?;
    let socket = listener.local_addr().and_then(TcpStream::connect).map_err(no_connection)?;
    attach(&socket).map_err(|e| match e {
        Errno::NOENT => "the kernel's module is not loaded (`modprobe tls`, where the kernel has it)".into(),
        e => format!("the kernel has none: {e}"),
    })?;
    for byte in [1, 2] {
        let keys = Keys { cipher: Cipher::Aes128Gcm, key: [byte; Keys::LONGEST], iv: [byte; 12], number: 0 };
        seal_by(&socket, &keys).map_err(|e| match e {
            Errno::BUSY => "the kernel takes no new keys for a connection (Linux 6.14 and later do)".into(),
            e => format!("the kernel takes no keys: {e}"),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn keys_have_the_kernels_form() {
        let key: [u8; 32] = std::array::from_fn(|at| 100 + at as u8);
        let iv: [u8; 12] = std::array::from_fn(|at| 200 + at as u8);
        let head = |number: u16| [0x0304, number].map(u16::to_ne_bytes).concat();
        let number = [0, 0, 0, 0, 0, 0, 1, 2];
        for (cipher, kind, key) in [(Cipher::Aes128Gcm, 51, &key[..16]), (Cipher::Aes256Gcm, 52, &key[..])] {
            let (info, len) = Keys::new(cipher, key, iv, 258).unwrap().info();
            assert_eq!(info[..len], [&head(kind), &iv[4..], key, &iv[..4], &number].concat());
        }
        let (info, len) = Keys::new(Cipher::Chacha20Poly1305, &key, iv, 258).unwrap().info();
        assert_eq!(info[..len], [&head(54), &iv[..], &key, &number].concat());
        assert_eq!(len, size_of::<libc::tls12_crypto_info_chacha20_poly1305>());
        assert!(Keys::new(Cipher::Aes128Gcm, &key, iv, 0).is_none(), "a key that is too long");
    }

    #[test]
    fn a_kernel_that_seals_lets_no_plain_byte_through() {
        if let Err(why) = look() {
            println!("skipped: a_kernel_that_seals_lets_no_plain_byte_through: {why}");
            return;
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        ours.write_all(b"before").unwrap();
        attach(&ours).unwrap();
        seal_by(&ours, &Keys::new(Cipher::Aes128Gcm, &[7; 16], [8; 12], 0).unwrap()).unwrap();
        ours.write_all(b"behind").unwrap();
        assert_eq!(send_record(&ours, 21, &[1, 0]), Ok(2));
        let mut came = [0; 6 + 5 + 6 + 17 + 5 + 2 + 17];
        theirs.read_exact(&mut came).unwrap();
        assert_eq!(came[..11], *b"before\x17\x03\x03\x00\x17");
        assert!(!came.windows(6).any(|bytes| bytes == b"behind"));
        assert_eq!(came[34..39], *b"\x17\x03\x03\x00\x13");
    }

    #[test]
    fn a_socket_that_is_none_of_tcp_is_left_as_it_is() {
        let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(attach(&ours).is_err());
        ours.write_all(b"as before").unwrap();
        let mut came = [0; 9];
        theirs.read_exact(&mut came).unwrap();
        assert_eq!(&came, b"as before");
    }
}
