//! `preflop completions`: a completion script for a shell.
//!
//! bash, zsh and fish ask this program what could stand at the cursor ([`crate::complete`]), so that models, GPUs and
//! files are completed too; the others get what the options alone tell.

use clap::Args;
use clap_complete::Shell;
use std::io::Write as _;

/// Print a completion script for your shell
///
/// For example: `preflop completions bash > ~/.local/share/bash-completion/completions/preflop`
///
/// In bash, zsh and fish it completes names of models, GPUs, nodes and files too, those of the `preflop` that is installed.
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES
  preflop completions bash > ~/.local/share/bash-completion/completions/preflop
  preflop completions zsh > ~/.zfunc/_preflop
  preflop completions fish > ~/.config/fish/completions/preflop.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

const BASH: &str = r#"# Completion of preflop for bash: the program itself is asked what could stand at the cursor.
_preflop() {
    local line lines=()
    COMPREPLY=()
    while IFS= read -r line; do lines+=("$line"); done < <("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    for line in "${lines[@]:1}"; do COMPREPLY+=("${line%%$'\t'*}"); done
    if [[ "${lines[0]}" == files ]]; then
        compopt -o filenames 2>/dev/null
        local typed="${COMP_WORDS[COMP_CWORD]}"
        [[ "$typed" == "=" ]] && typed=""
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$typed")
    fi
}
complete -F _preflop preflop
"#;

const ZSH: &str = r#"#compdef preflop
# Completion of preflop for zsh: the program itself is asked what could stand at the cursor.
_preflop() {
    local -a lines values
    local line
    lines=("${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${(@)lines[2,-1]}"; do values+=("${${line//:/\\:}/$'\t'/:}"); done
    (( ${#values} )) && _describe 'preflop' values
    [[ "${lines[1]}" == files ]] && _files
}
if [[ "${funcstack[1]}" == _preflop ]]; then _preflop "$@"; else compdef _preflop preflop; fi
"#;

const FISH: &str = r#"# Completion of preflop for fish: the program itself is asked what could stand at the cursor.
function __preflop_complete
    set -l words (commandline -opc)
    set -l lines ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    test (count $lines) -gt 1; and string join \n $lines[2..-1]
    test "$lines[1]" = files; and __fish_complete_path (commandline -ct)
end
complete -c preflop -f -a '(__preflop_complete)'
"#;

/// Prints the script.
pub fn run(args: &CompletionsArgs, command: &mut clap::Command) -> anyhow::Result<()> {
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => script.extend(BASH.as_bytes()),
        Shell::Zsh => script.extend(ZSH.as_bytes()),
        Shell::Fish => script.extend(FISH.as_bytes()),
        other => clap_complete::generate(other, command, "preflop", &mut script),
    }
    crate::output::stdout().write_all(&script)?;
    Ok(())
}
