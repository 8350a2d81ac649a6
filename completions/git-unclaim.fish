complete -c git-unclaim -l reason -d 'Why; goes to the history, and to the one who loses the claim' -r -f
complete -c git-unclaim -l expected-token -d 'The token of the very tenure that is meant' -r -f
complete -c git-unclaim -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-unclaim -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-unclaim -l force -d 'Release a claim that is another\'s, or yours in another session'
complete -c git-unclaim -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-unclaim -s q -l quiet -d 'Say nothing where all went well'
complete -c git-unclaim -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-unclaim -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-unclaim -s V -l version -d 'Print version'

complete -f -c git -n __fish_git_needs_command -a unclaim -d 'Give an issue back'
complete -f -c git -n '__fish_git_using_command unclaim' -a '(__fish_git_complete_custom_command unclaim)'
