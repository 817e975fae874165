//! What leaves a recording when it is redacted: secrets, folders with people's names, mail addresses.

/// What stands in their place.
pub const REDACTED: &str = "[redacted]";

/// Keys whose values go, whatever they are; compared in lower case.
const SECRET_KEYS: &[&str] = &[
    "metadata",
    "env",
    "environ",
    "environment",
    "user",
    "username",
    "user_name",
    "host",
    "hostname",
    "host_name",
    "authorization",
    "cookie",
    "trace_id",
    "tracename",
    "info",
];

/// Parts of keys that give a secret away.
const SECRET_PARTS: &[&str] = &[
    "token_",
    "_token",
    "secret",
    "password",
    "passwd",
    "api_key",
    "apikey",
    "access_key",
    "credential",
    "private_key",
];

/// How access tokens of well-known services begin, and how many characters must follow.
const TOKEN_STARTS: &[(&str, usize)] = &[
    ("hf_", 16),
    ("ghp_", 16),
    ("gho_", 16),
    ("ghs_", 16),
    ("github_pat_", 16),
    ("glpat-", 16),
    ("sk-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("AKIA", 12),
    ("ASIA", 12),
    ("AIza", 20),
    ("eyJ", 30),
    ("wandb_v1_", 10),
    ("Bearer ", 8),
];

/// Does this key promise a secret?
pub fn is_secret_key(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    SECRET_KEYS.contains(&lower.as_str())
        || lower == "token"
        || SECRET_PARTS.iter().any(|p| lower.contains(p))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// Length of a token at the start of the text.
fn token(text: &str) -> Option<usize> {
    TOKEN_STARTS.iter().find_map(|(start, least)| {
        let rest = text.strip_prefix(start)?;
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        (length >= *least).then_some(start.len() + length)
    })
}

/// Length of the folders of an absolute path at the start of the text: all up to the last slash.
fn folders(text: &str) -> Option<usize> {
    if !text.starts_with('/') {
        return None;
    }
    let end =
        text.find(|c: char| !(is_word(c) || matches!(c, '/' | '+' | '~' | '@' | '='))).unwrap_or(text.len());
    let last = text[..end].rfind('/')?;
    // `/` and `a/b` are no paths to hide; `/home/someone/train.py` is.
    (text[..last].matches('/').count() >= 1 && last > 0).then_some(last + 1)
}

/// `NAME=value` with a telling name: where the value begins, and its length.
fn assignment(text: &str) -> Option<(usize, usize)> {
    let name = text
        .find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .unwrap_or(text.len());
    let rest = text[name..].strip_prefix('=')?;
    if name == 0 || !(is_secret_key(&text[..name]) || text[..name].ends_with("_KEY")) {
        return None;
    }
    let length =
        rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\\')).unwrap_or(rest.len());
    (length > 0).then_some((name + 1, length))
}

/// Length of a mail address at the start of the text.
fn mail(text: &str) -> Option<usize> {
    let at = text.find(|c| !is_word(c))?;
    let rest = text[at..].strip_prefix('@')?;
    let length =
        rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))).unwrap_or(rest.len());
    (at > 0 && rest[..length].trim_matches('.').contains('.')).then_some(at + 1 + length)
}

/// The text without secrets, or `None` if there were none. Escapes of JSON strings pass through.
pub fn scrub(text: &str) -> Option<String> {
    let mut out = String::new();
    let mut changed = false;
    let mut i = 0;
    let mut before = ' ';
    while let Some(c) = text[i..].chars().next() {
        let rest = &text[i..];
        let word_start = !is_word(before);
        if let Some(n) = token(rest).filter(|_| word_start || before == '-') {
            out.push_str(REDACTED);
            (changed, before, i) = (true, ']', i + n);
            continue;
        }
        if word_start {
            if let Some((value, n)) = assignment(rest) {
                out.push_str(&rest[..value]);
                out.push_str(REDACTED);
                (changed, before, i) = (true, ']', i + value + n);
                continue;
            }
            if let Some(n) = mail(rest) {
                out.push_str(REDACTED);
                (changed, before, i) = (true, ']', i + n);
                continue;
            }
            if let Some(n) = folders(rest) {
                (changed, before, i) = (true, '/', i + n);
                continue;
            }
        }
        out.push(c);
        before = c;
        i += c.len_utf8();
    }
    changed.then_some(out)
}

