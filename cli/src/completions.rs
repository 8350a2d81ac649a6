//! Completion scripts, one a program and shell, so that a shell finds each by
//! its file's name. clap writes them for `git-claim <TAB>`; what is added makes
//! `git claim <TAB>` work, through git's own completion.

use clap_complete::generate;
use clap_complete::shells;

use crate::args::{Program, command};

/// The shells that have completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    pub const ALL: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

    /// The file's name that the shell looks for.
    pub fn file_name(self, program: Program) -> String {
        let program = program.name();
        match self {
            Shell::Bash => format!("{program}.bash"),
            Shell::Zsh => format!("_{program}"),
            Shell::Fish => format!("{program}.fish"),
        }
    }
}

/// The script for one program.
pub fn script(program: Program, shell: Shell) -> String {
    let mut definition = command(program);
    // The completions are for the file's name, not for `git claim`.
    definition.set_bin_name(program.name());
    let name = program.name();
    let mut out = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut definition, name, &mut out),
        Shell::Zsh => generate(shells::Zsh, &mut definition, name, &mut out),
        Shell::Fish => generate(shells::Fish, &mut definition, name, &mut out),
    }
    let mut script = String::from_utf8_lossy(&out).into_owned();
    if shell == Shell::Bash {
        // clap_complete 4.6 takes the `-` in a program's name for the step to a
        // subcommand in one place and not in the other, so that the
        // subcommands' options are never found.
        script = script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"));
    }
    script.push_str(&for_git(program, shell));
    script
}

/// What makes git's own completion find the program's.
fn for_git(program: Program, shell: Shell) -> String {
    let name = program.name();
    match shell {
        Shell::Bash => BASH
            .replace("@for git@", &format!("_{}", name.replace('-', "_")))
            // How clap names its function.
            .replace("@by clap@", &format!("_{}", name.replace('-', "__")))
            .replace("@name@", name),
        // git's completion for zsh looks for the function `_git-claim`, which
        // is what this file defines.
        Shell::Zsh => String::new(),
        Shell::Fish => {
            let subcommand = name.trim_start_matches("git-");
            let about = command(program)
                .get_about()
                .map(ToString::to_string)
                .unwrap_or_default();
            FISH.replace("@about@", &about.replace('\'', "\\'"))
                .replace("@subcommand@", subcommand)
        }
    }
}

/// git's completion calls `_git_claim` for `git claim …`, with the words in
/// `words` and `cword` and the subcommand's place in `__git_cmd_idx`.
const BASH: &str = r#"
@for git@() {
    local COMP_WORDS=("@name@" "${words[@]:__git_cmd_idx+1}")
    local COMP_CWORD=$((cword - __git_cmd_idx))
    @by clap@ "@name@" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
}
"#;

/// git.fish has a function for programs like these; only newer ones call it by
/// themselves.
const FISH: &str = r#"
complete -f -c git -n __fish_git_needs_command -a @subcommand@ -d '@about@'
complete -f -c git -n '__fish_git_using_command @subcommand@' -a '(__fish_git_complete_custom_command @subcommand@)'
"#;
