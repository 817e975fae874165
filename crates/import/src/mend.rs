//! Repairs that recorders' own slips need: invalid UTF-8 in names, bare `NaN` and `inf` as numbers.

/// The element with invalid UTF-8 replaced and bare non-numbers made null, if there was anything to mend.
pub fn mend(element: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(element);
    let invalid = matches!(text, std::borrow::Cow::Owned(_));
    let mut out = String::with_capacity(text.len());
    let mut mended = invalid;
    let mut rest: &str = &text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        if in_string {
            let end = string_end(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            in_string = false;
            continue;
        }
        if c == '"' {
            out.push('"');
            rest = &rest[1..];
            in_string = true;
            continue;
        }
        if c.is_ascii_alphabetic() || c == '-' {
            let end =
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
            let word = &rest[..end];
            let bare = word.trim_start_matches(['-', '+']).to_ascii_lowercase();
            if matches!(bare.as_str(), "nan" | "inf" | "infinity") {
                out.push_str("null");
                mended = true;
            } else {
                out.push_str(word);
            }
            rest = &rest[end..];
            continue;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    mended.then_some(out)
}

/// Just past the closing quote of a string whose opening quote is behind us.
fn string_end(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'\\' => i += 2,
            b'"' => return i + 1,
            _ => i += 1,
        }
    }
    // An escaped character may be wider than a byte.
    let mut end = i.min(bytes.len());
    while !rest.is_char_boundary(end) {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repairs() {
        assert_eq!(
            mend(br#"{"a": NaN, "b": -inf, "c": "NaN"}"#).unwrap(),
            r#"{"a": null, "b": null, "c": "NaN"}"#
        );
        assert_eq!(mend(b"{\"a\": \"x\xff\"}").unwrap(), "{\"a\": \"x\u{fffd}\"}");
        assert_eq!(mend(br#"{"a": -1.5e-3, "b": true}"#), None);
        assert_eq!(mend("{\"a\\".as_bytes()), None);
    }
}
