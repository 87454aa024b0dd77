/* chat_transcript.h - what a client makes of the events of a chat parser. */
#ifndef K3_TESTS_CHAT_TRANSCRIPT_H
#define K3_TESTS_CHAT_TRANSCRIPT_H

#include <k3/k3.h>

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

struct growing {
    char bytes[8192];
    size_t n;
};

struct transcript {
    struct growing reasoning, content, value, json;
    char key[256], type[32];
    bool in_call, in_argument, ended;
    json_t *name, *arguments; /* of the call that is open */
    json_t *calls;
};

static inline void grow(struct growing *g, const char *text, size_t n)
{
    if (n > sizeof g->bytes - g->n) n = sizeof g->bytes - g->n;
    memcpy(g->bytes + g->n, text, n);
    g->n += n;
}

/* A value whose type is not string is read as JSON; if that fails it is a string after all. */
static inline void end_argument(struct transcript *t)
{
    if (!t->in_argument) return;
    json_t *value = NULL;
    if (t->type[0] && strcmp(t->type, "string") != 0)
        value = json_loadb(t->value.bytes, t->value.n, JSON_DECODE_ANY, NULL);
    if (!value) value = json_stringn(t->value.bytes, t->value.n);
    json_object_set_new(t->arguments, t->key, value);
    t->in_argument = false;
}

static inline void begin_call(struct transcript *t, const struct k3_chat_event *event)
{
    json_decref(t->name);
    json_decref(t->arguments);
    t->name = json_stringn(event->text, event->n);
    t->arguments = json_object();
    t->json.n = 0;
    t->in_call = true;
}

static inline void end_call(struct transcript *t)
{
    end_argument(t);
    if (t->json.n) {
        json_t *object = json_loadb(t->json.bytes, t->json.n, 0, NULL);
        json_decref(t->arguments);
        t->arguments = json_is_object(object) ? json_incref(object) : json_stringn(t->json.bytes, t->json.n);
        json_decref(object);
    }
    json_array_append_new(t->calls, json_pack("{s:o,s:o}", "name", t->name, "arguments", t->arguments));
    t->name = t->arguments = NULL;
    t->in_call = false;
}

static inline void transcribe(void *ctx, const struct k3_chat_event *event)
{
    struct transcript *t = ctx;
    switch (event->kind) {
    case K3_CHAT_THINK:
        grow(&t->reasoning, event->text, event->n);
        break;
    case K3_CHAT_RESPONSE:
        grow(&t->content, event->text, event->n);
        break;
    case K3_CHAT_CALL:
        begin_call(t, event);
        break;
    case K3_CHAT_ARGUMENT:
        end_argument(t);
        snprintf(t->key, sizeof t->key, "%.*s", (int)event->n, event->text);
        snprintf(t->type, sizeof t->type, "%s", event->type);
        t->value.n = 0;
        t->in_argument = true;
        break;
    case K3_CHAT_VALUE:
        grow(&t->value, event->text, event->n);
        break;
    case K3_CHAT_JSON:
        grow(&t->json, event->text, event->n);
        break;
    case K3_CHAT_CALL_END:
        end_call(t);
        break;
    case K3_CHAT_MESSAGE_END:
        t->ended = true;
        break;
    }
}

static inline const char *finish_reason(const struct transcript *t)
{
    return !t->ended ? "length" : json_array_size(t->calls) ? "tool_calls" : "stop";
}

static inline void transcript_free(struct transcript *t)
{
    json_decref(t->name);
    json_decref(t->arguments);
    json_decref(t->calls);
}

#endif
