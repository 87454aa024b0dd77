/* chat_message.c - see chat_message.h. */
#include "text/chat_message.h"

#include <stdlib.h>
#include <string.h>

static char *own(struct k3_chat_message *m, const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    if (!copy) {
        m->failed = true;
        return NULL;
    }
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

static void put(struct k3_growing *t, const char *text)
{
    k3_growing_put(t, text, strlen(text));
}

/* ---- arguments ---- */

/* The type of an argument: the model's word for it, or else the tool's; "string" if nobody knows. */
static const char *type_of(const struct k3_chat_message *m)
{
    const char *known = NULL;
    if (m->type && *m->type) return m->type;
    if (m->n_calls && m->calls[m->n_calls - 1].name && m->key)
        known = json_string_value(
            json_object_get(json_object_get(m->schema, m->calls[m->n_calls - 1].name), m->key));
    return known ? known : "string";
}

/* What is no string is JSON; if it is not, it is a string after all. */
static void end_argument(struct k3_chat_message *m)
{
    struct k3_growing json = {0};
    if (!m->in_argument) return;
    m->in_argument = false;
    if (strcmp(type_of(m), "string") == 0 || !k3_json_respace(m->value.bytes, m->value.n, &json)) {
        json.n = 0;
        k3_json_put_string(&json, m->value.bytes, m->value.n);
    }
    if (json.failed || !m->key ||
        !k3_members_add(&m->calls[m->n_calls - 1].members,
                        (struct k3_member){m->key, NULL, json.bytes, json.n})) {
        m->failed = true;
        if (!m->key) free(json.bytes);
    }
    m->key = NULL;
}

static void begin_argument(struct k3_chat_message *m, const struct k3_chat_event *event)
{
    end_argument(m);
    if (!m->open) return;
    free(m->key);
    free(m->type);
    m->key = own(m, event->text, event->n);
    m->type = own(m, event->type, strlen(event->type));
    m->value.n = 0;
    m->in_argument = true;
}

bool k3_called_arguments(const struct k3_called *call, struct k3_growing *out)
{
    struct k3_members members;
    enum k3_members_kind kind = K3_MEMBERS_OTHER;
    if (call->json.n) {
        if (k3_members_read(call->json.bytes, call->json.n, &members, &kind, NULL) != K3_OK)
            out->failed = true;
        k3_members_free(&members);
        return kind == K3_MEMBERS_OBJECT && k3_json_respace(call->json.bytes, call->json.n, out);
    }
    put(out, "{");
    for (size_t i = 0; i < call->members.n; i++) {
        const struct k3_member *member = &call->members.list[i];
        if (i) put(out, ", ");
        k3_json_put_string(out, member->key, strlen(member->key));
        put(out, ": ");
        k3_growing_put(out, member->value, member->n);
    }
    put(out, "}");
    return true;
}

/* ---- calls ---- */

static void begin_call(struct k3_chat_message *m, const struct k3_chat_event *event)
{
    struct k3_called *grown = realloc(m->calls, (m->n_calls + 1) * sizeof *grown);
    if (!grown) {
        m->failed = true;
        return;
    }
    m->calls = grown;
    m->calls[m->n_calls] = (struct k3_called){.name = own(m, event->text, event->n)};
    m->n_calls++;
    m->open = true;
}

static void free_call(struct k3_called *call)
{
    free(call->name);
    k3_members_free(&call->members);
    free(call->json.bytes);
}

/* ---- events ---- */

void k3_chat_message_add(void *ctx, const struct k3_chat_event *event)
{
    struct k3_chat_message *m = ctx;
    switch (event->kind) {
    case K3_CHAT_THINK:
        k3_growing_put(&m->reasoning, event->text, event->n);
        break;
    case K3_CHAT_RESPONSE:
        k3_growing_put(&m->content, event->text, event->n);
        break;
    case K3_CHAT_CALL:
        begin_call(m, event);
        break;
    case K3_CHAT_ARGUMENT:
        begin_argument(m, event);
        break;
    case K3_CHAT_VALUE:
        if (m->in_argument) k3_growing_put(&m->value, event->text, event->n);
        break;
    case K3_CHAT_JSON:
        if (m->open) k3_growing_put(&m->calls[m->n_calls - 1].json, event->text, event->n);
        break;
    case K3_CHAT_CALL_END:
        end_argument(m);
        m->open = false;
        break;
    case K3_CHAT_MESSAGE_END:
        m->ended = true;
        break;
    }
}

/* ---- the message ---- */

static size_t n_complete(const struct k3_chat_message *m)
{
    return m->n_calls - m->open;
}

const char *k3_chat_message_reason(const struct k3_chat_message *m)
{
    return !m->ended ? "length" : n_complete(m) ? "tool_calls" : "stop";
}

static void put_call(struct k3_growing *out, const struct k3_called *call)
{
    struct k3_growing arguments = {0};
    put(out, "{\"name\": ");
    k3_json_put_string(out, call->name ? call->name : "", call->name ? strlen(call->name) : 0);
    put(out, ", \"arguments\": ");
    if (k3_called_arguments(call, &arguments))
        k3_growing_put(out, arguments.bytes, arguments.n);
    else
        k3_json_put_string(out, call->json.bytes, call->json.n);
    if (arguments.failed) out->failed = true;
    put(out, "}");
    free(arguments.bytes);
}

k3_status k3_chat_message_json(struct k3_chat_message *m, struct k3_growing *out, struct k3_error *err)
{
    put(out, "{\"reasoning_content\": ");
    k3_json_put_string(out, m->reasoning.bytes, m->reasoning.n);
    put(out, ", \"content\": ");
    k3_json_put_string(out, m->content.bytes, m->content.n);
    put(out, ", \"tool_calls\": [");
    for (size_t i = 0; i < n_complete(m); i++) {
        if (i) put(out, ", ");
        put_call(out, &m->calls[i]);
    }
    put(out, "], \"finish_reason\": \"");
    put(out, k3_chat_message_reason(m));
    put(out, "\"}");
    if (m->failed || m->reasoning.failed || m->content.failed || out->failed)
        return k3_fail_memory(err, "a message", out->n);
    return K3_OK;
}

void k3_chat_message_free(struct k3_chat_message *m)
{
    for (size_t i = 0; i < m->n_calls; i++) free_call(&m->calls[i]);
    free(m->calls);
    free(m->reasoning.bytes);
    free(m->content.bytes);
    free(m->key);
    free(m->type);
    free(m->value.bytes);
    *m = (struct k3_chat_message){0};
}
