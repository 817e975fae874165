//! Completion: what could stand at the cursor of a command line, asked by the scripts of `preflop completions`.
//!
//! The scripts of a shell are a few lines that call `preflop __complete WORDS..`; all that is known stands here, so that models, GPUs
//! and nodes are those of this version. The first line of an answer is `files` where a file could stand there too, and
//! `words` where not; each other line is a word, a tab and what it is.

use clap::{Arg, Command};
use preflop_cluster::node;
use preflop_core::delta::networks;
use preflop_core::gpu::catalog;
use preflop_core::model::zoo;
use std::fmt::Write as _;

/// The word that asks for completion.
pub const ASK: &str = "__complete";

/// What could stand at the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
struct Candidates {
    /// Words with what they are.
    words: Vec<(String, String)>,
    /// May it be a file?
    files: bool,
}

impl Candidates {
    fn add(&mut self, word: impl Into<String>, what: impl Into<String>) {
        self.words.push((word.into(), what.into()));
    }
}

/// The answer for these words, those after the program's name; the last is the one at the cursor, perhaps empty.
pub fn answer(mut command: Command, words: &[String]) -> String {
    command.build();
    let found = candidates(&command, words);
    let mut out = String::from(if found.files { "files\n" } else { "words\n" });
    for (word, what) in &found.words {
        let _ = writeln!(out, "{word}\t{}", what.lines().next().unwrap_or_default());
    }
    out
}

/// Where the cursor is: in which command, behind which option, at which place.
struct Cursor<'a> {
    command: &'a Command,
    behind: Option<&'a Arg>,
    place: usize,
    only_places: bool,
}

fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let long = word.strip_prefix("--");
    let short = word.strip_prefix('-').and_then(|w| w.chars().next());
    command.get_arguments().find(|arg| match long {
        Some(name) => {
            arg.get_long() == Some(name) || arg.get_all_aliases().is_some_and(|names| names.contains(&name))
        }
        None => arg.get_short().is_some() && arg.get_short() == short,
    })
}

/// Follows the words before the cursor.
fn follow<'a>(command: &'a Command, words: &[String]) -> Cursor<'a> {
    let mut at = Cursor { command, behind: None, place: 0, only_places: false };
    for word in words {
        // bash takes `--gpu=h100` apart.
        if word == "=" && at.behind.is_some() {
            continue;
        }
        if at.behind.take().is_some() {
            continue;
        }
        if at.only_places || !word.starts_with('-') || word == "-" {
            match at.command.find_subcommand(word).filter(|_| at.place == 0) {
                Some(inner) => at.command = inner,
                None => at.place += 1,
            }
        } else if word == "--" {
            at.only_places = true;
        } else if !word.contains('=') {
            at.behind = option(at.command, word).filter(|arg| arg.get_action().takes_values());
        }
    }
    at
}

fn candidates(command: &Command, words: &[String]) -> Candidates {
    let (now, before) = words.split_last().map_or(("", words), |(now, before)| (now.as_str(), before));
    let at = follow(command, before);
    let mut found = Candidates::default();
    if let Some(arg) = at.behind {
        values(arg, if now == "=" { "" } else { now }, "", &mut found);
    } else if let Some((name, value)) =
        now.split_once('=').filter(|_| now.starts_with("--") && !at.only_places)
    {
        if let Some(arg) = option(at.command, name) {
            values(arg, value, &format!("{name}="), &mut found);
        }
    } else if now.starts_with('-') && !at.only_places {
        for arg in at.command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let what = arg.get_help().map(ToString::to_string).unwrap_or_default();
            if let Some(name) = arg.get_long().map(|name| format!("--{name}")).filter(|n| n.starts_with(now))
            {
                found.add(name, what);
            }
        }
    } else {
        if at.place == 0 {
            let inner =
                at.command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name().starts_with(now));
            for sub in inner {
                found.add(sub.get_name(), sub.get_about().map(ToString::to_string).unwrap_or_default());
            }
        }
        // The last place takes all that follow.
        let places: Vec<&Arg> = at.command.get_positionals().collect();
        if let Some(arg) = places.get(at.place).or(places.last().filter(|arg| takes_many(arg))) {
            values(arg, now, "", &mut found);
        }
    }
    found
}

