/* k3run.c - runs a prompt through a model and writes the answer as it is made. */
#include "answer.h"
#include "common/engine.h"
#include "common/input.h"
#include "common/memory_table.h"
#include "common/number.h"
#include "common/program.h"
#include "common/telemetry.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RAW_TOKENS 256 /* a plain continuation may have no end of its own */

struct options {
    struct k3_engine engine;
    struct k3_telemetry telemetry;
    const char *prompt, *prompt_file, *tools_file;
    uint32_t max_tokens; /* 0: until the answer ends */
    bool raw, quiet, help, version;
    struct k3_sampling sampling;
};

/* Everything that is opened for one run; ended by close_run. */
struct run {
    struct k3_tokenizer *tokenizer;
    struct k3_tokens prompt;
    struct k3_model *model;
    struct k3_session *session;
    struct k3_sampler *sampler;
    struct k3_answer *answer;
    float *logits; /* of the last token; [n_vocab] */
    struct k3_progress loading, prefill;
};

static void print_help(const struct k3_option *table)
{
    k3_options_help(
        "Usage: k3run [-m FILE] -p TEXT\n"
        "Runs a prompt through a Kimi-K3 model and writes the answer to standard output as it is made.\n"
        "The prompt is one user turn of a chat: thinking, response and tool calls are shown apart.\n",
        table);
    k3_out("\nExamples\n"
           "  k3run -p 'What is 12 + 7?'\n"
           "  k3run --raw -p 'One day, Lily went to the park.' -n 100\n"
           "  k3run --tools weather.json -p 'What is the weather in Paris?'\n"
           "  k3run -m K3-00001-of-00008.gguf -c 8192 -f question.txt > answer.txt\n"
           "\nCtrl-C stops the answer, a second one ends the program. The exit status is 0 after an answer,\n"
           "1 after an error, which is told in one line, and 130 after Ctrl-C.\n");
}

static k3_status parse_options(int argc, char **argv, struct options *o, struct k3_error *err)
{
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Prompt (without -p and -f it is read from standard input)"},
        {K3_OPTION_TEXT, 'p', "prompt", &o->prompt, 0, 0, "TEXT", "the prompt"},
        {K3_OPTION_TEXT, 'f', "file", &o->prompt_file, 0, 0, "FILE",
         "read the prompt from FILE; one newline at its end is not\npart of it"},
        {K3_OPTION_FLAG, 0, "raw", &o->raw, 0, 0, NULL,
         "no chat: continue the text as it is; control tokens may be\nspelled out in it"},
        {K3_OPTION_TEXT, 0, "tools", &o->tools_file, 0, 0, "FILE",
         "JSON array of the tools the model may call"},
        {.kind = K3_OPTION_HEADING, .help = "Answer"},
        {K3_OPTION_U32, 'n', "tokens", &o->max_tokens, 1, UINT32_MAX, "N",
         "most tokens to make (default: until the answer ends;\n256 with --raw)"},
        {K3_OPTION_FLOAT, 0, "temp", &o->sampling.temperature, 0, 100, "X",
         "temperature (default: 0, always the most likely token)"},
        {K3_OPTION_U32, 0, "top-k", &o->sampling.top_k, 0, UINT32_MAX, "N",
         "sample from the N most likely tokens (default: 0, all);\nthis and what follows need --temp"},
        {K3_OPTION_FLOAT, 0, "top-p", &o->sampling.top_p, 0, 1, "X",
         "sample from the likeliest tokens that sum to probability X\n(default: 0, all)"},
        {K3_OPTION_FLOAT, 0, "min-p", &o->sampling.min_p, 0, 1, "X",
         "sample from tokens at least X times as likely as the best\n(default: 0, all)"},
        {K3_OPTION_FLOAT, 0, "repeat-penalty", &o->sampling.repetition_penalty, 0, 100, "X",
         "above 1: make the last 64 tokens less likely (default: 1, off)"},
        {K3_OPTION_U64, 0, "seed", &o->sampling.seed, 0, 0, "N",
         "of the random numbers (default: 0); the same seed gives the\nsame text"},
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(o->engine),
        {.kind = K3_OPTION_HEADING, .help = "Measuring"},
        K3_TELEMETRY_OPTIONS(o->telemetry),
        {.kind = K3_OPTION_HEADING, .help = "Others"},
        {K3_OPTION_FLAG, 'q', "quiet", &o->quiet, 0, 0, NULL,
         "no progress, statistics and notes on standard error"},
        K3_HELP_OPTION(o->help),
        K3_VERSION_OPTION(o->version),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, err);
    if (status != K3_OK) return status;
    if (o->help)
        print_help(table);
    else if (o->version)
        k3_out("k3run %s\n", k3_version());
    else if (o->raw && o->tools_file)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "--tools and --raw exclude each other: tools are part of a chat");
    return K3_OK;
}

