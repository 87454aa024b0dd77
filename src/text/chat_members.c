/* chat_members.c - the arguments of a call, which come as JSON text, for the protocol.
 *
 * Numbers must keep their spelling: the next turn's prompt is what the model wrote, 1e2 included, and a library that reads
 * numbers forgets how they were spelled. So the text is walked here, by the grammar of RFC 8259, and written with other
 * white space; only strings are read by Jansson. */
#include "text/chat_internal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 512

struct walk {
    const char *at, *end;
    struct k3_growing *out;
    unsigned depth;
};

static void skip_space(struct walk *w)
{
    while (w->at < w->end && (*w->at == ' ' || *w->at == '\t' || *w->at == '\n' || *w->at == '\r')) w->at++;
}

static bool next_is(const struct walk *w, char c)
{
    return w->at < w->end && *w->at == c;
}

static bool take(struct walk *w, char c)
{
    if (!next_is(w, c)) return false;
    w->at++;
    return true;
}

static bool take_word(struct walk *w, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(w->end - w->at) < n || memcmp(w->at, word, n) != 0) return false;
    w->at += n;
    return true;
}

/* ---- strings ---- */

/* The string that begins here; NULL: it is none. */
static json_t *take_string(struct walk *w)
{
    const char *begin = w->at;
    if (!take(w, '"')) return NULL;
    while (w->at < w->end && *w->at != '"') w->at += *w->at == '\\' && w->end - w->at > 1 ? 2 : 1;
    if (!take(w, '"')) return NULL;
    return json_loadb(begin, (size_t)(w->at - begin), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static bool put_string(struct walk *w)
{
    json_t *string = take_string(w);
    if (string) k3_json_put_string(w->out, json_string_value(string), json_string_length(string));
    json_decref(string);
    return string != NULL;
}

/* ---- numbers ---- */

static bool take_digits(struct walk *w)
{
    const char *begin = w->at;
    while (w->at < w->end && *w->at >= '0' && *w->at <= '9') w->at++;
    return w->at > begin;
}

static bool put_number(struct walk *w)
{
    const char *begin = w->at;
    take(w, '-');
    if (!take(w, '0') && !take_digits(w)) return false;
    if (take(w, '.') && !take_digits(w)) return false;
    if (take(w, 'e') || take(w, 'E')) {
        if (!take(w, '+')) take(w, '-');
        if (!take_digits(w)) return false;
    }
    k3_growing_put(w->out, begin, (size_t)(w->at - begin));
    return true;
}

/* ---- values ---- */

static bool put_value(struct walk *w);

static bool put_member(struct walk *w)
{
    if (!put_string(w)) return false;
    skip_space(w);
    if (!take(w, ':')) return false;
    k3_growing_put(w->out, ": ", 2);
    return put_value(w);
}

/* From the opening bracket on. */
static bool put_list(struct walk *w, char end, bool (*put_item)(struct walk *w))
{
    k3_growing_put(w->out, w->at++, 1);
    skip_space(w);
    for (bool first = true; !next_is(w, end); first = false) {
        if (!first && !take(w, ',')) return false;
        if (!first) k3_growing_put(w->out, ", ", 2);
        skip_space(w);
        if (!put_item(w)) return false;
        skip_space(w);
    }
    k3_growing_put(w->out, w->at++, 1);
    return true;
}

static bool put_constant(struct walk *w)
{
    const char *begin = w->at;
    if (!take_word(w, "true") && !take_word(w, "false") && !take_word(w, "null")) return false;
    k3_growing_put(w->out, begin, (size_t)(w->at - begin));
    return true;
}

static bool put_value(struct walk *w)
{
    bool ok = false;
    skip_space(w);
    if (w->at == w->end || w->depth == MAX_DEPTH) return false;
    w->depth++;
    switch (*w->at) {
    case '{':
        ok = put_list(w, '}', put_member);
        break;
    case '[':
        ok = put_list(w, ']', put_value);
        break;
    case '"':
        ok = put_string(w);
        break;
    case 't':
    case 'f':
    case 'n':
        ok = put_constant(w);
        break;
    default:
        ok = put_number(w);
    }
    w->depth--;
    return ok;
}

bool k3_json_respace(const char *json, size_t n, struct k3_growing *out)
{
    if (n == 0) return false; /* and json may be NULL */
    struct walk w = {json, json + n, out, 0};
    bool ok = put_value(&w);
    skip_space(&w);
    return ok && w.at == w.end;
}

static const char *type_of(char first)
{
    switch (first) {
    case '{':
        return "object";
    case '[':
        return "array";
    case '"':
        return "string";
    case 't':
    case 'f':
        return "boolean";
    case 'n':
        return "null";
    default:
        return "number";
    }
}

/* ---- members ---- */

void k3_members_free(struct k3_members *members)
{
    for (size_t i = 0; i < members->n; i++) {
        free(members->list[i].key);
        free(members->list[i].value);
    }
    free(members->list);
    *members = (struct k3_members){0};
}

bool k3_members_add(struct k3_members *members, struct k3_member member)
{
    size_t i = 0;
    while (i < members->n && strcmp(members->list[i].key, member.key) != 0) i++;
    if (i < members->n) {
        free(members->list[i].key);
        free(members->list[i].value);
    } else if ((i & (i - 1)) == 0) { /* full: 0, 1, 2, 4, .. */
        struct k3_member *grown = realloc(members->list, (i ? 2 * i : 1) * sizeof *grown);
        if (!grown) {
            free(member.key);
            free(member.value);
            return false;
        }
        members->list = grown;
    }
    if (i == members->n) members->n++;
    members->list[i] = member;
    return true;
}

/* A key or the text of a string; *n: its bytes. NULL: it is none, or memory is out, and then `failed` says so. */
static char *own_string(struct walk *w, size_t *n)
{
    json_t *string = take_string(w);
    char *copy = NULL;
    if (string) {
        *n = json_string_length(string);
        copy = malloc(*n + 1);
        if (copy)
            memcpy(copy, json_string_value(string), *n + 1);
        else
            w->out->failed = true;
    }
    json_decref(string);
    return copy;
}

/* Whether a member was read; memory that was out is remembered in w->out. */
static bool read_member(struct walk *w, struct k3_members *members)
{
    struct k3_growing value = {0}, *failures = w->out;
    size_t n_key = 0;
    char *key = own_string(w, &n_key);
    bool ok = key && strlen(key) == n_key;
    skip_space(w);
    ok = ok && take(w, ':');
    skip_space(w);
    const char *type = type_of(w->at < w->end ? *w->at : 0);
    if (ok && next_is(w, '"')) {
        value.bytes = own_string(w, &value.n);
        ok = value.bytes != NULL;
    } else if (ok) {
        w->out = &value;
        ok = put_value(w);
        w->out = failures;
    }
    if (value.failed) failures->failed = true;
    if (!ok || value.failed) {
        free(key);
        free(value.bytes);
        return false;
    }
    if (k3_members_add(members, (struct k3_member){key, type, value.bytes, value.n})) return true;
    failures->failed = true;
    return false;
}

static bool read_object(struct walk *w, struct k3_members *members)
{
    w->at++;
    skip_space(w);
    for (bool first = true; !next_is(w, '}'); first = false) {
        if (!first && !take(w, ',')) return false;
        skip_space(w);
        if (!read_member(w, members)) return false;
        skip_space(w);
    }
    w->at++;
    return true;
}

k3_status k3_members_read(const char *json, size_t n, struct k3_members *members, enum k3_members_kind *kind,
                          struct k3_error *err)
{
    struct k3_growing rest = {0};
    struct walk w = {json, json + n, &rest, 1};
    *members = (struct k3_members){0};
    skip_space(&w);
    bool object = next_is(&w, '{');
    bool ok = object ? read_object(&w, members) : put_value(&w);
    skip_space(&w);
    if (w.at != w.end) ok = false;
    *kind = !ok ? K3_MEMBERS_NOT_JSON : object ? K3_MEMBERS_OBJECT : K3_MEMBERS_OTHER;
    if (!ok) k3_members_free(members);
    bool failed = rest.failed;
    free(rest.bytes);
    return failed ? k3_fail_memory(err, "the arguments of a call", n) : K3_OK;
}
