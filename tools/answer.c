/* answer.c - shows what the model writes. */
#include "answer.h"
#include "common/program.h"

#include <stdlib.h>
#include <string.h>

#define DIM   "\033[2m"
#define PLAIN "\033[0m"

/* What the text on the screen belongs to. */
enum section {
    SECTION_NONE,
    SECTION_THINKING,
    SECTION_RESPONSE,
    SECTION_CALL,
};

struct k3_answer {
    bool raw, terminal;
    enum section section;
    bool line_open;                     /* the last character written was no newline */
    struct k3_detokenizer *detokenizer; /* if raw */
    struct k3_chat_parser *parser;      /* if not */
};

static void write_text(struct k3_answer *answer, const char *text, size_t n)
{
    if (!n) return;
    k3_out_bytes(text, n);
    answer->line_open = text[n - 1] != '\n';
}

static void end_line(struct k3_answer *answer)
{
    if (answer->line_open) write_text(answer, "\n", 1);
}

static void leave_section(struct k3_answer *answer)
{
    if (answer->section == SECTION_THINKING && answer->terminal) k3_out(PLAIN);
    end_line(answer);
}

static void enter_section(struct k3_answer *answer, enum section section)
{
    if (answer->section == section) return;
    bool first = answer->section == SECTION_NONE;
    leave_section(answer);
    answer->section = section;
    if (answer->terminal) {
        if (!first) k3_out("\n");
        if (section == SECTION_THINKING) k3_out(DIM);
    } else if (section != SECTION_CALL) {
        k3_out(section == SECTION_THINKING ? "[thinking]\n" : "[response]\n");
    }
}

static void begin_call(struct k3_answer *answer, const struct k3_chat_event *event)
{
    enter_section(answer, SECTION_CALL);
    end_line(answer);
    k3_out("[tool call] %.*s\n", (int)event->n, event->text);
}

static void begin_argument(struct k3_answer *answer, const struct k3_chat_event *event)
{
    end_line(answer);
    k3_out("%.*s", (int)event->n, event->text);
    if (event->type[0]) k3_out(" (%s)", event->type);
    k3_out(": ");
    answer->line_open = true;
}

static void on_event(void *ctx, const struct k3_chat_event *event)
{
    struct k3_answer *answer = ctx;
    switch (event->kind) {
    case K3_CHAT_THINK:
        enter_section(answer, SECTION_THINKING);
        write_text(answer, event->text, event->n);
        break;
    case K3_CHAT_RESPONSE:
        enter_section(answer, SECTION_RESPONSE);
        write_text(answer, event->text, event->n);
        break;
    case K3_CHAT_CALL:
        begin_call(answer, event);
        break;
    case K3_CHAT_ARGUMENT:
        begin_argument(answer, event);
        break;
    case K3_CHAT_VALUE:
    case K3_CHAT_JSON:
        write_text(answer, event->text, event->n);
        break;
    case K3_CHAT_CALL_END:
        end_line(answer);
        break;
    case K3_CHAT_MESSAGE_END:
        break;
    }
}

k3_status k3_answer_create(const struct k3_tokenizer *tokenizer, bool raw, bool terminal,
                           struct k3_answer **answer, struct k3_error *err)
{
    struct k3_answer *made = calloc(1, sizeof *made);
    if (!made) return k3_fail_memory(err, "the answer", sizeof *made);
    made->raw = raw;
    made->terminal = terminal;
    k3_status status = raw ? k3_detokenizer_create(tokenizer, true, &made->detokenizer, err)
                           : k3_chat_parser_create(tokenizer, false, on_event, made, &made->parser, err);
    if (status != K3_OK) {
        k3_answer_free(made);
        return status;
    }
    *answer = made;
    return K3_OK;
}

void k3_answer_free(struct k3_answer *answer)
{
    if (!answer) return;
    k3_detokenizer_free(answer->detokenizer);
    k3_chat_parser_free(answer->parser);
    free(answer);
}

bool k3_answer_token(struct k3_answer *answer, int32_t id)
{
    if (answer->raw) {
        size_t n;
        const char *text = k3_detokenize(answer->detokenizer, id, &n);
        write_text(answer, text, n);
    } else {
        k3_chat_parse(answer->parser, id);
    }
    return k3_out_flush();
}

void k3_answer_end(struct k3_answer *answer)
{
    if (answer->raw) {
        size_t n;
        const char *text = k3_detokenize_end(answer->detokenizer, &n);
        write_text(answer, text, n);
    } else {
        k3_chat_parse_end(answer->parser);
    }
    leave_section(answer);
    k3_out_flush();
}
