/* chat_conversation.c - a whole conversation, which comes as JSON, as a prompt. */
#include "text/chat_internal.h"

#include <stdlib.h>
#include <string.h>

static const char MUST_CALL[] =
    "The system is invoked with `tool_choice=required`.\nYou MUST call tools in the next message.";
static const char MUST_NOT_CALL[] =
    "The system is invoked with `tool_choice=none`.\nYou MUST NOT call any tools in the next message.";

#define RAW_JSON                                                                                             \
    "Your response must be raw JSON data without markdown code blocks (```json) or any additional "          \
    "formatting."
static const char RAW_OBJECT[] = "The system is invoked with `response_format=json_object`.\n" RAW_JSON;
static const char SCHEMA_BEFORE[] = "The system is invoked with `response_format=json_schema`.\n" RAW_JSON
                                    "\nThe JSON data must match the following schema:\n```json\n";
static const char SCHEMA_AFTER[] = "\n```";

static void refuse(struct k3_markup *m, const char *what)
{
    if (!m->status) m->status = k3_fail(m->err, K3_ERR_ARGUMENT, "%s", what);
}

/* A member that is there and not null. */
static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* ---- effort ---- */

/* What callers of other servers say, in the words of the model. */
static const char *known_effort(const char *effort)
{
    static const char *const words[][2] = {{"minimal", "low"}, {"medium", "high"}, {"xhigh", "max"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(effort, words[i][0]) == 0) return words[i][1];
    return effort;
}

/* Not said: as much as can be. Said to be null: nothing is said to the model. */
static void put_effort(struct k3_markup *m, const json_t *conversation)
{
    const json_t *effort = json_object_get(conversation, "effort");
    if (!effort) effort = json_object_get(conversation, "thinking_effort");
    if (!effort)
        k3_chat_set_effort(m, "max");
    else if (json_is_string(effort))
        k3_chat_set_effort(m, known_effort(json_string_value(effort)));
    else if (!json_is_null(effort))
        refuse(m, "the effort is not a string");
}

/* ---- after the messages ---- */

/* A tool that is named must be called, so it is "required" here; which one is for those who sample. */
static void put_tool_choice(struct k3_markup *m, const json_t *choice)
{
    const char *word = json_is_object(choice) ? "required" : json_string_value(choice);
    if (!choice || (word && strcmp(word, "auto") == 0)) return;
    if (word && strcmp(word, "required") == 0)
        k3_chat_internal(m, "tool-choice", MUST_CALL, "", 0, "");
    else if (word && strcmp(word, "none") == 0)
        k3_chat_internal(m, "tool-choice", MUST_NOT_CALL, "", 0, "");
    else
        refuse(m, "tool_choice is none of \"none\", \"auto\", \"required\" and a tool");
}

static void put_schema(struct k3_markup *m, const json_t *outer)
{
    const json_t *schema = member(outer, "schema");
    struct k3_growing json = {0};
    if (!schema) schema = member(outer, "json_schema");
    if (!schema) schema = outer;
    if (!json_is_object(schema)) {
        refuse(m, "response_format has no schema that is an object");
        return;
    }
    k3_json_put(&json, schema, true);
    if (json.failed && !m->status) m->status = k3_fail_memory(m->err, "the schema of the response", json.n);
    k3_chat_internal(m, "response-format", SCHEMA_BEFORE, json.bytes, json.n, SCHEMA_AFTER);
    free(json.bytes);
}

static void put_response_format(struct k3_markup *m, const json_t *format)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!format || (type && strcmp(type, "text") == 0)) return;
    if (type && strcmp(type, "json_object") == 0)
        k3_chat_internal(m, "response-format", RAW_OBJECT, "", 0, "");
    else if (type && strcmp(type, "json_schema") == 0)
        put_schema(m, member(format, "json_schema"));
    else
        refuse(m, "the type of response_format is none of \"text\", \"json_object\" and \"json_schema\"");
}

/* ---- all of it ---- */

static bool flag(struct k3_markup *m, const json_t *conversation, const char *key)
{
    const json_t *value = member(conversation, key);
    if (value && !json_is_boolean(value) && !m->status)
        m->status = k3_fail(m->err, K3_ERR_ARGUMENT, "\"%s\" is neither true nor false", key);
    return !json_is_false(value);
}

static void write_conversation(struct k3_markup *m, const void *what)
{
    const json_t *conversation = what, *tools = member(conversation, "tools"),
                 *messages = member(conversation, "messages");
    bool thinking = flag(m, conversation, "thinking"),
         answer = flag(m, conversation, "add_generation_prompt");
    if (!json_is_array(messages)) refuse(m, "a conversation needs a list of messages");
    if (tools && !json_is_array(tools)) refuse(m, "the list of tools is JSON but not an array");
    k3_chat_declare_tools(m, tools);
    if (thinking) put_effort(m, conversation);
    k3_chat_messages(m, messages, !thinking);
    put_tool_choice(m, member(conversation, "tool_choice"));
    put_response_format(m, member(conversation, "response_format"));
    if (answer) k3_chat_open_answer(m, !thinking);
}

static k3_status read_conversation(const char *text, size_t n, json_t **conversation, struct k3_error *err)
{
    json_error_t reason;
    *conversation = json_loadb(text, n, JSON_ALLOW_NUL, &reason);
    if (!*conversation)
        return k3_fail(err, K3_ERR_ARGUMENT, "the conversation is not JSON at line %d, column %d: %s",
                       reason.line, reason.column, reason.text);
    if (json_is_object(*conversation)) return K3_OK;
    json_decref(*conversation);
    return k3_fail(err, K3_ERR_ARGUMENT, "the conversation is JSON but not an object");
}

k3_status k3_chat_segments(const char *text, size_t n, k3_chat_segment_fn fn, void *ctx, struct k3_error *err)
{
    json_t *conversation;
    k3_status status = read_conversation(text, n, &conversation, err);
    if (status) return status;
    struct k3_markup m = {fn, ctx, K3_OK, err};
    write_conversation(&m, conversation);
    json_decref(conversation);
    return m.status;
}

k3_status k3_chat_render(const struct k3_tokenizer *tokenizer, const char *text, size_t n,
                         struct k3_tokens *tokens, struct k3_error *err)
{
    json_t *conversation;
    k3_status status = read_conversation(text, n, &conversation, err);
    if (status) return status;
    status = k3_markup_encode(tokenizer, write_conversation, conversation, tokens, err);
    json_decref(conversation);
    return status;
}
