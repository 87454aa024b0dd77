/* chat_messages.c - the messages of a conversation, which come as JSON.
 *
 * Whatever else a message has is ignored; what is needed and is not there, or is of another type, is refused with its place.
 * Nothing of a message can become markup: texts are segments of their own, and names are escaped. */
#include "text/chat_internal.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char NEW_TOOLS_BEFORE[] =
    "## New Tools Available\nThe system dynamically extends the toolset via lazy-loading.\nYou have access "
    "to all existing "
    "and extended tools.\nHere are the specs for the extended tools.\n\n```json\n";
static const char NEW_TOOLS_AFTER[] = "\n```";

#define INDEX_MAX 24

/* Where the reading of messages is. */
struct history {
    struct k3_markup *m;
    const json_t *messages;
    size_t at;           /* the message that is read */
    const json_t *calls; /* of the last assistant's message, or NULL */
    size_t n_results;    /* tool messages since then */
    bool no_thinking;
};

static void refuse(struct history *h, const char *what)
{
    if (!h->m->status) h->m->status = k3_fail(h->m->err, K3_ERR_ARGUMENT, "message %zu %s", h->at + 1, what);
}

/* A string without zero bytes, as attributes are; NULL if there is none, which includes null and "". */
static const char *word(struct history *h, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) return NULL;
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value)) {
        char what[96];
        snprintf(what, sizeof what, "has a member \"%s\" that is not a string of characters", key);
        refuse(h, what);
        return NULL;
    }
    return *text ? text : NULL;
}

/* ---- content ---- */

static void put_part(struct history *h, const json_t *part)
{
    const char *type = word(h, part, "type");
    const json_t *text = json_object_get(part, "text");
    if (!type || strcmp(type, "text") != 0)
        refuse(h, "has a part of content that is not text, and this engine reads only text");
    else if (!json_is_string(text))
        refuse(h, "has a part of content without a text");
    else
        k3_markup_text(h->m, json_string_value(text), json_string_length(text));
}

/* A string, parts, or nothing. */
static void put_content(struct history *h, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    if (!content || json_is_null(content)) return;
    if (json_is_string(content)) {
        k3_markup_text(h->m, json_string_value(content), json_string_length(content));
    } else if (json_is_array(content)) {
        for (size_t i = 0; i < json_array_size(content); i++) put_part(h, json_array_get(content, i));
    } else {
        refuse(h, "has content that is neither text nor a list of parts");
    }
}

static void open_message(struct history *h, const json_t *message, const char *role)
{
    const char *name = word(h, message, "name");
    const struct k3_attribute attributes[] = {{"role", role}, {name ? "name" : NULL, name}, {0}};
    k3_markup_open(h->m, "message", attributes);
}

/* ---- users and the system ---- */

static void put_plain(struct history *h, const json_t *message, const char *role)
{
    open_message(h, message, role);
    put_content(h, message);
    k3_markup_end_message(h->m);
}

static void put_system(struct history *h, const json_t *message)
{
    const json_t *tools = json_object_get(message, "tools");
    struct k3_growing json = {0};
    if (!tools || json_is_null(tools)) {
        put_plain(h, message, "system");
        return;
    }
    if (!json_is_array(tools)) refuse(h, "has tools that are not a list");
    k3_json_put(&json, tools, true);
    if (json.failed && !h->m->status) h->m->status = k3_fail_memory(h->m->err, "the list of tools", json.n);
    k3_chat_internal(h->m, "tool-declare", NEW_TOOLS_BEFORE, json.bytes, json.n, NEW_TOOLS_AFTER);
    free(json.bytes);
}

/* ---- assistants ---- */

static bool is_blank(const char *text, size_t n)
{
    uint32_t code = 0;
    for (size_t at = 0, length; at < n; at += length)
        if (k3_utf8_next(text + at, n - at, &code, &length) != K3_UTF8_CHARACTER || !k3_is_space(code))
            return false;
    return true;
}

/* Every past turn has it, so that thinking is kept over the whole history; empty if there was none. */
static void put_thinking(struct history *h, const json_t *message)
{
    const json_t *text = json_object_get(message, "reasoning_content");
    if (!text || json_is_null(text)) text = json_object_get(message, "reasoning");
    if (text && !json_is_null(text) && !json_is_string(text)) refuse(h, "has reasoning that is not text");
    const char *bytes = json_string_value(text);
    size_t n = json_string_length(text);
    k3_markup_open(h->m, "think", NULL);
    if (!is_blank(bytes, n)) k3_markup_text(h->m, bytes, n);
    k3_markup_close(h->m, "think");
}

/* Calls come as OpenAI has them, in "function", or without it. */
static const json_t *function_of(const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    return json_is_object(function) ? function : call;
}

static void put_members(struct k3_markup *m, const struct k3_members *members)
{
    for (size_t i = 0; i < members->n; i++) {
        const struct k3_member *member = &members->list[i];
        k3_markup_open(m, "argument",
                       (struct k3_attribute[]){{"key", member->key}, {"type", member->type}, {0}});
        k3_markup_text(m, member->value, member->n);
        k3_markup_close(m, "argument");
    }
}

/* Arguments as JSON text. What is none was written by a model that went wrong, and stands as it was. */
static void put_arguments(struct history *h, const char *json, size_t n)
{
    struct k3_members members;
    enum k3_members_kind kind;
    if (h->m->status || is_blank(json, n)) return;
    h->m->status = k3_members_read(json, n, &members, &kind, h->m->err);
    if (h->m->status) return;
    if (kind == K3_MEMBERS_OTHER) refuse(h, "has a call whose arguments are JSON but not an object");
    if (kind == K3_MEMBERS_NOT_JSON) {
        k3_markup_open(h->m, "json", (struct k3_attribute[]){{"type", "object"}, {0}});
        k3_markup_text(h->m, json, n);
        k3_markup_close(h->m, "json");
    }
    put_members(h->m, &members);
    k3_members_free(&members);
}

