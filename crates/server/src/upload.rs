//! Recordings: streamed to a temporary file, read from it as a stream, explained.

use crate::reply;
use crate::routes::App;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use futures_util::StreamExt as _;
use preflop_api::{KEPT_MODEL_BYTES, ProfileOptions};
use preflop_import::{Control, ImportError};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// Bytes that the head of a request says its body has.
pub fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Receives a model and keeps it: questions name it by the `model` of the answer.
pub async fn model(
    State(app): State<Arc<App>>,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Response<Body> {
    if let Some(unknown) = query.keys().find(|k| k.as_str() != "name") {
        let message = format!("unknown parameter `{unknown}`; there is name");
        return reply::problem(StatusCode::BAD_REQUEST, "malformed", &message, None);
    }
    let most = app.limits.upload_bytes.min(KEPT_MODEL_BYTES as u64);
    let name = query.get("name").map_or("model", String::as_str).to_string();
    match file(&app, request, &name, most).await {
        Err(response) => response,
        Ok((turn, folder, path)) => {
            let shared = Arc::clone(&app);
            let work = tokio::task::spawn_blocking(move || {
                let (_turn, _folder) = (turn, folder);
                let Ok(bytes) = std::fs::read(&path) else { return disk_problem() };
                match shared.engine.model_file(&name, bytes) {
                    Ok(answer) => reply::json(StatusCode::OK, answer),
                    Err(error) => reply::api_error(&error),
                }
            });
            work.await.unwrap_or_else(|_| {
                reply::problem(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "reading the model failed",
                    None,
                )
            })
        }
    }
}

/// A body as a file of ours: whose turn it is, its folder, its path.
async fn file(
    app: &App,
    request: Request,
    name: &str,
    most: u64,
) -> Result<(OwnedSemaphorePermit, TempDir, PathBuf), Response<Body>> {
    if declared(request.headers()).is_some_and(|n| n > most) {
        drop_rest(request.into_body().into_data_stream());
        return Err(too_large(most));
    }
    let Some(turn) = app.uploads.enter().await else {
        let message = "other files are being read";
        return Err(reply::problem(StatusCode::TOO_MANY_REQUESTS, "busy", message, Some("try again")));
    };
    let Ok(folder) = app.folder.place() else {
        return Err(disk_problem());
    };
    let path = folder.path().join(plain_name(name));
    receive(app, request.into_body().into_data_stream(), &path, most).await?;
    Ok((turn, folder, path))
}

/// Receives a recording and answers with where its time goes and how it does on other GPUs.
pub async fn profile(
    State(app): State<Arc<App>>,
    Query(query): Query<HashMap<String, String>>,
    request: Request,
) -> Response<Body> {
    if let Some(unknown) = query.keys().find(|k| !matches!(k.as_str(), "from" | "to" | "host" | "name")) {
        let message = format!("unknown parameter `{unknown}`; there are from, to, host and name");
        return reply::problem(StatusCode::BAD_REQUEST, "malformed", &message, None);
    }
    let host = match query.get("host").filter(|text| !text.is_empty()).map(|text| text.parse::<f64>()) {
        None => None,
        Some(Ok(factor)) => Some(factor),
        Some(Err(_)) => {
            let message = "`host` is a factor on the host's time, as 0.8";
            return reply::problem(StatusCode::BAD_REQUEST, "malformed", message, None);
        }
    };
    let name = query.get("name").map_or("", String::as_str);
    let (turn, folder, path) = match file(&app, request, name, app.limits.upload_bytes).await {
        Ok(received) => received,
        Err(response) => return response,
    };
    let options = ProfileOptions {
        from: query.get("from").filter(|name| !name.is_empty()).cloned(),
        to: query
            .get("to")
            .filter(|list| !list.is_empty() && list.as_str() != "all")
            .map(|list| list.split(',').map(str::to_string).collect()),
        host,
    };
    let shared = Arc::clone(&app);
    let work = tokio::task::spawn_blocking(move || {
        let (_turn, _folder) = (turn, folder);
        explained(&shared, &path, &options)
    });
    work.await.unwrap_or_else(|_| {
        reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "reading the recording failed", None)
    })
}

