/* verb_chat.c - the chat protocol without a model: conversations into prompts, answers into messages; a line each. */
#include "verbs.h"

#include "common/input.h"
#include "text/chat_message.h"

#include <stdlib.h>
#include <string.h>

#define ABOUT_RENDER                                                                                         \
    "Usage: k3tool chat-render [-f FILE]\n"                                                                  \
    "Reads conversations, one JSON object a line: messages, tools, tool_choice, response_format, thinking "  \
    "and\n"                                                                                                  \
    "effort. Writes for each the parts of its prompt, [[text, special], ...]: special are control tokens.\n"

#define ABOUT_PARSE                                                                                          \
    "Usage: k3tool chat-parse [-f FILE]\n"                                                                   \
    "Reads what a model wrote, one JSON object a line: {\"pieces\": [[\"ctl\"|\"txt\"|\"hex\", text], "      \
    "...],\n"                                                                                                \
    "\"thinking\": bool, \"schema\": {tool: {key: type}}}: names of control tokens, text, bytes in "         \
    "hexadecimal.\n"                                                                                         \
    "Writes for each the message that a client gets.\n"

/* What is done with a line. */
typedef k3_status (*line_fn)(void *ctx, const char *line, size_t n, struct k3_growing *out,
                             struct k3_error *err);

/* An error tells the line. */
static k3_status for_each_line(const struct k3_text *text, line_fn fn, void *ctx, struct k3_error *err)
{
    struct k3_growing out = {0};
    k3_status status = K3_OK;
    const char *at = text->bytes, *end = at + text->n;
    for (size_t number = 1; at < end && status == K3_OK; number++) {
        struct k3_error why;
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *line_end = newline ? newline : end;
        out.n = 0;
        if (strspn(at, " \t\r") < (size_t)(line_end - at)) {
            status = fn(ctx, at, (size_t)(line_end - at), &out, &why);
            if (status != K3_OK) k3_fail(err, status, "line %zu: %s", number, why.message);
            if (status == K3_OK) k3_growing_put(&out, "\n", 1);
            if (status == K3_OK && !k3_out_bytes(out.bytes, out.n)) break;
        }
        at = line_end + 1;
    }
    free(out.bytes);
    return status;
}

static int run_lines(int argc, char **argv, const char *about, line_fn fn, void *ctx)
{
    struct k3_error err;
    struct k3_text text = {0};
    const char *file = NULL;
    bool help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 'f', "file", &file, 0, 0, "FILE", "read from FILE (default: standard input)"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) k3_options_help(about, table);
    if (status == K3_OK && !help) {
        status = k3_text_read(file, &text, &err);
        if (status == K3_OK) status = for_each_line(&text, fn, ctx, &err);
        k3_text_free(&text);
    }
    return k3_program_end(status, &err);
}

/* ---- render ---- */

static k3_status put_segment(void *ctx, const char *text, size_t n, bool special, struct k3_error *err)
{
    struct k3_growing *out = ctx;
    k3_growing_put(out, out->n > 1 ? ", [" : "[", out->n > 1 ? 3 : 1);
    k3_json_put_string(out, text, n);
    k3_growing_put(out, special ? ", true]" : ", false]", special ? 7 : 8);
    return out->failed ? k3_fail_memory(err, "a prompt", out->n) : K3_OK;
}

static k3_status render(void *ctx, const char *line, size_t n, struct k3_growing *out, struct k3_error *err)
{
    (void)ctx;
    k3_growing_put(out, "[", 1);
    k3_status status = k3_chat_segments(line, n, put_segment, out, err);
    k3_growing_put(out, "]", 1);
    return status;
}

int k3_verb_chat_render(int argc, char **argv)
{
    return run_lines(argc, argv, ABOUT_RENDER, render, NULL);
}

/* ---- a vocabulary of bytes ---- */

/* The control tokens that an answer may have. */
static const char *const controls[] = {"[BOS]", "[EOS]", K3_END_OF_MSG, K3_OPEN, K3_CLOSE,
                                       K3_SEP,  "[EOT]", "[UNK]",       "[PAD]"};
#define N_CONTROLS (sizeof controls / sizeof *controls)

