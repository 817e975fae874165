//! The addresses: the API, its document, and the page.

use crate::answers::Answers;
use crate::config::{Limits, ServeError};
use crate::folder::Uploads;
use crate::limits::Gate;
use crate::sessions::Sessions;
use crate::{assets, guard, reply, upload};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use axum::middleware;
use axum::routing::{any, get, post};
use futures_util::StreamExt as _;
use preflop_api::{ApiError, Engine, Kind};
use preflop_import::Pool;
use serde_json::Map;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::time::timeout;

/// What all requests share.
#[derive(Debug)]
pub struct App {
    pub engine: Engine,
    pub limits: Limits,
    /// Where others can reach the server.
    pub sessions: Option<Sessions>,
    pub gate: Gate,
    pub uploads: Gate,
    /// Where recordings lie while they are read.
    pub folder: Uploads,
    /// Memory that they take together.
    pub pool: Arc<Pool>,
    /// Set when the server ends.
    pub stop: Arc<AtomicBool>,
    answers: Answers,
    document: Bytes,
}

impl App {
    /// Everything a server needs.
    pub fn new(engine: Engine, limits: Limits, token: Option<String>) -> Result<Self, ServeError> {
        Ok(Self {
            engine,
            sessions: token.map(Sessions::new).transpose()?,
            folder: Uploads::new().map_err(|source| ServeError::Folder { source })?,
            pool: Pool::new(limits.recording_bytes),
            stop: Arc::default(),
            gate: Gate::new(limits.at_work, limits.waiting),
            uploads: Gate::new(limits.uploads, limits.uploads),
            answers: Answers::new(limits.kept_bytes),
            document: Bytes::from(preflop_api::document().to_string()),
            limits,
        })
    }
}

/// All addresses.
pub fn router(app: &Arc<App>) -> Router {
    let app = Arc::clone(app);
    Router::new()
        .route(guard::SIGN_IN, any(guard::sign_in))
        .route("/api/v1/openapi.json", get(document))
        .route("/api/v1/ask", post(ask))
        .route("/api/v1/profile", post(upload::profile))
        .route("/api/v1/model", post(upload::model))
        .route("/api/v1/{question}", any(question))
        .fallback(page)
        // Bodies are read by hand, each with its own limit.
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(Arc::clone(&app), guard::check))
        .with_state(app)
}

async fn document(State(app): State<Arc<App>>) -> Response<Body> {
    reply::json(StatusCode::OK, app.document.clone())
}

async fn page(request: Request) -> Response<Body> {
    let path = request.uri().path();
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return wrong_method("GET");
    }
    if let Some(found) = assets::file(path, request.headers()) {
        return found;
    }
    // A browser gets the application, which says that there is nothing at this address; a program gets JSON.
    let accepted = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if accepted.contains("text/html")
        && !path.starts_with("/api/")
        && let Some(mut page) = assets::file("/", &HeaderMap::new())
    {
        *page.status_mut() = StatusCode::NOT_FOUND;
        return page;
    }
    reply::problem(StatusCode::NOT_FOUND, "not_found", "there is nothing at this address", None)
}

fn wrong_method(right: &'static str) -> Response<Body> {
    let message = format!("this address takes {right} requests");
    let mut response = reply::problem(StatusCode::METHOD_NOT_ALLOWED, "method", &message, None);
    response.headers_mut().insert(header::ALLOW, axum::http::HeaderValue::from_static(right));
    response
}

/// One kind of question: POST with its fields as JSON, GET where it has none.
async fn question(State(app): State<Arc<App>>, Path(name): Path<String>, request: Request) -> Response<Body> {
    let kind = match Kind::from_name(&name) {
        Ok(kind) => kind,
        Err(error) => return reply::api_error(&error),
    };
    let body = match (request.method().clone(), kind.is_plain()) {
        (Method::GET, true) => Bytes::new(),
        (Method::POST, _) => match read(&app, request).await {
            Ok(body) => body,
            Err(response) => return response,
        },
        (_, true) => return wrong_method("GET, POST"),
        (_, false) => return wrong_method("POST"),
    };
    if let Some(answer) = app.answers.get(kind, &body) {
        return reply::json(StatusCode::OK, answer);
    }
    let shared = Arc::clone(&app);
    let asked = body.clone();
    let work = move || {
        let fields = if asked.is_empty() { Map::new() } else { serde_json::from_slice(&asked)? };
        shared.engine.answer(kind, fields)
    };
    match at_work(&app, work).await {
        Ok(Ok(answer)) => {
            let answer = Bytes::from(answer);
            app.answers.keep(kind, &body, &answer);
            reply::json(StatusCode::OK, answer)
        }
        Ok(Err(error)) => reply::api_error(&error),
        Err(response) => response,
    }
}

/// Any question, by the one function that also a browser could call.
async fn ask(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    let body = match read(&app, request).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let shared = Arc::clone(&app);
    let work = move || match std::str::from_utf8(&body) {
        Ok(question) => Ok(shared.engine.ask(question)),
        Err(error) => Err(ApiError::Malformed { detail: error.to_string() }),
    };
    match at_work(&app, work).await {
        Ok(Ok(answer)) => reply::json(StatusCode::OK, answer),
        Ok(Err(error)) => reply::api_error(&error),
        Err(response) => response,
    }
}

/// Computes on a thread of its own when it is this request's turn.
///
/// The work keeps its turn until it is done, also when nobody waits for it any more.
async fn at_work<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response<Body>> {
    let Some(turn) = app.gate.enter().await else {
        let message = "too many questions wait already";
        return Err(reply::problem(StatusCode::TOO_MANY_REQUESTS, "busy", message, Some("try again")));
    };
    let work = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    match timeout(app.limits.answer, work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => {
            Err(reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the answer failed", None))
        }
        Err(_) => {
            Err(reply::problem(StatusCode::SERVICE_UNAVAILABLE, "slow", "the answer takes too long", None))
        }
    }
}

/// The body of a question, within its limits of kind, size and time.
async fn read(app: &App, request: Request) -> Result<Bytes, Response<Body>> {
    let headers = request.headers();
    // Browsers send this type to other sites only after asking them.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().is_none_or(|k| !k.trim().eq_ignore_ascii_case("application/json")) {
        let message = "a question is sent with `Content-Type: application/json`";
        return Err(reply::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", message, None));
    }
    let most = app.limits.question_bytes;
    let large = || {
        let message = format!("a question has at most {} KiB", most >> 10);
        reply::problem(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, None)
    };
    let declared = upload::declared(headers);
    let mut body = request.into_body().into_data_stream();
    if declared.is_some_and(|n| n > most as u64) {
        upload::drop_rest(body);
        return Err(large());
    }
    let gather = async {
        let mut all = Vec::new();
        while let Some(chunk) = body.next().await {
            let message = "the question broke off";
            let chunk =
                chunk.map_err(|_| reply::problem(StatusCode::BAD_REQUEST, "cut_off", message, None))?;
            if all.len() + chunk.len() > most {
                return Ok(None);
            }
            all.extend_from_slice(&chunk);
        }
        Ok(Some(all))
    };
    match timeout(app.limits.body, gather).await {
        Ok(Ok(Some(all))) => Ok(all.into()),
        Ok(Ok(None)) => {
            upload::drop_rest(body);
            Err(large())
        }
        Ok(Err(response)) => Err(response),
        Err(_) => {
            let message = "the question came too slowly";
            Err(reply::problem(StatusCode::REQUEST_TIMEOUT, "slow_client", message, None))
        }
    }
}