fn takes_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|n| n.max_values() > 1)
}

/// What an argument takes, by the names of its value: the words of this tool's help.
fn values(arg: &Arg, typed: &str, before: &str, found: &mut Candidates) {
    // Of a list the last part is completed.
    let listed = arg.get_value_delimiter() == Some(',')
        || arg.get_value_names().is_some_and(|names| names.iter().any(|n| n.contains(',')));
    let (kept, now) = match typed.rsplit_once(',').filter(|_| listed) {
        Some((kept, now)) => (format!("{before}{kept},"), now),
        None => (before.to_string(), typed),
    };
    let mut add = |word: &str, what: &str| {
        if word.starts_with(now) {
            found.add(format!("{kept}{word}"), what);
        }
    };
    let known = arg.get_possible_values();
    for value in known.iter().filter(|v| !v.is_hide_set()) {
        add(value.get_name(), &value.get_help().map(ToString::to_string).unwrap_or_default());
    }
    if !known.is_empty() {
        return;
    }
    let names = arg.get_value_names().unwrap_or_default().iter().map(|n| n.as_str().to_lowercase());
    let is = |word: &str| {
        let parts = |name: &str| name.split(|c: char| !c.is_ascii_alphabetic()).any(|part| part == word);
        names.clone().any(|name| parts(&name)) || arg.get_id() == word
    };
    let gpu = is("gpu") || is("gpus") || is("base") || is("other");
    if gpu {
        for name in catalog::names() {
            add(name, "GPU");
        }
    }
    if is("model") {
        for info in zoo::list() {
            add(info.name, info.title);
        }
    }
    if is("network") {
        for name in networks::NAMES {
            add(name, "network of the DeLTA paper");
        }
    }
    if is("cluster") || is("node") {
        for name in node::catalog::names() {
            add(name, "node");
        }
    }
    let file = [
        "file", "profile", "study", "log", "folder", "model", "cluster", "node", "layers", "path", "before",
        "after",
    ];
    found.files |= gpu || file.iter().any(|word| is(word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn at(line: &str) -> (Vec<String>, bool) {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        let text = answer(crate::Cli::command(), &words);
        let mut lines = text.lines();
        let files = lines.next() == Some("files");
        (lines.map(|l| l.split('\t').next().unwrap_or_default().to_string()).collect(), files)
    }

    #[test]
    fn commands_options_and_their_values_are_completed() {
        assert_eq!(at("pred"), (vec!["predict".to_string()], false));
        assert!(at("").0.contains(&"gpus".to_string()) && !at("").0.contains(&ASK.to_string()));
        assert_eq!(at("predict resnet5"), (vec!["resnet50".to_string()], true));
        assert_eq!(at("predict resnet50 --gpu b30").0, ["b300"]);
        assert_eq!(at("predict resnet50 --gpu=b30").0, ["--gpu=b300"]);
        assert_eq!(at("predict resnet50 --gpu = b30").0, ["b300"]);
        assert_eq!(at("predict --gpu h200 resnet5").0, ["resnet50"]);
        assert_eq!(at("compare resnet50 --gpus h200,mi30").0, ["h200,mi300x"]);
        assert_eq!(at("compare resnet50 --gpu l40").0, ["l40s"], "the other spelling");
        assert_eq!(at("predict resnet50 --prec").0, ["--precision"]);
        assert_eq!(at("predict resnet50 --precision bf").0, ["bf16"]);
        assert_eq!(at("plan llama-2-7b --cluster dgx-h1").0, ["dgx-h100"]);
        assert_eq!(at("gpus sh").0, ["show"]);
        assert_eq!(at("gpus show b30").0, ["b300"]);
        assert_eq!(at("--json predict resnet5").0, ["resnet50"]);
        assert_eq!(at("explain tra"), (Vec::new(), true), "a file");
        assert_eq!(at("predict resnet50 --batch 6"), (Vec::new(), false), "a number");
        assert_eq!(at("nothing --gpu h2"), (Vec::new(), false));
    }
}
