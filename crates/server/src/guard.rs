//! Who may ask: requests from this machine's own pages, or with the token.

use crate::reply;
use crate::routes::App;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use axum::middleware::Next;
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq as _;

/// Name of the cookie that a browser shows once it was opened with the token.
const COOKIE: &str = "preflop_token";

/// Lets a request pass or answers it.
pub async fn check(State(app): State<Arc<App>>, request: Request, next: Next) -> Response<Body> {
    let mut response = match refusal(&app, &request) {
        Some(response) => response,
        None => next.run(request).await,
    };
    reply::harden(response.headers_mut());
    response
}

fn refusal(app: &App, request: &Request) -> Option<Response<Body>> {
    let headers = request.headers();
    let host = host(request);
    // A page of another site can make a browser send requests here, under a name of its own that it points at this
    // machine (DNS rebinding). Such requests carry that name.
    if app.token.is_none() && !host.as_ref().is_some_and(is_this_machine) {
        return Some(reply::problem(
            StatusCode::FORBIDDEN,
            "host",
            "this server answers requests to localhost only",
            Some("open it as http://127.0.0.1, or start it with a token"),
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|o| o.parse::<Uri>().ok())
            .and_then(|o| o.authority().cloned())
            .is_some_and(|o| Some(o) == host);
        if !same {
            let message = "requests from pages of other sites are refused";
            return Some(reply::problem(StatusCode::FORBIDDEN, "origin", message, None));
        }
    }
    let token = app.token.as_deref()?;
    if let Some(given) = from_query(request.uri()) {
        return matches(&given, token).then(|| welcome(request.uri(), token)).or_else(|| Some(denied()));
    }
    let shown = bearer(headers).or_else(|| cookie(headers));
    match shown {
        Some(shown) if matches(shown, token) => None,
        _ => Some(denied()),
    }
}

/// Compares in a time that does not tell how much was right.
fn matches(shown: &str, token: &str) -> bool {
    shown.as_bytes().ct_eq(token.as_bytes()).into()
}

fn denied() -> Response<Body> {
    let hint = "open the address that `preflop serve` printed, or send `Authorization: Bearer TOKEN`";
    let mut response =
        reply::problem(StatusCode::UNAUTHORIZED, "token", "the token is missing or wrong", Some(hint));
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// The name that the client asked for.
fn host(request: &Request) -> Option<Authority> {
    request.headers().get(header::HOST)?.to_str().ok()?.parse().ok()
}

fn is_this_machine(host: &Authority) -> bool {
    let name = host.host();
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// `token=..` in the query of an address.
fn from_query(uri: &Uri) -> Option<String> {
    let pairs = uri.query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix("token=")).map(str::to_string).next()
}

/// Stores the token in a cookie that scripts cannot read, and takes it out of the address.
fn welcome(uri: &Uri, token: &str) -> Response<Body> {
    let rest: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|p| !p.is_empty() && !p.starts_with("token="))
        .collect();
    // The path begins with one slash: `//name` would be an address elsewhere.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let target = if rest.is_empty() { path } else { format!("{path}?{}", rest.join("&")) };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let cookie = format!("{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000");
    for (name, value) in [(header::LOCATION, target), (header::SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_pass() {
        for good in ["localhost", "LOCALHOST:80", "127.0.0.1:7878", "127.8.9.1", "[::1]:7878"] {
            assert!(is_this_machine(&good.parse().unwrap()), "{good}");
        }
        for bad in ["evil.example", "localhost.evil.example:7878", "10.0.0.1", "0.0.0.0", "[::2]:80"] {
            assert!(!is_this_machine(&bad.parse().unwrap()), "{bad}");
        }
    }

    #[test]
    fn a_token_is_taken_out_of_the_address() {
        let response = welcome(&"//evil.example/?a=1&token=x&b=2".parse().unwrap(), "x");
        assert_eq!(response.headers()[header::LOCATION], "/evil.example/?a=1&b=2");
    }
}
