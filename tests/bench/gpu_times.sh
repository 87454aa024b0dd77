#!/bin/sh
# gpu_times.sh K3BENCH JSON_GET - k3bench gpu times every kernel, and none of them makes a mistake that is seen. Skipped
# (77) where there is no GPU.
bench=$1 get=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

if ! "$bench" gpu -r 1 --json >"$work/times" 2>"$work/err"; then
    cat "$work/err"
    grep -q 'there is no GPU' "$work/err" && exit 77
    exit 1
fi

# is WANT KEY...
is() {
    want=$1
    shift
    got=$("$get" "$work/times" "$@")
    [ "$got" = "$want" ] && return
    echo "$*: '$got' is not '$want'"
    exit 1
}

is 24 rows '#'
is '"copy"' rows 0 name
is 1.0 rows 0 share_of_limit
is '"matrix units"' rows 7 limit
for row in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do
    "$get" "$work/times" rows $row seconds | grep -qE '^[0-9.e-]*[1-9]' || {
        echo "row $row was not timed"
        exit 1
    }
done
