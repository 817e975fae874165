//! Close names for a misspelt one, for error messages, and names that came from files on the one line of a message.

/// A text from a file as part of a message of one line: line breaks and other control characters become spaces.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Edit distance between two short ASCII names (Levenshtein, two rows).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let substitute = previous[j] + usize::from(ca != *cb);
            row.push(substitute.min(previous[j + 1] + 1).min(row[j] + 1));
        }
        previous = row;
    }
    previous[b.len()]
}

/// Up to three of `known` that look like `wanted`, best first: those within a third of its length,
/// or that contain it.
pub fn close<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: String = wanted.chars().take(64).flat_map(char::to_lowercase).collect();
    let mut found: Vec<(usize, &str)> = known
        .into_iter()
        .filter_map(|name| {
            let d = distance(&wanted, name);
            let contained = wanted.len() >= 2 && name.contains(wanted.as_str());
            (d <= 1 + wanted.len() / 3 || contained).then_some((if contained { d.min(2) } else { d }, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.into_iter().take(3).map(|(_, name)| name).collect()
}

/// `"; did you mean `a` or `b`?"`, or nothing if no name is close.
pub fn did_you_mean<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let names = close(wanted, known);
    if names.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = names.iter().map(|n| format!("`{}`", one_line(n))).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_misspelt_one() {
        assert_eq!(close("rensnet50", ["resnet101", "vgg16", "resnet50"]), vec!["resnet50", "resnet101"]);
        assert_eq!(close("a100", ["a100-sxm-80gb", "rtx-4090"]), vec!["a100-sxm-80gb"]);
        assert_eq!(did_you_mean("zzzzzz", ["h200"]), "");
        // Columns of a table are names of a file.
        assert_eq!(did_you_mean("op", ["o\np"]), "; did you mean `o p`?");
        assert_eq!(one_line("a\u{1b}]0;b\r\nc"), "a ]0;b  c");
    }
}
