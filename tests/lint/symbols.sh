#!/bin/sh
# symbols.sh NM LIBRARY - every symbol that the library defines for others begins with k3_.
"$1" --extern-only --defined-only "$2" | awk '
NF == 3 {
    symbols++
    if ($3 !~ /^k3_/) {
        print $3 " does not begin with k3_"
        bad++
    }
}
END {
    if (!symbols) print "no symbols at all: nm could not read the library"
    exit bad > 0 || !symbols
}'
