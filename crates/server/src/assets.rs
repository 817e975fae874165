//! The page's files, built from web/ by `npm run build` and embedded.

use crate::config::hexadecimal;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use rust_embed::RustEmbed;

#[derive(RustEmbed)]
#[folder = "assets/"]
struct Files;

const SCRIPT: &str = include_str!("../assets/app.js");
const STYLE: &str = include_str!("../assets/app.css");

/// Script and style of the application, for a page that carries them inside.
pub fn application() -> (&'static str, &'static str) {
    (SCRIPT, STYLE)
}

/// Pages of the application: one document, which reads its address itself.
pub const PAGES: [&str; 10] = [
    "/",
    "/predict",
    "/compare",
    "/roofline",
    "/generate",
    "/cluster",
    "/explore",
    "/profile",
    "/accuracy",
    "/api",
];

/// A file by its path, or `None`. Only names of embedded files are known: no path leads to the disk.
pub fn file(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let name = if PAGES.contains(&path) { "index.html" } else { path.strip_prefix('/')? };
    let file = Files::get(name)?;
    let hash = hexadecimal(&file.metadata.sha256_hash()[..16]);
    let tag = HeaderValue::from_str(&format!("\"{hash}\"")).ok()?;
    let known = headers.get(header::IF_NONE_MATCH) == Some(&tag);
    let mut response = Response::new(if known { Body::empty() } else { Body::from(file.data) });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let kind = match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    let out = response.headers_mut();
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    out.insert(header::ETAG, tag);
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}
