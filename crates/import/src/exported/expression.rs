//! Sizes written as expressions of named dimensions: `s0`, `2*batch + 1`, `(s1 - 1)//2 + 1`, or as PyTorch writes them in
//! archives, `Mul(Integer(49), Symbol('s0', positive=True, integer=True))`.

use std::collections::BTreeMap;

/// Deepest nesting of parentheses that is followed.
const MAX_DEPTH: u32 = 64;

struct Parser<'a> {
    rest: &'a str,
    names: &'a BTreeMap<String, u64>,
}

/// The value of an expression, or the first name in it that has none (empty where it is no expression at all).
pub fn evaluate(text: &str, names: &BTreeMap<String, u64>) -> Result<u64, String> {
    let mut parser = Parser { rest: text, names };
    let value = parser.sum(0)?;
    parser.skip();
    if !parser.rest.is_empty() {
        return Err(String::new());
    }
    u64::try_from(value).map_err(|_| String::new())
}

/// The name, where the expression is nothing else.
pub fn name(text: &str) -> Option<&str> {
    let text = match text.strip_prefix("Symbol('") {
        Some(rest) => rest.split('\'').next()?,
        None => text,
    };
    let starts = text.starts_with(|c: char| c.is_alphabetic() || c == '_');
    (starts && text.chars().all(|c| c.is_alphanumeric() || c == '_')).then_some(text)
}

impl Parser<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self, depth: u32) -> Result<i64, String> {
        let mut value = self.product(depth)?;
        loop {
            if self.take("+") {
                value = value.checked_add(self.product(depth)?).ok_or_else(String::new)?;
            } else if self.take("-") {
                value = value.checked_sub(self.product(depth)?).ok_or_else(String::new)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self, depth: u32) -> Result<i64, String> {
        let mut value = self.factor(depth)?;
        loop {
            if self.take("//") || self.take("/") {
                let by = self.factor(depth)?;
                value = value.checked_div_euclid(by).ok_or_else(String::new)?;
            } else if self.take("%") {
                let by = self.factor(depth)?;
                value = value.checked_rem_euclid(by).ok_or_else(String::new)?;
            } else if self.take("*") {
                value = value.checked_mul(self.factor(depth)?).ok_or_else(String::new)?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self, depth: u32) -> Result<i64, String> {
        if depth > MAX_DEPTH {
            return Err(String::new());
        }
        if self.take("(") {
            let value = self.sum(depth + 1)?;
            return if self.take(")") { Ok(value) } else { Err(String::new()) };
        }
        if self.take("-") {
            return Ok(-self.factor(depth + 1)?);
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(n) = word.parse::<i64>() {
            return Ok(n);
        }
        if self.take("(") {
            return self.function(word, depth + 1);
        }
        self.named(word)
    }

    fn named(&self, word: &str) -> Result<i64, String> {
        match self.names.get(word) {
            Some(&n) => i64::try_from(n).map_err(|_| String::new()),
            None => Err(word.to_owned()),
        }
    }

    /// What stands after `word(`.
    fn function(&mut self, word: &str, depth: u32) -> Result<i64, String> {
        if word == "Symbol" {
            let (inside, rest) = self.rest.split_once(')').ok_or_else(String::new)?;
            self.rest = rest;
            let name = inside.split('\'').nth(1).ok_or_else(String::new)?;
            return self.named(name);
        }
        let mut values = vec![self.sum(depth)?];
        while self.take(",") {
            values.push(self.sum(depth)?);
        }
        if !self.take(")") {
            return Err(String::new());
        }
        let all = values.iter().copied();
        match (word, values.as_slice()) {
            ("Integer", [n]) => Some(*n),
            ("Add", _) => all.reduce(i64::saturating_add),
            ("Mul", _) => all.reduce(i64::saturating_mul),
            ("FloorDiv", [a, b]) => a.checked_div_euclid(*b),
            ("Mod" | "PythonMod", [a, b]) => a.checked_rem_euclid(*b),
            ("Max", _) => all.max(),
            ("Min", _) => all.min(),
            _ => None,
        }
        .ok_or_else(String::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_of_names() {
        let names = BTreeMap::from([("s0".to_owned(), 8), ("batch".to_owned(), 3)]);
        assert_eq!(evaluate("s0", &names), Ok(8));
        assert_eq!(evaluate("2*batch + 1", &names), Ok(7));
        assert_eq!(evaluate("((s0 - 1)//2) + 1", &names), Ok(4));
        assert_eq!(evaluate("49*s1", &names), Err("s1".to_owned()));
        let archived = "Add(Mul(Integer(49), Symbol('s0', positive=True, integer=True)), Integer(-1))";
        assert_eq!(evaluate(archived, &names), Ok(391));
        assert_eq!(name("Symbol('s0', positive=True, integer=True)"), Some("s0"));
        assert_eq!(name("2*s0"), None);
        assert_eq!(evaluate("s0/0", &names), Err(String::new()));
        assert_eq!(evaluate("2 - 3", &names), Err(String::new()));
        assert_eq!(evaluate(&"(".repeat(1000), &names), Err(String::new()));
    }
}
