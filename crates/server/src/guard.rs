//! Who may ask: requests from this machine's own pages, or with the token.

use crate::reply;
use crate::routes::App;
use crate::sessions::Sessions;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use axum::middleware::Next;
use std::net::IpAddr;
use std::sync::Arc;

/// Name of the cookie that holds a browser's session.
const COOKIE: &str = "preflop_session";
/// Where the token is typed in.
pub const SIGN_IN: &str = "/sign-in";
/// Bytes of the form.
const MAX_FORM: usize = 4096;
/// The page for it: no script, nothing from elsewhere.
const SIGN_IN_PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Preflop</title>\
    <meta name=\"viewport\" content=\"width=device-width\"><form method=\"post\" action=\"/sign-in\">\
    <label>Token that <code>preflop serve</code> printed: \
    <input name=\"token\" type=\"password\" autocomplete=\"off\" autofocus></label> <button>Open</button></form></html>";

/// Takes the token from the page's form and opens a session.
pub async fn sign_in(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    if request.method() != Method::POST {
        return reply::page(StatusCode::OK, SIGN_IN_PAGE);
    }
    let headers = request.headers().clone();
    let body = axum::body::to_bytes(request.into_body(), MAX_FORM);
    let Ok(Ok(body)) = tokio::time::timeout(app.limits.body, body).await else { return denied(&headers) };
    let text = String::from_utf8_lossy(&body).into_owned();
    // A token has no characters that a form would write in another way.
    let shown = text.split('&').find_map(|pair| pair.strip_prefix("token=")).unwrap_or_default();
    let session = app.sessions.as_ref().filter(|s| s.is_token(shown)).and_then(Sessions::start);
    match session {
        Some(session) => welcome(&Uri::from_static("/"), &session),
        None => denied(&headers),
    }
}

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
    // Two names would let one part of a chain check the one and another use the other.
    let names = headers.get_all(header::HOST).iter().count();
    let host = host(request);
    let elsewhere = request.uri().authority().is_some_and(|asked| Some(asked) != host.as_ref());
    if names != 1 || elsewhere {
        let message = "a request names its host once";
        return Some(reply::problem(StatusCode::BAD_REQUEST, "host", message, None));
    }
    // A page of another site can make a browser send requests here, under a name of its own that it points at this
    // machine (DNS rebinding). Such requests carry that name.
    if app.sessions.is_none() && !host.as_ref().is_some_and(is_this_machine) {
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
    let sessions = app.sessions.as_ref()?;
    if let Some(code) = from_query(request.uri()) {
        let session = sessions.exchange(&code);
        return session.map(|s| welcome(request.uri(), &s)).or_else(|| Some(denied(headers)));
    }
    // The page on which the token is typed in is read by its own handler.
    if request.uri().path() == SIGN_IN {
        return None;
    }
    let right = bearer(headers).is_some_and(|shown| sessions.is_token(shown))
        || cookie(headers).is_some_and(|shown| sessions.is_open(shown));
    (!right).then(|| denied(headers))
}

/// People get a page on which they can type the token in, programs an error.
fn denied(headers: &HeaderMap) -> Response<Body> {
    let wants_page = headers
        .get(header::ACCEPT)
        .and_then(|v| v.to_str().ok())
        .is_some_and(|accepts| accepts.contains("text/html"));
    let mut response = if wants_page {
        reply::page(StatusCode::UNAUTHORIZED, SIGN_IN_PAGE)
    } else {
        let hint = "the printed address works once; send `Authorization: Bearer TOKEN`, or type the token in at /sign-in";
        reply::problem(StatusCode::UNAUTHORIZED, "token", "the token is missing or wrong", Some(hint))
    };
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
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(';'))
        .find_map(|pair| pair.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// `code=..` in the query of an address.
fn from_query(uri: &Uri) -> Option<String> {
    let pairs = uri.query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix("code=")).map(str::to_string).next()
}

/// Stores the session in a cookie that scripts cannot read and that goes with the browser, and takes the code out of the
/// address.
fn welcome(uri: &Uri, session: &str) -> Response<Body> {
    let rest: Vec<&str> = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|p| !p.is_empty() && !p.starts_with("code="))
        .collect();
    // The path begins with one slash: `//name` would be an address elsewhere.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let target = if rest.is_empty() { path } else { format!("{path}?{}", rest.join("&")) };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let cookie = format!("{COOKIE}={session}; Path=/; HttpOnly; SameSite=Strict");
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
    fn a_code_is_taken_out_of_the_address() {
        let response = welcome(&"//evil.example/?a=1&code=x&b=2".parse().unwrap(), "x");
        assert_eq!(response.headers()[header::LOCATION], "/evil.example/?a=1&b=2");
    }
}