static k3_status read_prompt(const struct options *o, struct k3_text *text, struct k3_error *err)
{
    bool typed = !o->prompt && !o->prompt_file && isatty(STDIN_FILENO);
    if (typed && !o->quiet) k3_say("type the prompt and end it with Ctrl-D");
    k3_status status = k3_text_choose(o->prompt, o->prompt_file, text, err);
    if (status != K3_OK) return status;
    if (!o->prompt && text->n && text->bytes[text->n - 1] == '\n') text->bytes[--text->n] = 0;
    if (!text->n) {
        k3_text_free(text);
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "the prompt is empty; give one by -p TEXT, -f FILE or standard input");
    }
    return K3_OK;
}

static k3_status make_prompt(const struct options *o, struct run *run, struct k3_error *err)
{
    struct k3_text text, tools = {0};
    k3_status status = read_prompt(o, &text, err);
    if (status != K3_OK) return status;
    if (o->raw) {
        status = k3_tokenize(run->tokenizer, text.bytes, text.n, true, &run->prompt, err);
    } else {
        if (o->tools_file) status = k3_text_read(o->tools_file, &tools, err);
        if (status == K3_OK && o->tools_file) status = k3_text_require_string(&tools, o->tools_file, err);
        struct k3_chat_options chat = {.tools = tools.bytes};
        if (status == K3_OK)
            status = k3_chat_prompt(run->tokenizer, text.bytes, text.n, &chat, &run->prompt, err);
    }
    k3_text_free(&tools);
    k3_text_free(&text);
    return status;
}

static k3_status open_run(struct options *o, struct run *run, struct k3_error *err)
{
    k3_status status = k3_engine_find_model(&o->engine, err);
    if (status == K3_OK) status = k3_tokenizer_open(o->engine.model, &run->tokenizer, err);
    if (status == K3_OK) status = make_prompt(o, run, err);
    if (status == K3_OK) status = k3_engine_check_context(&o->engine, run->prompt.n, "the prompt", err);
    if (status == K3_OK)
        status = k3_answer_create(run->tokenizer, o->raw, isatty(STDOUT_FILENO), &run->answer, err);
    if (status != K3_OK) return status;

    status = k3_engine_open(&o->engine, &run->loading, &run->model, err);
    if (status != K3_OK) return status;
    struct k3_model_info info;
    k3_model_get_info(run->model, &info);
    run->logits = malloc(info.n_vocab * sizeof *run->logits);
    if (!run->logits) return k3_fail_memory(err, "logits", info.n_vocab * sizeof *run->logits);
    status = k3_sampler_create(&o->sampling, info.n_vocab, &run->sampler, err);
    if (status != K3_OK) return status;
    struct k3_session_options session = {.context = o->engine.context};
    status = k3_session_create(run->model, &session, &run->session, err);
    if (status != K3_OK) return status;
    k3_session_set_progress(run->session, k3_progress_show, &run->prefill);
    return k3_telemetry_open(&o->telemetry, run->model, err);
}

