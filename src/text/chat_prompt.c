/* chat_prompt.c - a conversation as the model was taught to read it: tools, how much to think, one user turn,
 * and the opening of the answer. */
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

static void end_message(struct k3_markup *m)
{
    k3_markup_close(m, "message");
    k3_markup_token(m, m->encoder.tokenizer->end_of_msg);
}

/* A message of the system about itself. Its body is one segment, so its parts are joined first. */
static void internal_message(struct k3_markup *m, const char *kind, const char *before, const char *body,
                             size_t n, const char *after)
{
    const size_t n_before = strlen(before), n_after = strlen(after);
    char *text = malloc(n_before + n + n_after);
    if (!text) {
        m->status = k3_fail_memory(m->err, "a message of the system", n_before + n + n_after);
        return;
    }
    memcpy(text, before, n_before);
    memcpy(text + n_before, body, n);
    memcpy(text + n_before + n, after, n_after);

    k3_markup_open(m, "message", (struct k3_attribute[]){{"role", "system"}, {"type", kind}, {0}});
    k3_markup_text(m, text, n_before + n + n_after);
    end_message(m);
    free(text);
}

static void declare_tools(struct k3_markup *m, const char *tools)
{
    if (m->status) return;
    char *json;
    size_t n, n_tools;
    m->status = k3_json_canonical_array(tools, "the list of tools", &json, &n, &n_tools, m->err);
    if (m->status) return;
    if (n_tools) internal_message(m, "tool-declare", TOOLS_BEFORE, json, n, TOOLS_AFTER);
    free(json);
}

/* The protocol's own sentence speaks of `medium`, but the model was never asked for it. */
static void set_effort(struct k3_markup *m, const char *effort)
{
    if (m->status) return;
    if (strcmp(effort, "low") && strcmp(effort, "high") && strcmp(effort, "max")) {
        m->status =
            k3_fail(m->err, K3_ERR_ARGUMENT, "the effort \"%s\" is not one of low, high and max", effort);
        return;
    }
    internal_message(m, "thinking-effort", EFFORT_BEFORE, effort, strlen(effort), EFFORT_AFTER);
}

k3_status k3_chat_prompt(const struct k3_tokenizer *tokenizer, const char *user, size_t n,
                         const struct k3_chat_options *options, struct k3_tokens *tokens,
                         struct k3_error *err)
{
    static const struct k3_chat_options defaults;
    if (!options) options = &defaults;

    struct k3_markup m;
    k3_markup_begin(&m, tokenizer, tokens, err);
    if (options->tools) declare_tools(&m, options->tools);
    if (!options->no_thinking) set_effort(&m, options->effort ? options->effort : "max");

    k3_markup_open(&m, "message", (struct k3_attribute[]){{"role", "user"}, {0}});
    k3_markup_text(&m, user, n);
    end_message(&m);

    k3_markup_open(&m, "message", (struct k3_attribute[]){{"role", "assistant"}, {0}});
    k3_markup_open(&m, options->no_thinking ? "response" : "think", NULL);
    return k3_markup_end(&m);
}
