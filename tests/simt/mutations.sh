#!/usr/bin/env bash
# mutations.sh LIST KERNELS BUILD COMPILER... - every mistake of LIST, made in a copy of KERNELS, makes the test fail
# that watches the kernel. BUILD is the build folder of the right ones; COMPILER... compiles a kernel for the
# emulator. MUTATIONS_ONLY=TEXT: only the lines of LIST that contain it.
set -u
list=$1 kernels=$2 build=$3
shift 3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

trim() {
    local text=$1
    text=${text#"${text%%[![:space:]]*}"}
    printf '%s' "${text%"${text##*[![:space:]]}"}"
}

# mutate FROM TO RIGHT WRONG: the copy TO of FROM with WRONG instead of RIGHT, which must stand in it once. "~" is the
# end of a line and the spaces around it.
mutate() {
    RIGHT=$3 WRONG=$4 awk '
    BEGIN {
        right = ENVIRON["RIGHT"]
        gsub(/[][\\.^$*+?(){}|\/]/, "\\\\&", right)
        gsub(/~/, "[ ]*\n[ ]*", right)
        wrong = ENVIRON["WRONG"]
        gsub(/~/, "\n", wrong)
    }
    { text = text $0 "\n" }
    END {
        if (!match(text, right)) exit 1
        before = substr(text, 1, RSTART - 1)
        after = substr(text, RSTART + RLENGTH)
        if (match(after, right)) exit 1
        printf "%s%s%s", before, wrong, after
    }' "$1" >"$2"
}

# The kernels that include a header are compiled again with it.
sources_with() {
    case $1 in
    *.h) (cd "$kernels" && grep -l "#include \"$1\"" *.cu) ;;
    *) echo "$1" ;;
    esac
}

# build_and_run FILE TEST: 0 if the test passes, 1 if it fails, 2 if it cannot be built. Objects stand before the
# library of right kernels, which then has nothing left to give for them.
build_and_run() {
    local source objects=()
    for source in $(sources_with "$1"); do
        cp -n "$kernels/$source" "$scratch/kernels/"
        printf '#include "%s"\n' "$source" >"$scratch/$source.cc"
        "${compiler[@]}" -iquote "$scratch/kernels" -O1 -w -c "$scratch/$source.cc" \
            -o "$scratch/$source.o" || return 2
        objects+=("$scratch/$source.o")
    done
    "${compiler[@]}" "$build/tests/simt/test_kernels_$2.p"/{"test_kernels_$2",on_device}.c.o "${objects[@]}" \
        "$build/tests/simt/emulator"/{libemulated_kernels,libsimt}.a "$build/libk3.a" \
        -lcmocka -lm -lpthread -o "$scratch/test" || return 2
    timeout 60 "$scratch/test" >"$scratch/out" 2>&1 && return 0
    return 1
}

compiler=("$@")
caught=0 missed=0
while IFS='|' read -r file name right wrong; do
    case $file in '' | '#'*) continue ;; esac
    case "$file|$name|$right|$wrong" in *"${MUTATIONS_ONLY-}"*) ;; *) continue ;; esac
    file=$(trim "$file") name=$(trim "$name") right=$(trim "$right") wrong=$(trim "$wrong")
    rm -rf "$scratch/kernels"
    mkdir "$scratch/kernels"
    if ! mutate "$kernels/$file" "$scratch/kernels/$file" "$right" "$wrong"; then
        echo "$file does not have once: $right"
        missed=$((missed + 1))
        continue
    fi
    build_and_run "$file" "$name" 2>"$scratch/errors"
    case $? in
    1)
        caught=$((caught + 1))
        echo "$file: $right -> $wrong"
        grep -m 1 -E 'expected|it |nothing wrote' "$scratch/out" || tail -n 1 "$scratch/out"
        ;;
    0)
        missed=$((missed + 1))
        echo "NOT CAUGHT: $file: $right -> $wrong"
        ;;
    *)
        missed=$((missed + 1))
        echo "DOES NOT COMPILE: $file: $right -> $wrong"
        head -n 5 "$scratch/errors"
        ;;
    esac
done <"$list"
echo "$caught caught, $missed not"
[ "$missed" -eq 0 ] && [ "$caught" -gt 0 ]
