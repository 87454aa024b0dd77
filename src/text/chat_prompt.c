/* chat_prompt.c - what stands around the messages of a conversation, as the model was taught to read it: tools, how much
 * to think, and the opening of the answer; and the prompt of one user turn. */
#include "text/chat_internal.h"

#include <stdlib.h>
#include <string.h>

static const char TOOLS_BEFORE[] =
    "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n";
static const char TOOLS_AFTER[] = "\n```";

static const char EFFORT_BEFORE[] = "`thinking_effort` guides on how much to think in your thinking channel "
                                    "(not including the response channel), "
                                    "supported values include `low`, `medium`, `high`, and `max`.\nNow the "
                                    "system is invoked with `thinking_effort=";
static const char EFFORT_AFTER[] = "`.";

void k3_markup_end_message(struct k3_markup *m)
{
    k3_markup_close(m, "message");
    k3_markup_control(m, K3_END_OF_MSG);
}

/* The body is one segment, so its parts are joined first. */
void k3_chat_internal(struct k3_markup *m, const char *kind, const char *before, const char *body, size_t n,
                      const char *after)
{
    struct k3_growing text = {0};
    k3_growing_put(&text, before, strlen(before));
    k3_growing_put(&text, body, n);
    k3_growing_put(&text, after, strlen(after));
    if (text.failed && !m->status) m->status = k3_fail_memory(m->err, "a message of the system", text.n);
    k3_markup_open(m, "message", (struct k3_attribute[]){{"role", "system"}, {"type", kind}, {0}});
    k3_markup_text(m, text.bytes, text.n);
    k3_markup_end_message(m);
    free(text.bytes);
}

void k3_chat_declare_tools(struct k3_markup *m, const json_t *tools)
{
    struct k3_growing json = {0};
    if (m->status || json_array_size(tools) == 0) return;
    k3_json_put(&json, tools, true);
    if (json.failed) m->status = k3_fail_memory(m->err, "the list of tools", json.n);
    k3_chat_internal(m, "tool-declare", TOOLS_BEFORE, json.bytes, json.n, TOOLS_AFTER);
    free(json.bytes);
}

/* The protocol's own sentence speaks of `medium`, but the model was never asked for it. */
void k3_chat_set_effort(struct k3_markup *m, const char *effort)
{
    if (m->status) return;
    if (strcmp(effort, "low") && strcmp(effort, "high") && strcmp(effort, "max")) {
        m->status =
            k3_fail(m->err, K3_ERR_ARGUMENT, "the effort \"%s\" is not one of low, high and max", effort);
        return;
    }
    k3_chat_internal(m, "thinking-effort", EFFORT_BEFORE, effort, strlen(effort), EFFORT_AFTER);
}

void k3_chat_open_answer(struct k3_markup *m, bool no_thinking)
{
    k3_markup_open(m, "message", (struct k3_attribute[]){{"role", "assistant"}, {0}});
    k3_markup_open(m, no_thinking ? "response" : "think", NULL);
}

/* ---- one user turn ---- */

struct turn {
    const char *user;
    size_t n;
    const struct k3_chat_options *options;
};

static void declare(struct k3_markup *m, const char *text)
{
    json_error_t reason;
    if (m->status) return;
    json_t *tools = json_loads(text, JSON_ALLOW_NUL | JSON_DECODE_ANY, &reason);
    if (!tools)
        m->status =
            k3_fail(m->err, K3_ERR_ARGUMENT, "the list of tools is not JSON at line %d, column %d: %s",
                    reason.line, reason.column, reason.text);
    else if (!json_is_array(tools))
        m->status = k3_fail(m->err, K3_ERR_ARGUMENT, "the list of tools is JSON but not an array");
    k3_chat_declare_tools(m, tools);
    json_decref(tools);
}

static void write_turn(struct k3_markup *m, const void *what)
{
    const struct turn *turn = what;
    const struct k3_chat_options *options = turn->options;
    if (options->tools) declare(m, options->tools);
    if (!options->no_thinking) k3_chat_set_effort(m, options->effort ? options->effort : "max");
    k3_markup_open(m, "message", (struct k3_attribute[]){{"role", "user"}, {0}});
    k3_markup_text(m, turn->user, turn->n);
    k3_markup_end_message(m);
    k3_chat_open_answer(m, options->no_thinking);
}

k3_status k3_chat_prompt(const struct k3_tokenizer *tokenizer, const char *user, size_t n,
                         const struct k3_chat_options *options, struct k3_tokens *tokens,
                         struct k3_error *err)
{
    static const struct k3_chat_options defaults;
    const struct turn turn = {user, n, options ? options : &defaults};
    return k3_markup_encode(tokenizer, write_turn, &turn, tokens, err);
}