static void close_run(struct run *run)
{
    k3_session_free(run->session);
    k3_sampler_free(run->sampler);
    free(run->logits);
    k3_model_close(run->model);
    k3_answer_free(run->answer);
    k3_tokens_free(&run->prompt);
    k3_tokenizer_close(run->tokenizer);
}

static k3_status feed_prompt(struct run *run, struct k3_error *err)
{
    const struct k3_tokens *prompt = &run->prompt;
    k3_progress_begin(&run->prefill);
    k3_status status = k3_session_feed(run->session, prompt->ids, prompt->n, NULL, 1, run->logits, err);
    k3_progress_clear(&run->prefill);
    for (size_t i = 0; i < prompt->n && status == K3_OK; i++) k3_sampler_accept(run->sampler, prompt->ids[i]);
    return status;
}

/* Makes tokens until one of the reasons to stop. */
static k3_status generate(const struct options *o, struct run *run, struct k3_error *err)
{
    uint32_t most = o->max_tokens ? o->max_tokens : o->raw ? RAW_TOKENS : UINT32_MAX;
    k3_status status = K3_OK;
    for (uint32_t made = 0; made < most && !k3_interrupted(); made++) {
        int32_t token = k3_sampler_pick(run->sampler, run->logits);
        if (k3_token_is_stop(run->tokenizer, token)) break;
        if (!k3_answer_token(run->answer, token)) break;
        if (made + 1 == most) break; /* its logits would not be used */
        k3_sampler_accept(run->sampler, token);
        status = k3_session_feed(run->session, &token, 1, NULL, 1, run->logits, err);
        if (status != K3_OK) break;
    }
    k3_answer_end(run->answer);
    if (status == K3_ERR_FULL) {
        k3_say("stopped: the context of %zu tokens is full", k3_session_length(run->session));
        return K3_OK;
    }
    return status == K3_OK && k3_interrupted() ? k3_fail(err, K3_ERR_CANCELLED, "interrupted") : status;
}

/* What is told at the end of a run, and left for the next one. */
static k3_status end_run(struct options *o, struct run *run, k3_status status, struct k3_error *err)
{
    struct k3_error failure;
    if (run->session && !o->quiet && isatty(STDERR_FILENO)) k3_telemetry_print(run->model, run->session);
    k3_status told = k3_telemetry_close(&o->telemetry, run->session, &failure);
    if (told == K3_OK && run->session) told = k3_engine_save_warm(&o->engine, run->model, &failure);
    if (told == K3_OK || (status != K3_OK && status != K3_ERR_CANCELLED)) return status;
    return k3_fail(err, told, "%s", failure.message);
}

/* Before the model is loaded, which may take a while. */
static k3_status print_plan(struct k3_engine *engine, struct k3_error *err)
{
    struct k3_memory_plan memory;
    char table[K3_MEMORY_TABLE_MAX], threads[K3_MEMORY_TABLE_MAX];
    k3_status status = k3_engine_plan(engine, &memory, err);
    if (status == K3_OK)
        fprintf(stderr, "%s%s", k3_memory_table(&memory, table),
                k3_threads_line(&engine->choice, threads, sizeof threads));
    return status;
}

int main(int argc, char **argv)
{
    struct k3_error err;
    struct options o = {0};
    struct run run = {.loading.unit = K3_PROGRESS_BYTES, .prefill.unit = K3_PROGRESS_TOKENS};
    k3_program_start();
    k3_status status = parse_options(argc, argv, &o, &err);
    if (status != K3_OK || o.help || o.version) return k3_program_end(status, &err);

    run.loading.quiet = run.prefill.quiet = o.quiet;
    if (!o.quiet && isatty(STDERR_FILENO)) status = print_plan(&o.engine, &err);
    if (!o.quiet) k3_set_log(k3_say_log, NULL);
    if (status == K3_OK) status = open_run(&o, &run, &err);
    if (status == K3_OK) status = feed_prompt(&run, &err);
    if (status == K3_OK) status = generate(&o, &run, &err);
    status = end_run(&o, &run, status, &err);
    close_run(&run);
    return k3_program_end(status, &err);
}
