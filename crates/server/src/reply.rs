//! Responses: JSON, errors, and the headers that all have.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use preflop_api::{ApiError, error_json};

/// A JSON answer.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A page of our own, which may send its form here.
pub fn page(status: StatusCode, text: &'static str) -> Response<Body> {
    const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// An error of the server itself.
pub fn problem(status: StatusCode, kind: &str, message: &str, hint: Option<&str>) -> Response<Body> {
    let mut response = json(status, error_json(kind, message, hint));
    if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    // What is left of the request is not read: the connection cannot be used again.
    if matches!(status, StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An error of the engine.
pub fn api_error(error: &ApiError) -> Response<Body> {
    let status = match error {
        ApiError::Malformed { .. } => StatusCode::BAD_REQUEST,
        ApiError::Question { .. } => StatusCode::NOT_FOUND,
        ApiError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ApiError::Internal { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    json(status, error.json())
}

/// Headers of every response: the page loads nothing from elsewhere, and nobody frames it.
pub fn harden(headers: &mut HeaderMap) {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
        img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
}
