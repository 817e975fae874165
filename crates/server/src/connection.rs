//! Sockets: accepts connections, closes slow ones, stops gracefully.

use crate::config::{Config, ServeError};
use crate::routes::{App, router};
use crate::sessions::Sessions;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use preflop_api::Engine;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

/// A server that has its address and waits to be run.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    config: Config,
    app: Arc<App>,
    router: Router,
}

/// Pause after a failed accept: out of file handles, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

impl Server {
    /// Takes the address.
    pub async fn bind(config: Config, engine: Engine) -> Result<Self, ServeError> {
        let token = config.checked_token()?;
        let wanted = SocketAddr::new(config.host, config.port);
        let bind_error = |source| ServeError::Bind { address: wanted.to_string(), source };
        let listener = TcpListener::bind(wanted).await.map_err(bind_error)?;
        let address = listener.local_addr().map_err(bind_error)?;
        let app = Arc::new(App::new(engine, config.limits, token)?);
        let router = router(&app);
        Ok(Self { listener, address, config, app, router })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients must show.
    pub fn token(&self) -> Option<&str> {
        self.app.sessions.as_ref().map(Sessions::token)
    }

    /// The address to open. Where a token is asked for, it holds a code that works once.
    pub fn url(&self) -> String {
        let base = format!("http://{}/", self.address);
        match self.app.sessions.as_ref().and_then(Sessions::code) {
            None => base,
            Some(code) => format!("{base}?code={code}"),
        }
    }

    /// Serves until told to stop; requests under way may finish.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let limits = self.config.limits;
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES);
        let graceful = GracefulShutdown::new();
        let room = Arc::new(Semaphore::new(limits.connections.max(1)));
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                // Without room, connections wait in the system's queue.
                let place = Arc::clone(&room).acquire_owned().await;
                (place, self.listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                accepted = accepted => accepted,
                () = &mut stop => break,
            };
            let (Ok(place), Ok((stream, _))) = (place, accepted) else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let io = TokioIo::new(Box::pin(patient(stream, limits.stall)));
            let service = TowerToHyperService::new(self.router.clone());
            let connection = graceful.watch(http.serve_connection(io, service));
            tokio::spawn(async move {
                let _place = place;
                // A client that breaks off or is too slow is no error of ours.
                let _ = connection.await;
            });
        }
        drop(self.listener);
        // Recordings being read end at their next step.
        self.app.stop.store(true, Ordering::Relaxed);
        tokio::select! {
            () = graceful.shutdown() => {}
            () = tokio::time::sleep(limits.shutdown) => {}
        }
        Ok(())
    }
}

/// A stream on which a client must take what it asked for.
fn patient(stream: TcpStream, stall: Duration) -> TimeoutStream<TcpStream> {
    // Without this, answers wait for the client's acknowledgements.
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(stall));
    stream
}
