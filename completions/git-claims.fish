complete -c git-claims -l holder -d 'Only those of this user' -r -f
complete -c git-claims -s r -l remote -d 'The remote whose server is asked' -r -f
complete -c git-claims -l session -d 'The session to act as, instead of this worktree\'s own' -r -f
complete -c git-claims -l mine -d 'Only your own, in this session and others'
complete -c git-claims -l ended -d 'Those that have ended too, with how they did'
complete -c git-claims -s z -d 'For scripts: one record a claim, ended by NUL'
complete -c git-claims -l watch -d 'Show them anew whenever they change, until Ctrl-C'
complete -c git-claims -l json -d 'Print the server\'s reply as one line of JSON; errors are JSON too'
complete -c git-claims -s q -l quiet -d 'Say nothing where all went well'
complete -c git-claims -s v -l verbose -d 'Tell on stderr who is asked what, and over which connection'
complete -c git-claims -s h -l help -d 'Print help (see more with \'--help\')'
complete -c git-claims -s V -l version -d 'Print version'

complete -f -c git -n __fish_git_needs_command -a claims -d 'List who works on what'
complete -f -c git -n '__fish_git_using_command claims' -a '(__fish_git_complete_custom_command claims)'