fn explained(app: &App, path: &Path, options: &ProfileOptions) -> Response<Body> {
    let control = Control {
        unpacked: app.limits.unpacked_bytes,
        pool: Arc::clone(&app.pool),
        stop: Arc::clone(&app.stop),
    };
    // What it takes of the pool is given back when its answer is there.
    let (profile, _taken) = match preflop_import::import_within(path, &control) {
        Ok(read) => read,
        Err(
            error @ (ImportError::TooLarge { .. } | ImportError::Memory { .. } | ImportError::Names { .. }),
        ) => {
            return reply::problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &error.to_string(), None);
        }
        Err(error @ ImportError::Busy { .. }) => {
            return reply::problem(StatusCode::TOO_MANY_REQUESTS, "busy", &error.to_string(), None);
        }
        Err(error @ ImportError::Stopped { .. }) => {
            return reply::problem(StatusCode::SERVICE_UNAVAILABLE, "stopping", &error.to_string(), None);
        }
        Err(error) => {
            let hint =
                Some("send the file as it is: PyTorch profiler JSON, Nsight SQLite or CSV, .gz or .zst");
            return reply::problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &error.to_string(), hint);
        }
    };
    match app.engine.profile(&profile, options) {
        Ok(answer) => reply::json(StatusCode::OK, answer),
        Err(error) => reply::api_error(&error),
    }
}

fn too_large(most: u64) -> Response<Body> {
    let message = format!("a file may have at most {} MiB", most >> 20);
    let hint =
        "pack it (.gz, .zst), record fewer steps, or start the server with a larger `--max-upload-mib`";
    reply::problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, Some(hint))
}

/// Reads what is left of a refused body and drops it, for a while: a connection that closes on a client which still
/// sends is reset, and the client never sees why.
pub fn drop_rest(mut body: BodyDataStream) {
    const PAUSE: Duration = Duration::from_secs(2);
    const IN_ALL: Duration = Duration::from_secs(30);
    tokio::spawn(async move {
        let last = Instant::now() + IN_ALL;
        while let Ok(Some(Ok(_))) = timeout_at(last.min(Instant::now() + PAUSE), body.next()).await {}
    });
}

fn disk_problem() -> Response<Body> {
    let message = "the server cannot write its temporary file";
    reply::problem(StatusCode::INSUFFICIENT_STORAGE, "storage", message, None)
}

/// Only letters, digits, dots, dashes and underscores of a name are kept: it names a file in a folder of ours.
fn plain_name(name: &str) -> PathBuf {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().map(|c| if good(c) { c } else { '_' }).take(100).collect();
    let plain = plain.trim_start_matches('.');
    PathBuf::from(if plain.is_empty() { "recording" } else { plain })
}

/// Writes a body to a file as it comes, within the limits of size and time.
async fn receive(app: &App, mut body: BodyDataStream, path: &Path, most: u64) -> Result<(), Response<Body>> {
    const BUFFER: usize = 1 << 20;
    let file = tokio::fs::File::create(path).await.map_err(|_| disk_problem())?;
    let mut file = BufWriter::with_capacity(BUFFER, file);
    let last = Instant::now() + app.limits.upload;
    let mut received: u64 = 0;
    loop {
        let stalled = Instant::now() + Duration::max(app.limits.stall, Duration::from_millis(1));
        let chunk = match timeout_at(stalled.min(last), body.next()).await {
            Err(_) => {
                let message = "the recording came too slowly";
                return Err(reply::problem(StatusCode::REQUEST_TIMEOUT, "slow_client", message, None));
            }
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                let message = "the recording broke off";
                return Err(reply::problem(StatusCode::BAD_REQUEST, "cut_off", message, None));
            }
            Ok(Some(Ok(chunk))) => chunk,
        };
        received += chunk.len() as u64;
        if received > most {
            drop_rest(body);
            return Err(too_large(most));
        }
        file.write_all(&chunk).await.map_err(|_| disk_problem())?;
    }
    file.flush().await.map_err(|_| disk_problem())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_folder() {
        for (name, plain) in [
            ("trace.json.gz", "trace.json.gz"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\boot.ini", "boot.ini"),
            ("/etc/shadow", "shadow"),
            ("..", "recording"),
            ("", "recording"),
            ("a\u{0}b c", "a_b_c"),
        ] {
            assert_eq!(plain_name(name), PathBuf::from(plain), "{name:?}");
        }
    }
}
