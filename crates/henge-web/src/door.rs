//! Answers HTTP, and waits for nobody for ever.
//!
//! A request's head is there within [`HEAD`] of the connection's, or the last answer's, end; its body within [`BODY`] of the head. So
//! a connection that says half a request and no more gives its place back. Who the connection belongs to is told to the
//! handlers as [`Caller`]. With TLS its handshake, too, is over within [`HEAD`].

use crate::bounded::Bounded;
use crate::owner::Caller;
use crate::places::Answering;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::ConnectInfo;
use axum::serve::Listener;
use henge_tls::Tls;
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

/// Until a request's head is there.
pub const HEAD: Duration = Duration::from_secs(10);
/// From then on until its body is.
pub const BODY: Duration = Duration::from_secs(20);
/// For connections under way when the server ends.
const ENDING: Duration = Duration::from_secs(5);

/// Answers until `stop` is done; then lets go whoever is being answered. With `tls`, who speaks none is not answered.
pub async fn answer(
    mut listener: Bounded,
    tls: Option<Arc<Tls>>,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let (guest, address) = tokio::select! {
            biased;
            () = &mut stop => break,
            next = listener.accept() => next,
        };
        let (watcher, router, tls) = (graceful.watcher(), router.clone(), tls.clone());
        let (ours, answering) = (guest.local_addr(), guest.answering());
        // A client that breaks off is gone; there is nobody to tell.
        tokio::spawn(async move {
            let Some(tls) = tls else {
                let caller = Caller::new(address, ours);
                return drop(watcher.watch(serve(guest, answering, caller, router)).await);
            };
            match tokio::time::timeout(HEAD, TlsAcceptor::from(tls.server()).accept(guest)).await {
                Ok(Ok(stream)) => {
                    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
                    let caller = Caller::new(address, ours).proven(&tls, chain);
                    drop(watcher.watch(serve(stream, answering, caller, router)).await);
                }
                Ok(Err(e)) => {
                    if let Some(why) = e.get_ref().and_then(|why| why.downcast_ref()) {
                        tls.tell(why);
                    }
                }
                Err(_) => {}
            }
        });
    }
    let _ = tokio::time::timeout(ENDING, graceful.shutdown()).await;
}

fn serve<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: I,
    answering: Answering,
    caller: Caller,
    router: Router,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> {
    let address = caller.address();
    let caller = Arc::new(caller);
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(|body| Body::new(Timed::new(body, answering.clone())));
        request.extensions_mut().insert(ConnectInfo(address));
        request.extensions_mut().insert(Arc::clone(&caller));
        let (mut router, answering) = (router.clone(), answering.clone());
        async move { answering.during(router.call(request)).await }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD);
    http.serve_connection(TokioIo::new(stream), service)
}

/// A body that is all there in time, or broken. While it is waited for, no answer is being made.
struct Timed {
    body: Incoming,
    over: Pin<Box<Sleep>>,
    answering: Answering,
}

impl Timed {
    fn new(body: Incoming, answering: Answering) -> Timed {
        Timed { body, over: Box::pin(tokio::time::sleep(BODY)), answering }
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.answering.set(frame.is_ready());
        if let Poll::Ready(frame) = frame {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.over.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let why = "the rest of the body did not come in time";
                Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, why).into())))
            }
        }
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::{CONNECTIONS_MAX, EACH_MAX, IDLE};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", axum::routing::post(async |body: Bytes| body));
        let bounded = Bounded::new(listener, CONNECTIONS_MAX, IDLE);
        tokio::spawn(answer(bounded, None, router, std::future::pending()));
        address
    }

    /// Sends a text and reads until the server closes.
    async fn says(address: SocketAddr, text: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    // Time is the runtime's own, and moves on when everybody waits for it.

    #[tokio::test(start_paused = true)]
    async fn half_a_head_is_not_waited_for() {
        let address = server().await;
        let began = tokio::time::Instant::now();
        let said = says(address, "POST / HTTP/1.1\r\nhost: x\r\n").await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
        assert!((HEAD..IDLE).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_body_is_not_waited_for() {
        let address = server().await;
        let began = tokio::time::Instant::now();
        let half = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf";
        let said = says(address, half).await;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
        assert!((BODY..IDLE).contains(&began.elapsed()), "{:?}", began.elapsed());
    }

    /// Who asks twice at once, and takes nothing of the first answer, is not read again.
    #[tokio::test(start_paused = true)]
    async fn who_takes_no_answer_gives_its_place_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let long = axum::routing::get(async || vec![b'x'; 64 << 20]);
        let router = Router::new().route("/long", long);
        let bounded = Bounded::new(listener, 1, IDLE);
        let places = Arc::clone(bounded.places());
        tokio::spawn(answer(bounded, None, router, std::future::pending()));
        let mut greedy = TcpStream::connect(address).await.unwrap();
        greedy.write_all("GET /long HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2).as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        for _ in 0..5 {
            tokio::time::sleep(IDLE / 4).await;
            seen.push(places.count());
        }
        assert_eq!((seen[0], seen[4]), (1, 0), "{seen:?}");
        drop(greedy);
    }

    /// As one that records the load for five minutes. One that takes for ever is given up.
    #[tokio::test(start_paused = true)]
    async fn an_answer_that_takes_long_is_given() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let after = |seconds| {
            axum::routing::get(async move || {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                "here"
            })
        };
        let router = Router::new().route("/late", after(400)).route("/never", after(u64::from(u32::MAX)));
        tokio::spawn(answer(Bounded::new(listener, 1, IDLE), None, router, std::future::pending()));
        for (path, given) in [("/late", true), ("/never", false)] {
            let text = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            assert_eq!(says(address, &text).await.ends_with("here"), given, "{path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_take_all_places() {
        // While somebody computes, time stands still: nobody's head is late.
        let (over, computes) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || computes.recv());
        let address = server().await;
        let mut open = Vec::new();
        for _ in 0..EACH_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"POST / HTTP/1.1\r\n").await.unwrap();
            open.push(stream);
        }
        let whole = "POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi";
        assert_eq!(says(address, whole).await, "", "closed at once");
        // From another address of this machine there are places.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(whole.as_bytes()).await.unwrap();
        let mut answer = String::new();
        other.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hi"), "{answer}");
        drop(over);
    }
}
