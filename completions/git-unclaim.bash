# bash completion for git-unclaim. The program itself says what fits; it looks at
# what earlier commands have seen, and asks no server.

__git_unclaim_offer() {
    local at=${__git_cmd_idx-1} replies reply typed=
    replies=$("$@" --complete bash "${COMP_TYPE-}" "${COLUMNS-}" \
        "${words[@]:at:cword-at}" "$cur" 2>/dev/null)
    [[ $? == 3 ]] || compopt +o default +o bashdefault 2>/dev/null
    compopt +o nospace -o nosort 2>/dev/null
    # readline takes what stands behind a `=` for a word of its own.
    [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]] && typed=${cur%"${cur##*=}"}
    COMPREPLY=()
    while IFS= read -r reply; do
        [[ -n $reply ]] && COMPREPLY+=("${reply#"$typed"}")
    done <<<"$replies"
}

# For git's completion, which leaves quotes and `~` in what is behind `-C`.
_git_unclaim() {
    local quotes=$'[\\\\\'"]'
    local __git_C_args=("${__git_C_args[@]//$quotes/}")
    __git_C_args=("${__git_C_args[@]/#\~\//$HOME/}")
    __git_unclaim_offer __git unclaim
}

# For bash.
__git_unclaim_itself() {
    local cur=$2 words=("${COMP_WORDS[@]}") cword=$COMP_CWORD __git_cmd_idx=0
    # Puts together what readline takes apart.
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n =: cur words cword
    fi
    __git_unclaim_offer git-unclaim
}

complete -o bashdefault -o default -F __git_unclaim_itself git-unclaim
