# debian.sh - sourced by quickstart and check: installs the Debian packages that are missing, and only those.

k3_missing=()

# need PACKAGE WHY TEST...: PACKAGE is missing unless the command TEST succeeds. What counts is that the thing works,
# so nothing is installed on a machine that has it from elsewhere.
need() {
    local package=$1 why=$2
    shift 2
    "$@" >/dev/null 2>&1 && return
    echo "missing: $package ($why)"
    k3_missing+=("$package")
}

need_to_build() {
    need gcc "C compiler" gcc --version
    need libc6-dev "C library headers" test -e /usr/include/stdio.h
    need meson "build system" meson --version
    need ninja-build "runs the build" ninja --version
    need pkg-config "finds libraries" pkg-config --version
    need libpcre2-dev "Unicode patterns of the tokenizer" pkg-config --exists libpcre2-8
    need libjansson-dev "JSON" pkg-config --exists jansson
    need liburing-dev "reads of experts" pkg-config --exists liburing
}

# Installs what `need` found missing.
install_missing() {
    [ ${#k3_missing[@]} -gt 0 ] || return 0
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        echo "apt-get is not here: please install what these Debian packages hold: ${k3_missing[*]}" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "neither root nor sudo: please run as root: apt-get install ${k3_missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "+ ${as_root[*]:+sudo }apt-get install ${k3_missing[*]}"
    "${as_root[@]}" apt-get update -qq || echo "apt-get update failed; trying with the lists that are here" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${k3_missing[@]}" >/dev/null || {
        echo "apt-get could not install: ${k3_missing[*]}" >&2
        return 1
    }
    k3_missing=()
}