static void put_call(struct history *h, const json_t *call, size_t number)
{
    const json_t *function = function_of(call), *arguments = json_object_get(function, "arguments");
    const char *name = word(h, function, "name");
    char index[INDEX_MAX];
    snprintf(index, sizeof index, "%zu", number);
    if (!name) {
        refuse(h, "has a call without a name");
        return;
    }
    k3_markup_open(h->m, "call", (struct k3_attribute[]){{"tool", name}, {"index", index}, {0}});
    if (json_is_string(arguments)) {
        put_arguments(h, json_string_value(arguments), json_string_length(arguments));
    } else if (json_is_object(arguments)) {
        struct k3_growing json = {0};
        k3_json_put(&json, arguments, false);
        if (json.failed && !h->m->status)
            h->m->status = k3_fail_memory(h->m->err, "arguments of a call", json.n);
        put_arguments(h, json.bytes, json.n);
        free(json.bytes);
    } else if (arguments && !json_is_null(arguments)) {
        refuse(h, "has a call whose arguments are neither text nor an object");
    }
    k3_markup_close(h->m, "call");
}

static void put_assistant(struct history *h, const json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (calls && !json_is_null(calls) && !json_is_array(calls))
        refuse(h, "has tool_calls that are not a list");
    open_message(h, message, "assistant");
    if (!h->no_thinking) put_thinking(h, message);
    k3_markup_open(h->m, "response", NULL);
    put_content(h, message);
    k3_markup_close(h->m, "response");
    if (json_array_size(calls)) k3_markup_open(h->m, "tools", NULL);
    for (size_t i = 0; i < json_array_size(calls); i++) put_call(h, json_array_get(calls, i), i + 1);
    if (json_array_size(calls)) k3_markup_close(h->m, "tools");
    k3_markup_end_message(h->m);
    h->calls = calls;
    h->n_results = 0;
}

/* ---- results of tools ---- */

static bool is_result(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "tool") == 0;
}

/* Which call a result belongs to by its id; the number of calls if to none. */
static size_t call_of(const struct history *h, const json_t *message)
{
    const json_t *id = json_object_get(message, "tool_call_id");
    if (!json_is_string(id)) id = json_object_get(message, "id");
    size_t n = json_array_size(h->calls), i = 0;
    while (i < n &&
           !(json_is_string(id) && json_equal(id, json_object_get(json_array_get(h->calls, i), "id"))))
        i++;
    return i;
}

static const char *call_name(struct history *h, size_t call)
{
    return word(h, function_of(json_array_get(h->calls, call)), "name");
}

static void put_result(struct history *h, const json_t *message, const char *name)
{
    char index[INDEX_MAX];
    snprintf(index, sizeof index, "%zu", ++h->n_results);
    if (!name) {
        refuse(h, "is the result of a tool that is not named");
        return;
    }
    k3_markup_open(h->m, "message",
                   (struct k3_attribute[]){{"role", "tool"}, {"tool", name}, {"index", index}, {0}});
    put_content(h, message);
    k3_markup_end_message(h->m);
}

/* Results of calls that are all known, in the order of the calls: n messages from `first` on. */
static void put_in_order(struct history *h, size_t first, size_t n)
{
    for (size_t call = 0; call < json_array_size(h->calls); call++)
        for (h->at = first; h->at < first + n; h->at++) {
            const json_t *message = json_array_get(h->messages, h->at);
            if (call_of(h, message) == call) put_result(h, message, call_name(h, call));
        }
}

static void put_as_they_come(struct history *h, size_t first, size_t n)
{
    for (h->at = first; h->at < first + n; h->at++) {
        const json_t *message = json_array_get(h->messages, h->at);
        const char *name = word(h, message, "tool");
        if (!name) name = word(h, message, "name");
        if (!name) name = call_name(h, h->n_results);
        put_result(h, message, name);
    }
}

/* A run of results. Afterwards h->at is the first message that is none. */
static void put_results(struct history *h)
{
    size_t first = h->at, n = 0, n_known = 0;
    for (const json_t *m; (m = json_array_get(h->messages, first + n)) && is_result(m); n++)
        n_known += call_of(h, m) < json_array_size(h->calls);
    if (n_known == n)
        put_in_order(h, first, n);
    else
        put_as_they_come(h, first, n);
    h->at = first + n;
}

/* ---- all of them ---- */

static void put_message(struct history *h, const json_t *message)
{
    const char *role = json_is_object(message) ? word(h, message, "role") : NULL;
    if (!role)
        refuse(h, "has no role");
    else if (strcmp(role, "user") == 0)
        put_plain(h, message, "user");
    else if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        put_system(h, message);
    else if (strcmp(role, "assistant") == 0)
        put_assistant(h, message);
    else
        refuse(h, "has a role that is none of system, developer, user, assistant and tool");
}

void k3_chat_messages(struct k3_markup *m, const json_t *messages, bool no_thinking)
{
    struct history h = {.m = m, .messages = messages, .no_thinking = no_thinking};
    while (h.at < json_array_size(messages) && !m->status) {
        const json_t *message = json_array_get(messages, h.at);
        if (is_result(message)) {
            put_results(&h);
        } else {
            put_message(&h, message);
            h.at++;
        }
    }
}
