/* json_get.c - json_get FILE [KEY]...: checks that a file is JSON and prints what the keys lead to, for the tests of the
 * programs. An array is entered by an index, "#" is its length; "--lines" as the first key takes the last of many
 * lines, each of which must be JSON. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *load_lines(const char *path)
{
    static char line[1 << 20];
    json_t *last = NULL;
    json_error_t error;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        json_decref(last);
        last = json_loads(line, JSON_REJECT_DUPLICATES, &error);
        if (!last) break;
    }
    if (file) fclose(file);
    return last;
}

int main(int argc, char **argv)
{
    json_error_t error = {.text = "a line is no JSON"};
    if (argc < 2) return 2;
    bool lines = argc > 2 && strcmp(argv[2], "--lines") == 0;
    json_t *root = lines ? load_lines(argv[1]) : json_load_file(argv[1], JSON_REJECT_DUPLICATES, &error);
    const json_t *at = root;
    json_t *length = NULL;
    for (int i = lines ? 3 : 2; i < argc && at; i++) {
        if (strcmp(argv[i], "#") == 0)
            at = length = json_integer((json_int_t)json_array_size(at));
        else
            at = json_is_array(at) ? json_array_get(at, strtoul(argv[i], NULL, 10))
                                   : json_object_get(at, argv[i]);
    }
    char *text = at ? json_dumps(at, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        puts(text);
    else
        fprintf(stderr, "%s: %s\n", argv[1], root ? "has no such member" : error.text);
    int status = text ? 0 : 1;
    free(text);
    json_decref(length);
    json_decref(root);
    return status;
}
