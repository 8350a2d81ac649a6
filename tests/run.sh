#!/usr/bin/env bash
# Installs what the tests need and runs all of them: `make test`.
#
# On a Debian with a Rust toolchain, git and a C compiler nothing else has to be
# there. As root, missing packages come through apt-get; anybody else is told
# what to install.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# sshd is where plain users do not look.
PATH=$PATH:/usr/sbin:/sbin

# program or file, and the Debian package that has it
needed='cargo -
git git
cc gcc
sshd openssh-server
ssh openssh-client
man man-db
nm binutils
setpriv util-linux
/usr/share/bash-completion/bash_completion bash-completion
zsh zsh
fish fish
sshfs sshfs
gitolite gitolite3
lighttpd lighttpd
chromium chromium
mandoc mandoc
unshare util-linux
ip iproute2
make make
mmdebstrap mmdebstrap
dpkg-shlibdeps dpkg-dev
xz xz-utils
etcd etcd-server
openssl openssl
valgrind valgrind'

packages=()
while read -r program package; do
    [ ! -e "$program" ] || continue
    command -v "$program" >/dev/null && continue
    [ "$package" != - ] || die "there is no $program; see https://rustup.rs"
    packages+=("$package")
done <<<"$needed"

if [ ${#packages[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || die "these Debian packages are missing: ${packages[*]}
hint: sudo apt-get install ${packages[*]}"
    say "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null
    # The tests run daemons of their own. In runlevel 1, and with systemd taken
    # for absent, those of the packages are not started now, nor later.
    export RUNLEVEL=1 SYSTEMD_OFFLINE=1
    apt-get install -qq --no-install-recommends "${packages[@]}" </dev/null >/dev/null
    if command -v systemctl >/dev/null; then
        for package in lighttpd etcd-server; do
            [[ " ${packages[*]} " = *" $package "* ]] || continue
            systemctl --quiet disable "${package%-server}.service" >/dev/null 2>&1 || true
        done
    fi
    unset RUNLEVEL SYSTEMD_OFFLINE
fi

say "building the workspace"
# The examples too: a test runs one of them.
cargo build --workspace --locked --lib --bins --examples

# The packages' tests take it from there, if it is not installed.
tools=${CARGO_TARGET_DIR:-target}/tools
if ! PATH=$tools/bin:$PATH cargo deb --version >/dev/null 2>&1; then
    say "building cargo-deb"
    cargo install cargo-deb --quiet --locked --version ^3 --debug --no-default-features \
        --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi

say "checking that the plugin does not build with panic=abort"
if output=$(cargo check -p git-claim-plugin --locked --config 'profile.dev.panic="abort"' 2>&1); then
    die "the plugin builds with panic=abort: a panic would take the forge down"
fi
grep -q 'error: .*panic' <<<"$output" ||
    die "the plugin fails to build with panic=abort, but not for that reason:
$output"

say "checking that the plugin builds without etcd's client"
cargo check -p git-claim-plugin --locked --quiet --no-default-features

if cargo nextest --version >/dev/null 2>&1; then
    say "running the examples in the documentation"
    cargo test --workspace --locked --doc --quiet
    say "running the tests with cargo nextest"
    exec cargo nextest run --workspace --locked --no-fail-fast
fi
say "running the tests"
exec cargo test --workspace --locked --no-fail-fast