/* Bytes in the alphabet of GGUF (tokenizer.md section 2), and these. */
static k3_status make_tokenizer(struct k3_tokenizer **tokenizer, struct k3_error *err)
{
    char text[256][3];
    struct k3_gguf_string tokens[256 + N_CONTROLS];
    int32_t types[256 + N_CONTROLS];
    size_t n = 0;
    k3_byte_alphabet(text);
    for (; n < 256; n++) {
        tokens[n] = (struct k3_gguf_string){text[n], strlen(text[n])};
        types[n] = 1;
    }
    for (size_t i = 0; i < N_CONTROLS; i++, n++) {
        tokens[n] = (struct k3_gguf_string){controls[i], strlen(controls[i])};
        types[n] = 3;
    }
    const struct k3_vocab_source source = {"the vocabulary of bytes", tokens, types, n, -1};
    return k3_tokenizer_create(&source, tokenizer, err);
}

/* ---- parse ---- */

struct parsing {
    const struct k3_tokenizer *tokenizer;
    struct k3_chat_parser *parser;
};

static void parse_bytes(struct parsing *p, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) k3_chat_parse(p->parser, k3_vocab_find(p->tokenizer, bytes + i, 1));
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20; /* a small letter */
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static k3_status parse_hex(struct parsing *p, const char *text, size_t n, struct k3_error *err)
{
    for (size_t i = 0; i < n; i += 2) {
        int high = hex_digit(text[i]), low = i + 1 < n ? hex_digit(text[i + 1]) : -1;
        if (high < 0 || low < 0)
            return k3_fail(err, K3_ERR_ARGUMENT, "a \"hex\" piece is not pairs of hexadecimal digits");
        parse_bytes(p, (const char[]){(char)(high << 4 | low)}, 1);
    }
    return K3_OK;
}

static k3_status parse_piece(struct parsing *p, const json_t *piece, struct k3_error *err)
{
    const char *kind = json_string_value(json_array_get(piece, 0));
    const json_t *value = json_array_get(piece, 1);
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    if (!kind || !text || json_array_size(piece) != 2)
        return k3_fail(err, K3_ERR_ARGUMENT, "a piece is not a list of its kind and its text");
    if (strcmp(kind, "hex") == 0) return parse_hex(p, text, n, err);
    if (strcmp(kind, "txt") == 0) {
        parse_bytes(p, text, n);
        return K3_OK;
    }
    if (strcmp(kind, "ctl") != 0)
        return k3_fail(err, K3_ERR_ARGUMENT, "\"%s\" is none of the kinds of pieces ctl, txt and hex", kind);
    int32_t id = k3_token_find(p->tokenizer, text);
    if (id < 0) return k3_fail(err, K3_ERR_ARGUMENT, "\"%s\" is no control token", text);
    k3_chat_parse(p->parser, id);
    return K3_OK;
}

static k3_status parse_pieces(const struct k3_tokenizer *tokenizer, const json_t *root,
                              struct k3_chat_message *message, struct k3_error *err)
{
    const json_t *pieces = json_object_get(root, "pieces");
    struct parsing p = {.tokenizer = tokenizer};
    if (!json_is_array(pieces)) return k3_fail(err, K3_ERR_ARGUMENT, "there is no list of pieces");
    bool no_thinking = json_is_false(json_object_get(root, "thinking"));
    k3_status status =
        k3_chat_parser_create(tokenizer, no_thinking, k3_chat_message_add, message, &p.parser, err);
    for (size_t i = 0; i < json_array_size(pieces) && status == K3_OK; i++)
        status = parse_piece(&p, json_array_get(pieces, i), err);
    if (status == K3_OK) k3_chat_parse_end(p.parser);
    k3_chat_parser_free(p.parser);
    return status;
}

static k3_status parse(void *ctx, const char *line, size_t n, struct k3_growing *out, struct k3_error *err)
{
    json_error_t reason;
    json_t *root = json_loadb(line, n, JSON_ALLOW_NUL, &reason);
    if (!root)
        return k3_fail(err, K3_ERR_ARGUMENT, "this is not JSON at column %d: %s", reason.column, reason.text);
    struct k3_chat_message message = {.schema = json_object_get(root, "schema")};
    k3_status status = parse_pieces(ctx, root, &message, err);
    if (status == K3_OK) status = k3_chat_message_json(&message, out, err);
    k3_chat_message_free(&message);
    json_decref(root);
    return status;
}

int k3_verb_chat_parse(int argc, char **argv)
{
    struct k3_error err;
    struct k3_tokenizer *tokenizer;
    k3_status status = make_tokenizer(&tokenizer, &err);
    if (status != K3_OK) return k3_program_end(status, &err);
    int exit_status = run_lines(argc, argv, ABOUT_PARSE, parse, tokenizer);
    k3_tokenizer_close(tokenizer);
    return exit_status;
}
