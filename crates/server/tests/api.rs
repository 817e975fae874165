//! The API over real sockets: good questions, and every kind of bad one.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Reply, Running};
use preflop_api::Engine;
use preflop_server::Limits;
use serde_json::{Value, json};
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn answers_have_the_names_that_scripts_rely_on() {
    let server = Running::start();
    let p = server.ask("predict", &json!({ "model": "resnet50", "gpu": "h200" })).json();
    for key in [
        "model",
        "gpu",
        "batch",
        "seq",
        "precision",
        "mode",
        "iteration_ms",
        "low_ms",
        "high_ms",
        "gpu_busy_ms",
        "host_ms",
        "memory_mib",
        "fits",
        "samples_per_s",
        "flops",
        "dram_bytes",
        "bound",
        "unmodelled",
        "ops",
    ] {
        assert!(p.get(key).is_some(), "{key}");
    }
    assert!(p["low_ms"].as_f64() < p["iteration_ms"].as_f64());
    let rows =
        server.ask("compare", &json!({ "model": "resnet50", "rank": "cost", "pricing": "cheapest" })).json();
    assert_eq!(rows.as_array().unwrap().len(), 68);
    for key in [
        "gpu",
        "iteration_ms",
        "samples_per_s",
        "memory_mib",
        "fits",
        "usd_per_hour",
        "price_date",
        "usd_per_million_samples",
        "joules_per_sample",
    ] {
        assert!(rows[0].get(key).is_some(), "{key}");
    }
    let designs = server.ask("explore", &json!({ "network": "resnet152", "base": "titan-xp" })).json();
    assert_eq!(designs["designs"].as_array().unwrap().len(), 9);
    let delta = server.ask("delta", &json!({ "network": "vgg16", "gpu": "titan-xp" })).json();
    assert_eq!(delta["layers"][0]["cta_tile"].as_array().unwrap().len(), 3);
    let roofline = server.ask("roofline", &json!({ "model": "gpt2", "gpus": ["h200", "a100"] })).json();
    assert_eq!(roofline["views"][1]["gpu"], "a100-sxm-80gb");
    assert_eq!(server.get("/api/v1/gpus").json().as_array().unwrap().len(), 68);
    assert!(server.get("/api/v1/models").json()[0]["default_batch"].is_number());
    let same = server.post(
        "/api/v1/ask",
        "application/json",
        json!({ "ask": "predict", "model": "resnet50", "gpu": "h200" }).to_string().as_bytes(),
    );
    assert_eq!(same.json(), p, "`ask` gives the same answer");
    server.stop();
}

