#!/usr/bin/env bash
# `make demo`: two people race for one issue on a throwaway forge.
#
# Every command is shown with the output that it really had; the demo fails if
# anything is not as it should be. Nothing is left behind.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/forge.sh

printf 'building …\n'
cargo build --workspace --locked --quiet
programs=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)

work=$(mktemp -d)
trap 'forge_stop; rm -rf "$work"' EXIT

bold= plain=
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi

story() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
fail() { printf '\nthe demo failed: %s\n' "$*" >&2; exit 1; }

# Runs a command as NAME in NAME's clone and shows it; fails unless it exits with WANTED.
run() {
    local wanted=$1 name=$2 status=0
    shift 2
    printf '%s %s$%s %s\n' "$name" "$bold" "$plain" "$*"
    (cd "$work/$name/app" && forge_as "$name" "$@") 2>&1 || status=$?
    [ "$status" = "$wanted" ] || fail "'$*' ended with exit $status instead of $wanted"
}

forge_start "$work" "$programs"
if [ "$FORGE_URL" = ssh://forge/acme/app.git ]; then
    story "A forge on loopback: sshd, one key a person. Alice and Bob clone over it."
else
    story "No sshd here, so the forge is a local path. Alice and Bob clone it."
fi
for name in alice bob; do
    forge_user "$name"
    printf '%s %s$%s git clone %s\n' "$name" "$bold" "$plain" "$FORGE_URL"
    forge_as "$name" git clone -q "$FORGE_URL" "$work/$name/app" || fail "$name could not clone"
done

story "Both claim issue 862b6f3 in the same moment."
for name in alice bob; do
    printf '%s %s$%s git claim 862b6f3 --ttl 2h\n' "$name" "$bold" "$plain"
    (
        status=0
        cd "$work/$name/app"
        forge_as "$name" git claim 862b6f3 --ttl 2h >"$work/$name/said" 2>&1 || status=$?
        echo "$status" >"$work/$name/status"
    ) &
    racers+=($!)
done
wait "${racers[@]}"
for name in alice bob; do
    while IFS= read -r line; do printf '%s: %s\n' "$name" "$line"; done <"$work/$name/said"
done
case $(cat "$work/alice/status")$(cat "$work/bob/status") in
04) winner=alice loser=bob ;;
40) winner=bob loser=alice ;;
*) fail "the race ended with exit $(cat "$work/alice/status") for alice and $(cat "$work/bob/status") for bob" ;;
esac
printf '→ %s has it; %s was told so, with exit 4.\n' "$winner" "$loser"

story "Everybody sees who works on what."
run 0 "$loser" git claims

story "The loser tries again, then takes another issue, for two seconds."
run 4 "$loser" git claim 862b6f3
run 0 "$loser" git claim ae1c051 --ttl 2s

story "The winner wants that one too, and has to wait until it has run out."
run 4 "$winner" git claim ae1c051
sleep 3
run 0 "$winner" git claim ae1c051 --json | tee "$work/reply"
grep -q '"token":2[,}]' "$work/reply" || fail "the next tenure should have token 2"
printf '→ a new tenure: token 2. A push that shows token 1 can be told from it.\n'

story "The history knows both."
run 0 "$winner" git claim log ae1c051

story "The winner is done, and the first issue is free again."
run 0 "$winner" git unclaim 862b6f3
run 0 "$loser" git claim 862b6f3
