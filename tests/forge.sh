# A throwaway forge on loopback, for tests/demo.sh; to be sourced.
#
#   forge_start DIR PROGRAMS    serves DIR/repos/acme/app.git through sshd, with
#                               git-claim-server from the folder PROGRAMS
#   forge_user NAME             a person with a key, and an `ssh` that uses it
#   forge_as NAME COMMAND…      runs a command as that person
#   forge_stop                  ends sshd and the connections to it
#
# forge_start sets FORGE_URL. Where there is no sshd it is a local path, and
# every person is whoever runs this. Nothing outside of DIR is written, but for
# /run/sshd, which sshd wants to see when root starts it.

forge_sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd || true)
forge_ssh=$(command -v ssh || true)
forge_tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
FORGE_URL=
forge_pid=

forge_start() {
    forge_dir=$1 forge_programs=$2
    mkdir -p "$forge_dir/repos/acme" "$forge_dir/sshd"
    git init -q --bare -b main "$forge_dir/repos/acme/app.git"
    git -C "$forge_dir/repos/acme/app.git" fetch -q \
        "$forge_tests/cases/git-issue.bundle" 'refs/*:refs/*'
    git config -f "$forge_dir/config" claim.reposDir "$forge_dir/repos"
    git config -f "$forge_dir/config" claim.write '*'
    : >"$forge_dir/sshd/authorized_keys"

    if [ -z "$forge_sshd" ] || [ -z "$forge_ssh" ]; then
        FORGE_URL=$forge_dir/repos/acme/app.git
        return
    fi
    if [ "$(id -u)" = 0 ]; then
        mkdir -p -m 755 /run/sshd
    fi
    ssh-keygen -q -t ed25519 -N '' -C forge -f "$forge_dir/sshd/host_key"
    local try
    for try in 1 2 3 4 5; do
        forge_port=$((20000 + RANDOM % 12000))
        forge_listen && break
        forge_pid=
    done
    if [ -z "$forge_pid" ]; then
        cat "$forge_dir/sshd/log" >&2
        return 1
    fi
    echo "[127.0.0.1]:$forge_port $(cat "$forge_dir/sshd/host_key.pub")" >"$forge_dir/sshd/known_hosts"
    FORGE_URL=ssh://forge/acme/app.git
}

# One try to listen on $forge_port.
forge_listen() {
    cat >"$forge_dir/sshd/sshd_config" <<CONFIG
ListenAddress 127.0.0.1
Port $forge_port
HostKey $forge_dir/sshd/host_key
PidFile none
AuthorizedKeysFile $forge_dir/sshd/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
# bash takes itself for a login's first shell behind sshd, and would run the
# account's own .bashrc, whatever that prints and costs.
SetEnv SHLVL=1
CONFIG
    "$forge_sshd" -D -e -f "$forge_dir/sshd/sshd_config" 2>"$forge_dir/sshd/log" &
    forge_pid=$!
    while kill -0 "$forge_pid" 2>/dev/null; do
        grep -q 'Server listening' "$forge_dir/sshd/log" && return 0
        sleep 0.02
    done
    return 1
}

forge_user() {
    local name=$1 home=$forge_dir/$1
    mkdir -p "$home/bin"
    mkdir -p -m 700 "$home/run"
    printf '[user]\n\tname = %s\n\temail = %s@example.org\n' "$name" "$name" >"$home/gitconfig"
    [ -n "$forge_pid" ] || return 0
    ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$home/key"
    printf 'restrict,command="%s/git-claim-server openssh --config %s/config --as %s" %s\n' \
        "$forge_programs" "$forge_dir" "$name" "$(cat "$home/key.pub")" \
        >>"$forge_dir/sshd/authorized_keys"
    cat >"$home/ssh_config" <<CONFIG
Host forge
    HostName 127.0.0.1
    Port $forge_port
    User $(id -un)
    IdentityFile $home/key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile $forge_dir/sshd/known_hosts
    GlobalKnownHostsFile /dev/null
CONFIG
    # ssh takes its configuration from the account's home, whatever $HOME says.
    printf '#!/bin/sh\nexec %s -F %s/ssh_config "$@"\n' "$forge_ssh" "$home" >"$home/bin/ssh"
    chmod 755 "$home/bin/ssh"
}

forge_as() {
    local name=$1 home=$forge_dir/$1
    shift
    env -i PATH="$home/bin:$forge_programs:$PATH" HOME="$home" XDG_RUNTIME_DIR="$home/run" \
        TZ=UTC LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$home/gitconfig" "$@"
}

forge_stop() {
    [ -n "$forge_pid" ] || return 0
    # The connections first: sshd's death would leave them, and their clients' masters.
    local pid
    for pid in $(cat "/proc/$forge_pid/task/$forge_pid/children" 2>/dev/null); do
        kill "$pid" 2>/dev/null || true
    done
    kill "$forge_pid" 2>/dev/null || true
    wait "$forge_pid" 2>/dev/null || true
    forge_pid=
}
