#!/bin/sh
# room_order.sh SOURCE_ROOT - a room of src/ may include only itself and rooms that stand before it in this list.
# Includes inside src/ are written "room/file.h", so that this can be seen. gpu and ops do not know each other, and the
# launchers of kernels/ are for gpu alone.
cd "$1" || exit 1
find src -name '*.[ch]' | sort | xargs awk '
BEGIN {
    n = split("base gguf quant model ops store gpu engine text serve", rooms, " ")
    for (i = 1; i <= n; i++) place[rooms[i]] = i
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split(FILENAME, path, "/")
    room = path[2]
    split($0, quoted, "\"")
    header = quoted[2]
    split(header, part, "/")
    if (room == "gpu" && header == "kernels/kernels.h") next
    if (!(part[1] in place) || header !~ /\//)
        message = "is not written \"room/file.h\""
    else if (!(room in place))
        message = "is in a room that is not in the list"
    else if (place[part[1]] > place[room] || (room == "gpu" && part[1] == "ops"))
        message = "names a room that " room " may not know"
    else
        next
    printf "%s:%d: #include \"%s\" %s\n", FILENAME, FNR, header, message
    bad++
}
END { exit bad > 0 }'
