# fish completion for git-claim. The program itself says what fits; it looks at
# what earlier commands have seen, and asks no server.

function __git_claim_offer
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
        set run git-claim
    end
    set -l replies (command $run --complete fish $words "$current" 2>/dev/null)
    switch $status
        case 0
            printf '%s\n' $replies
        case 3
            __fish_complete_path $current
    end
end

complete -c git-claim -f -k -a '(__git_claim_offer)'
complete -c git -f -n __fish_git_needs_command -a claim -d 'Claim an issue, so that nobody else works on it'
complete -c git -f -k -n '__fish_git_using_command claim' -a '(__git_claim_offer git)'