/// A JSON value without secrets: values of telling keys go whole, other strings are scrubbed. Everything else stays
/// byte for byte, numbers of any size included. Returns how much was taken out.
pub fn scrub_json(json: &str, out: &mut String) -> u64 {
    let bytes = json.as_bytes();
    let (mut i, mut taken) = (0, 0);
    while i < bytes.len() {
        if bytes[i] != b'"' {
            let end = memchr::memchr(b'"', &bytes[i..]).map_or(bytes.len(), |n| i + n);
            out.push_str(&json[i..end]);
            i = end;
            continue;
        }
        let end = skip_value(bytes, i);
        let inner = json.get(i + 1..end.saturating_sub(1)).unwrap_or("");
        let after = skip_space(bytes, end);
        if bytes.get(after) == Some(&b':') {
            out.push_str(&json[i..=after]);
            i = after + 1;
            if is_secret_key(inner) {
                let value = skip_space(bytes, i);
                out.extend(["\"", REDACTED, "\""]);
                taken += 1;
                i = skip_value(bytes, value);
            }
            continue;
        }
        if let Some(clean) = scrub(inner) {
            out.push('"');
            out.push_str(&clean);
            out.push('"');
            taken += 1;
        } else {
            out.push_str(&json[i..end]);
        }
        i = end;
    }
    taken
}

fn skip_space(bytes: &[u8], mut i: usize) -> usize {
    while bytes.get(i).is_some_and(u8::is_ascii_whitespace) {
        i += 1;
    }
    i
}

/// Just past the value at `i`.
fn skip_value(bytes: &[u8], mut i: usize) -> usize {
    let mut depth = 0_usize;
    let mut in_string = false;
    while i < bytes.len() {
        let b = bytes[i];
        if in_string {
            match b {
                b'\\' => i += 1,
                b'"' => {
                    in_string = false;
                    if depth == 0 {
                        return i + 1;
                    }
                }
                _ => {}
            }
        } else {
            match b {
                b'"' => in_string = true,
                b'{' | b'[' => depth += 1,
                b',' | b'}' | b']' if depth == 0 => return i,
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        return i + 1;
                    }
                }
                _ => {}
            }
        }
        i += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_go_names_stay() {
        for (text, clean) in [
            ("/home/someone/train/main.py(12): step", Some("main.py(12): step")),
            ("torch/nn/modules/module.py(1532): _call_impl", None),
            ("void at::native::elementwise_kernel<128, 4>", None),
            ("HF_TOKEN=abcdef", Some("HF_TOKEN=[redacted]")),
            // In two parts, so that nobody's scanner takes it for a real one.
            (concat!("key hf", "_ABCDEFGHIJKLMNOPQRSTUVWX end"), Some("key [redacted] end")),
            ("write to some.one@example.org now", Some("write to [redacted] now")),
            ("Memcpy DtoD (Device -> Device)", None),
            ("aten::mul", None),
        ] {
            assert_eq!(scrub(text).as_deref(), clean, "{text}");
        }
    }

    #[test]
    fn json_keeps_everything_else() {
        let mut out = String::new();
        let json = r#"{"name": "a", "args": {"env": {"X": [1, "}"]}, "n": 99999999999999999999, "kernel_file": "/tmp/u_name/k.py"}}"#;
        assert_eq!(scrub_json(json, &mut out), 2);
        assert_eq!(
            out,
            r#"{"name": "a", "args": {"env":"[redacted]", "n": 99999999999999999999, "kernel_file": "k.py"}}"#
        );
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = scrub(&text);
            let mut out = String::new();
            let _ = scrub_json(&text, &mut out);
        }

        #[test]
        fn no_token_survives(head in "[a-z ]{0,10}", tail in "[A-Za-z0-9]{20,30}") {
            let text = format!("{head} hf_{tail}");
            prop_assert!(!scrub(&text).unwrap().contains(&tail));
        }
    }
}