#[test]
fn a_layer_goes_down_to_tiles_waves_and_traffic() {
    let server = Running::start();
    let question = json!({ "model": "resnet50", "gpu": "h200", "layers": true });
    let p = server.ask("predict", &question).json();
    let layers = p["layers"].as_array().unwrap();
    assert_eq!(layers[0]["name"], "conv1", "layers stand in the order in which they run");
    let sum: f64 = layers.iter().map(|l| l["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    let layer =
        server.ask("layer", &json!({ "model": "resnet50", "gpu": "h200", "name": "layer1.0.conv2" })).json();
    let operators = layer["operators"].as_array().unwrap();
    assert_eq!(operators.len(), 3, "forward and two gradients: {layer}");
    for o in operators {
        assert!(o["kernel"]["tile"].is_array() && o["kernel"]["waves"].as_f64().unwrap() > 0.0, "{o}");
        assert!(o["l2_bytes"].as_f64().unwrap() >= o["dram_bytes"].as_f64().unwrap() * 0.1, "{o}");
    }
    let error =
        server.ask("layer", &json!({ "model": "resnet50", "gpu": "h200", "name": "nope" })).error(422);
    assert!(error.contains("no layer `nope`"), "{error}");
    server.stop();
}

#[test]
fn a_host_that_is_said_counts_in_predictions_and_comparisons() {
    let server = Running::start();
    // An iteration that waits for its host.
    let predict = |host| json!({ "model": "mobilenet_v2", "batch": 1, "gpu": "h200", "host": host });
    let compare = |host| json!({ "model": "mobilenet_v2", "batch": 1, "gpus": ["h200"], "host": host });
    let ms = |answer: &Value, place| answer.pointer(place).and_then(Value::as_f64).unwrap();
    for host in ["usual", "2x"] {
        let factor = if host == "usual" { 1.0 } else { 2.0 };
        let unsaid = server.ask("predict", &predict("usual")).json();
        let said = server.ask("predict", &predict(host)).json();
        assert!((ms(&said, "/host_ms") / ms(&unsaid, "/host_ms") - factor).abs() < 1e-9, "{said}");
        let row = server.ask("compare", &compare(host)).json();
        assert!((ms(&row, "/0/iteration_ms") / ms(&said, "/iteration_ms") - 1.0).abs() < 1e-9, "{row}");
    }
    for (question, body) in [("predict", predict("quick")), ("compare", compare("quick"))] {
        let message = server.ask(question, &body).error(422);
        assert!(message.contains("`quick` is no host"), "{message}");
    }
}

#[test]
fn bad_questions_get_clear_refusals() {
    let server = Running::start();
    let post = |body: &str| server.post("/api/v1/predict", "application/json", body.as_bytes());
    for malformed in
        ["", "{", "[1,2", "null", "\"x\"", "{\"model\":}", "\u{0}", "{\"model\":1,\"gpu\":\"h200\"}"]
    {
        post(malformed).error(400);
    }
    let deep = "[".repeat(100_000);
    post(&deep).error(400);
    for (body, says) in [
        (json!({ "model": "resnet50", "gpu": "h2000" }), "h200"),
        (json!({ "model": "resnot50", "gpu": "h200" }), "resnet50"),
        (json!({ "model": "resnet50", "gpu": "../../etc/passwd" }), "unknown GPU"),
        (json!({ "model": "resnet50", "gpu": "h200", "batch": 0 }), "batch"),
        (json!({ "model": "resnet50", "gpu": "h200", "batch": 1_048_577 }), "batch"),
        (json!({ "model": "resnet50", "gpu": "h200", "seq": 5 }), "sequence"),
    ] {
        let message = server.ask("predict", &body).error(422);
        assert!(message.contains(says), "{body}: {message}");
    }
    for body in [
        json!({ "model": "resnet50", "gpu": "h200", "batch": -1 }),
        json!({ "model": "resnet50", "gpu": "h200", "batch": 1.5 }),
        json!({ "model": "resnet50", "gpu": "h200", "precision": "fp7" }),
        json!({ "model": "resnet50", "gpu": "h200", "bach": 4 }),
        json!({ "gpu": "h200" }),
    ] {
        server.ask("predict", &body).error(400);
    }
    let scales =
        |s: Value| json!({ "network": "resnet152", "base": "titan-xp", "designs": [{ "scales": s }] });
    for bad in
        [json!({ "sms": 2 }), json!({ "sm_count": 0 }), json!({ "dram_bw": 1e9 }), json!({ "tile": 77 })]
    {
        server.ask("explore", &scales(bad)).error(422);
    }
    let many: Vec<Value> = (0..5000).map(|_| json!({})).collect();
    server.ask("explore", &json!({ "network": "resnet152", "base": "titan-xp", "designs": many })).error(422);
    server.ask("compare", &json!({ "model": "gpt2", "budget_usd": 5 })).error(422);
    server.ask("compare", &json!({ "model": "gpt2", "prices": { "h200": -1 } })).error(422);
    server.ask("compare", &json!({ "model": "gpt2", "gpus": [] })).error(422);
    server.ask("nothing", &json!({})).error(404);
    server.get("/api/v1/predict").error(405);
    server
        .raw(format!("DELETE /api/v1/gpus HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).as_bytes())
        .error(405);
    server.post("/api/v1/predict", "text/plain", b"{}").error(415);
    server.stop();
}

#[test]
fn bodies_are_limited() {
    let server = Running::start();
    let large = json!({ "model": "x".repeat(2 << 20), "gpu": "h200" });
    server.ask("predict", &large).error(413);
    // A long model name within the limit is quoted in part only.
    let long = json!({ "model": "x".repeat(1000), "gpu": "h200" });
    assert!(server.ask("predict", &long).error(422).len() < 200);
    server.stop();
}

#[test]
fn no_path_leads_out() {
    let server = Running::start();
    for path in [
        "/../Cargo.toml",
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "//etc/passwd",
        "/assets/../../../etc/passwd",
        "/index.html/../../src/lib.rs",
        "/api/v1/..%2f..%2fetc%2fpasswd",
        "/.git/config",
        "/C:\\Windows\\win.ini",
    ] {
        let reply = server.raw(
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.address)
                .as_bytes(),
        );
        assert!(matches!(reply.status, 400 | 404), "{path}: {}", reply.status);
        assert!(!String::from_utf8_lossy(&reply.body).contains("root:"), "{path}");
    }
    server.stop();
}

#[test]
fn pages_are_served_with_strict_headers() {
    let server = Running::start();
    for page in
        ["/", "/predict", "/compare?model=gpt2", "/roofline", "/explore", "/profile", "/accuracy", "/api"]
    {
        let reply = server.get(page);
        assert_eq!(reply.status, 200, "{page}");
        assert!(reply.header("content-type").unwrap().starts_with("text/html"), "{page}");
        assert!(reply.header("content-security-policy").unwrap().contains("default-src 'none'"));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
    }
    let tag = server.get("/").header("etag").unwrap().to_string();
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\nIf-None-Match: {tag}\r\n\r\n", server.address);
    let mut stream = server.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let mut line = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut line).unwrap();
    assert_eq!(&line, b"HTTP/1.1 304");
    server.stop();
}

#[test]
fn other_sites_cannot_ask() {
    let server = Running::start();
    let with = |headers: &str| {
        server.raw(format!("GET /api/v1/version HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes())
    };
    let address = server.address;
    assert_eq!(with(&format!("Host: {address}\r\n")).status, 200);
    assert_eq!(with("Host: localhost\r\n").status, 200);
    with("Host: evil.example\r\n").error(403);
    with(&format!("Host: evil.example:{}\r\n", address.port())).error(403);
    with(&format!("Host: {address}\r\nOrigin: http://evil.example\r\n")).error(403);
    with(&format!("Host: {address}\r\nOrigin: null\r\n")).error(403);
    assert_eq!(with(&format!("Host: {address}\r\nOrigin: http://{address}\r\n")).status, 200);
    server.stop();
}

#[test]
fn a_token_must_be_shown() {
    let server = Running::with(Limits::default(), Some("correct-horse-battery"));
    let send = |text: String| {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).unwrap();
        Reply::read(&stream).unwrap()
    };
    let with = |path: &str, headers: &str| {
        send(format!("GET {path} HTTP/1.1\r\nHost: box.example\r\n{headers}Connection: close\r\n\r\n"))
    };
    for wrong in [
        "",
        "Authorization: Bearer correct-horse-batter\r\n",
        "Authorization: Basic correct-horse-battery\r\n",
        "Authorization: correct-horse-battery\r\n",
        "Cookie: preflop_session=correct-horse-battery\r\n",
    ] {
        with("/api/v1/version", wrong).error(401);
        with("/", wrong).error(401);
    }
    // The token is no part of any address.
    with("/?token=correct-horse-battery", "").error(401);
    with("/?code=correct-horse-battery", "").error(401);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let bearer = format!("Authorization: {scheme} correct-horse-battery\r\n");
        assert_eq!(with("/api/v1/version", &bearer).status, 200);
    }
    // The code of the printed address works once and opens a session.
    let code = server.url.split("code=").nth(1).unwrap();
    let welcome = with(&format!("/predict?model=gpt2&code={code}"), "");
    assert_eq!((welcome.status, welcome.header("location")), (303, Some("/predict?model=gpt2")));
    let cookie = welcome.header("set-cookie").unwrap().to_string();
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().unwrap();
    assert_eq!(with("/", &format!("Cookie: a=b; {session}\r\n")).status, 200);
    with(&format!("/?code={code}"), "").error(401);
    // Others type the token in.
    let page = with("/", "Accept: text/html\r\n");
    assert!(page.status == 401 && String::from_utf8_lossy(&page.body).contains("action=\"/sign-in\""));
    let sign_in = |token: &str| {
        let body = format!("token={token}");
        send(format!(
            "POST /sign-in HTTP/1.1\r\nHost: box.example\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    };
    sign_in("correct-horse-batter").error(401);
    let welcome = sign_in("correct-horse-battery");
    let session = welcome.header("set-cookie").unwrap().split(';').next().unwrap().to_string();
    assert_eq!(with("/", &format!("Cookie: {session}\r\n")).status, 200);
    server.stop();
}

#[test]
fn a_request_names_its_host_once() {
    let server = Running::start();
    let a = server.address;
    for head in [
        "GET / HTTP/1.1\r\n".to_string(),
        format!("GET / HTTP/1.1\r\nHost: {a}\r\nHost: evil.example\r\n"),
        format!("GET / HTTP/1.1\r\nHost: evil.example\r\nHost: {a}\r\n"),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {a}\r\n"),
    ] {
        let reply = server.raw(format!("{head}Connection: close\r\n\r\n").as_bytes());
        assert_eq!(reply.status, 400, "{head}");
    }
    server.stop();
}

#[test]
fn an_answer_that_panics_ends_alone() {
    let engine = Engine::new(Some(Arc::new(|| panic!("a fault of ours")))).unwrap();
    let server = Running::of(engine, Limits::default(), None);
    for _ in 0..3 {
        server.get("/api/v1/accuracy").error(500);
        assert_eq!(server.get("/api/v1/version").status, 200);
    }
    server.stop();
}

#[test]
fn who_comes_when_too_many_wait_is_told_to_come_again() {
    // One answer that takes its time, one that waits, and the next is sent away.
    let engine = Engine::new(Some(Arc::new(|| {
        std::thread::sleep(Duration::from_secs(2));
        Ok("{}".to_string())
    })))
    .unwrap();
    let server = Running::of(engine, Limits { at_work: 1, waiting: 1, ..Limits::default() }, None);
    let slow = || {
        let mut stream = server.connect();
        let host = server.address;
        write!(stream, "POST /api/v1/ask HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: 19\r\nConnection: close\r\n\r\n{{\"ask\": \"accuracy\"}}").unwrap();
        stream
    };
    let (first, second) = (slow(), slow());
    std::thread::sleep(Duration::from_millis(500));
    let refused = Reply::read(&slow()).unwrap();
    refused.error(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!((Reply::read(&first).unwrap().status, Reply::read(&second).unwrap().status), (200, 200));
    server.stop();
}

#[test]
fn slow_clients_are_sent_away_and_others_served() {
    // Long enough for a busy machine to answer others before the slow ones are sent away.
    const PATIENCE: Duration = Duration::from_millis(1500);
    let limits = Limits { head: PATIENCE, body: PATIENCE, stall: PATIENCE, ..Limits::default() };
    let server = Running::with(limits, None);
    let start = Instant::now();
    let host = format!("Host: {}\r\n", server.address);
    // A head that never ends, a question and an upload whose bodies never come.
    let mut head = server.connect();
    head.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    let mut question = server.connect();
    question
        .write_all(format!("POST /api/v1/predict HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{").as_bytes())
        .unwrap();
    let mut upload = server.connect();
    upload
        .write_all(format!("POST /api/v1/profile HTTP/1.1\r\n{host}Content-Length: 50\r\n\r\n{{").as_bytes())
        .unwrap();
    // Others are answered meanwhile.
    assert_eq!(server.get("/api/v1/version").status, 200);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    assert!(Reply::read(&head).is_none_or(|r| r.status == 408));
    Reply::read(&question).unwrap().error(408);
    Reply::read(&upload).unwrap().error(408);
    assert!(start.elapsed() < 6 * PATIENCE, "{:?}", start.elapsed());
    // One byte at a time, for ever: the body's time as a whole ends it.
    let mut drip = server.connect();
    drip.write_all(format!("POST /api/v1/predict HTTP/1.1\r\n{host}Content-Type: application/json\r\nContent-Length: 500\r\n\r\n").as_bytes())
        .unwrap();
    let start = Instant::now();
    while start.elapsed() < PATIENCE + Duration::from_millis(400) {
        let _ = drip.write_all(b" ");
        std::thread::sleep(Duration::from_millis(20));
    }
    Reply::read(&drip).unwrap().error(408);
    server.stop();
}

#[test]
fn two_hundred_at_once_are_all_answered() {
    let server = Running::start();
    let replies: Vec<(u16, bool)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..200)
            .map(|i| {
                let server = &server;
                scope.spawn(move || {
                    let question = match i % 4 {
                        0 => json!({ "model": "resnet50", "gpu": "h200", "batch": 1 + i }),
                        1 => json!({ "model": "bert-base", "gpu": "a100", "batch": 1 + i / 4 }),
                        2 => json!({ "model": "resnet50", "gpu": "nope" }),
                        _ => json!({ "model": "resnet50" }),
                    };
                    let reply = server.ask("predict", &question);
                    (reply.status, reply.json().is_object())
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for (i, (status, is_json)) in replies.iter().enumerate() {
        assert_eq!(*status, [200, 200, 422, 400][i % 4], "request {i}");
        assert!(is_json);
    }
    assert_eq!(server.get("/api/v1/version").status, 200);
    server.stop();
}

#[test]
fn who_comes_when_all_places_are_taken_is_told_so() {
    let limits = Limits { at_work: 1, waiting: 2, ..Limits::default() };
    let server = Running::with(limits, None);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..60)
            .map(|i| {
                let server = &server;
                scope.spawn(move || {
                    server.ask("compare", &json!({ "model": "resnet152", "batch": 1 + i })).status
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|s| matches!(s, 200 | 429)), "{statuses:?}");
    server.stop();
}

#[test]
fn requests_under_way_finish_when_the_server_stops() {
    let server = Running::start();
    let mut stream = server.connect();
    let body = json!({ "model": "resnet152" }).to_string();
    let head = format!(
        "POST /api/v1/compare HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        server.address,
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The request is known to be under way once its head was read.
    std::thread::sleep(Duration::from_millis(200));
    let address = server.address;
    let stopper = std::thread::spawn(move || server.stop());
    std::thread::sleep(Duration::from_millis(100));
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(Reply::read(&stream).unwrap().status, 200);
    stopper.join().unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "nobody listens any more");
}
