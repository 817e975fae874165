//! A server of our own on a free port, and a client that can misbehave.
#![allow(dead_code, clippy::unwrap_used, clippy::missing_panics_doc)]

use preflop_api::Engine;
use preflop_server::{Config, Limits, Server};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use tokio::sync::oneshot;

pub struct Running {
    pub address: SocketAddr,
    pub token: Option<String>,
    /// The address to open.
    pub url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub fn start() -> Self {
        Self::with(Limits::default(), None)
    }

    pub fn with(limits: Limits, token: Option<&str>) -> Self {
        Self::of(Engine::new(None).unwrap(), limits, token)
    }

    pub fn of(engine: Engine, limits: Limits, token: Option<&str>) -> Self {
        let config = Config {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            allow_remote: false,
            token: token.map(str::to_string),
            limits,
        };
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(config, engine).await.unwrap();
                ready.send((server.address(), server.token().map(str::to_string), server.url())).unwrap();
                server.run(async { drop(stopped.await) }).await.unwrap();
            });
        });
        let (address, token, url) = is_ready.recv().unwrap();
        Self { address, token, url, stop: Some(stop), thread: Some(thread) }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends bytes as they are and reads the response.
    pub fn raw(&self, request: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        Reply::read(&stream).expect("a response")
    }

    pub fn get(&self, path: &str) -> Reply {
        self.raw(
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).as_bytes(),
        )
    }

    pub fn post(&self, path: &str, kind: &str, body: &[u8]) -> Reply {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.raw(&request)
    }

    pub fn ask(&self, question: &str, body: &Value) -> Reply {
        self.post(&format!("/api/v1/{question}"), "application/json", body.to_string().as_bytes())
    }

    /// Stops the server and waits for its end.
    pub fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    /// Reads one response; `None` if the server closed without one.
    pub fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_string()));
        }
        let length = headers.iter().find(|(n, _)| n == "content-length")?.1.parse().ok()?;
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Self { status, headers, body })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The message of an error; checks that it is one, on one line.
    #[track_caller]
    pub fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let json = self.json();
        let message = json["error"]["message"].as_str().expect("a message").to_string();
        assert!(!message.is_empty() && !message.contains('\n'), "{message}");
        message
    }
}
