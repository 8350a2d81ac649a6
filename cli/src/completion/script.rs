//! What a shell loads so that it asks our programs. Each script is also
//! installed, and found by the shell itself or by git's own completion.

use super::{ARGUMENT, SHELLS_OWN};
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

    /// The shell with this name.
    pub fn named(name: &str) -> Option<Shell> {
        <Shell as clap::ValueEnum>::from_str(name, false).ok()
    }

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
    let name = program.name();
    let about = command(program).get_about().map(ToString::to_string);
    let template = match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    template
        .replace("@name@", name)
        .replace("@function@", &name.replace('-', "_"))
        .replace("@subcommand@", name.trim_start_matches("git-"))
        .replace("@about@", &about.unwrap_or_default().replace('\'', "\\'"))
        .replace("@argument@", ARGUMENT)
        .replace("@shell's own@", &SHELLS_OWN.to_string())
}

/// git's completion calls `_git_claim` for `git claim …` with the words in
/// `words` and `cword`, the subcommand's place in `__git_cmd_idx`, and `__git` to
/// run git where `-C` and `--git-dir` say.
const BASH: &str = r#"# bash completion for @name@. The program itself says what fits; it looks at
# what earlier commands have seen, and asks no server.

__@function@_offer() {
    local at=${__git_cmd_idx-1} replies reply typed=
    replies=$("$@" @argument@ bash "${COMP_TYPE-}" "${COLUMNS-}" \
        "${words[@]:at:cword-at}" "$cur" 2>/dev/null)
    [[ $? == @shell's own@ ]] || compopt +o default +o bashdefault 2>/dev/null
    compopt +o nospace -o nosort 2>/dev/null
    # readline takes what stands behind a `=` for a word of its own.
    [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]] && typed=${cur%"${cur##*=}"}
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ -n $reply ]] && COMPREPLY+=("${reply#"$typed"}")
    done <<<"$replies"
}

# For git's completion, which leaves quotes and `~` in what is behind `-C`.
_@function@() {
    local quotes=$'[\\\\\'"]'
    local __git_C_args=("${__git_C_args[@]//$quotes/}")
    __git_C_args=("${__git_C_args[@]/#\~\//$HOME/}")
    __@function@_offer __git @subcommand@
}

# For bash.
__@function@_itself() {
    local cur=$2 words=("${COMP_WORDS[@]}") cword=$COMP_CWORD __git_cmd_idx=0
    # Puts together what readline takes apart.
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n =: cur words cword
    fi
    __@function@_offer @name@
}

complete -o bashdefault -o default -F __@function@_itself @name@
"#;

/// git's completion calls the function `_git-claim` for `git claim …`, with the
/// subcommand first in `words`, and shows what the second line says.
const ZSH: &str = r#"#compdef @name@
#description @about@
# The program itself says what fits; it looks at what earlier commands have
# seen, and asks no server.

_@name@() {
    local -a run offered
    local reply ret=1
    run=(@name@)
    if [[ $service == git ]]; then
        run=(git ${opt_args[-C]:+-C} ${opt_args[-C]:+${(Q)${~opt_args[-C]}}} @subcommand@)
    fi
    reply=$($run @argument@ zsh "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    case $? in
        (0)
            offered=("${(@f)reply}")
            [[ -n $reply ]] && _describe -V -t @name@ 'git @subcommand@' offered && ret=0
            ;;
        (@shell's own@)
            compset -P '--*='
            _files && ret=0
            ;;
    esac
    return ret
}

if [[ $funcstack[1] == _@name@ ]]; then
    _@name@ "$@"
else
    compdef _@name@ @name@
fi
"#;

/// Newer versions of git.fish ask for the completions of `git-claim` where
/// `git claim` is typed, but lose git's own options on the way, `-C` above all.
const FISH: &str = r#"# fish completion for @name@. The program itself says what fits; it looks at
# what earlier commands have seen, and asks no server.

function __@function@_offer
    set -l current (commandline -ct)
    set -l run (commandline -xpc 2>/dev/null; or commandline -opc)
    set -l words $run
    if test "$argv[1]" = git
        # git's own options say where to look.
        set -l rest $run[2..]
        argparse -s (__fish_git_global_optspecs) -- $rest 2>/dev/null
        or return
        set words $argv
        set -l own (math (count $run) - (count $argv) + 1)
        set run $run[1..$own]
    else if string match -q '*__fish_git_complete_custom_command*' -- (status stack-trace)
        return
    else
        set run @name@
    end
    set -l replies (command $run @argument@ fish $words "$current" 2>/dev/null)
    switch $status
        case 0
            printf '%s\n' $replies
        case @shell's own@
            __fish_complete_path $current
    end
end

complete -c @name@ -f -k -a '(__@function@_offer)'
complete -c git -f -n __fish_git_needs_command -a @subcommand@ -d '@about@'
complete -c git -f -k -n '__fish_git_using_command @subcommand@' -a '(__@function@_offer git)'
"#;
