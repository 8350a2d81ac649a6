# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_git_claim_global_optspecs
    string join \n next t/ttl= m/note= wait= take-over reason= expected-token= r/remote= session= json q/quiet v/verbose h/help V/version
end

function __fish_git_claim_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_git_claim_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_git_claim_using_subcommand
    set -l cmd (__fish_git_claim_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c git-claim -n "__fish_git_claim_needs_command" -s t -l ttl -d 'How long the claim lives unless it is renewed: `300`, `90s`, `1h30m`, `2d`' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -s m -l note -d 'A line for others to read' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -l wait -d 'Wait while somebody else has it; with a duration, at most so long' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -l reason -d 'Why; goes to the history, and to the one who loses the claim' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -l expected-token -d 'The token of the very tenure that is meant' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_needs_command" -l next -d 'Take the first open issue that nobody holds'
complete -c git-claim -n "__fish_git_claim_needs_command" -l take-over -d 'Take the claim from whoever holds it, for a reason that they are told'
complete -c git-claim -n "__fish_git_claim_needs_command" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_needs_command" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_needs_command" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_needs_command" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "renew" -d 'Set the end of your claim anew, counted from now'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "heartbeat" -d 'Set the end of your claim anew, counted from now'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "start" -d 'Claim an issue for a branch and a worktree of its own'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "check" -d 'Check that the claim that this worktree is bound to is sound'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "inspect" -d 'Show a bound claim as it stands here and on the server'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "recover" -d 'Make the record of your bound claim sound again'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "install-hook" -d 'Have `git claim check` run before every push, as git\'s pre-push hook'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "run" -d 'Hold a claim while a command runs'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "log" -d 'Show who held an issue, when, and how it ended'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "whoami" -d 'Show who you are to the server, and what you may do'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "help" -d 'Show the manual page of git claim, or of a subcommand'
complete -c git-claim -n "__fish_git_claim_needs_command" -a "completions" -d 'Print the completions for a shell'
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s t -l ttl -d 'How long the claim lives from now on; without it, as long as before' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand renew" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s t -l ttl -d 'How long the claim lives from now on; without it, as long as before' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand heartbeat" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s t -l ttl -d 'How long the claim lives unless it is renewed; without it, as long as the server thinks right' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l branch -d 'The branch, made if it is not there; without it `claim/<id>`' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l base -d 'Where a new branch begins; without it the remote\'s default branch' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l worktree -d 'The worktree\'s folder; without it `<repository>.claims/<id>` beside the repository' -r -f -a "(__fish_complete_directories)"
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l next -d 'Take the first open issue that nobody holds'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l here -d 'Bind the present worktree and the branch that is checked out in it'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand start" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -l hook -d 'Run as this git hook: pushes of branches that no claim is bound to pass' -r -f -a "pre-push\t''"
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand check" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand inspect" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -l expected-head -d 'Where the branch must be, as a full object id' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -l worktree -d 'The worktree; built anew if it is gone' -r -f -a "(__fish_complete_directories)"
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -l dry-run -d 'Say what would be done, and write nothing anywhere'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand recover" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand install-hook" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s t -l ttl -d 'How long the claim lives behind the last heartbeat: 10m unless given' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -l next -d 'Take the first open issue that nobody holds'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -l keep -d 'Leave the claim held when the command has ended'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -l resume -d 'Go on with a claim that ran out, if nobody has had it since'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand run" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand log" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand whoami" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand help" -s V -l version -d 'Print version'
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claim -n "__fish_git_claim_using_subcommand completions" -s V -l version -d 'Print version'

complete -f -c git -n __fish_git_needs_command -a claim -d 'Claim an issue, so that nobody else works on it'
complete -f -c git -n '__fish_git_using_command claim' -a '(__fish_git_complete_custom_command claim)'
