/* verb_logits.c - the model's predictions after each token of a sequence, into a file. */
#include "verbs.h"
#include "base/output.h"

#include <endian.h>
#include <stdlib.h>

/* The file holds floats as they are in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files of logits are little endian");

#define ABOUT                                                                                                \
    "Usage: k3tool logits [-m FILE] --ids 1,2,3 -o FILE\n"                                                   \
    "Writes the logits after each token as little-endian f32, [tokens][vocabulary], before softmax.\n"

#define MOST_ROWS 512 /* held in memory at a time */

struct logits_run {
    struct k3_engine engine;
    const char *ids, *ids_file, *out_path;
    uint32_t batch; /* tokens computed together; 0: as many as the library does */
    struct k3_tokens tokens;
    struct k3_model *model;
    struct k3_session *session;
    uint32_t n_vocab;
    float *rows; /* of one piece, [n_vocab] each */
    struct k3_output out;
    struct k3_progress loading, prefill;
};

static k3_status open_session(struct logits_run *run, struct k3_error *err)
{
    struct k3_session_options options = {.context = run->engine.context, .batch = run->batch};
    k3_status status = k3_session_create(run->model, &options, &run->session, err);
    if (status == K3_OK) k3_session_set_progress(run->session, k3_progress_show, &run->prefill);
    return status;
}

/* Feeds the tokens in pieces and writes the rows of each. */
static k3_status write_logits(struct logits_run *run, size_t piece, struct k3_error *err)
{
    for (size_t at = 0; at < run->tokens.n; at += piece) {
        size_t left = run->tokens.n - at, n = left < piece ? left : piece;
        k3_progress_begin(&run->prefill);
        k3_status status = k3_session_feed(run->session, run->tokens.ids + at, n, NULL, n, run->rows, err);
        k3_progress_clear(&run->prefill);
        if (status == K3_OK)
            status = k3_output_write(&run->out, run->rows, n * run->n_vocab * sizeof *run->rows, err);
        if (status != K3_OK) return status;
    }
    return k3_output_commit(&run->out, err);
}

/* All that can be wrong with the request, before the model is loaded. */
static k3_status check_request(struct logits_run *run, struct k3_error *err)
{
    struct k3_tokenizer *tokenizer = NULL;
    k3_status status = k3_engine_find_model(&run->engine, err);
    if (status == K3_OK) status = k3_tokenizer_open(run->engine.model, &tokenizer, err);
    if (status != K3_OK) return status;
    run->n_vocab = k3_tokenizer_size(tokenizer);
    k3_tokenizer_close(tokenizer);

    status = k3_verb_read_ids(run->ids, run->ids_file, run->n_vocab, &run->tokens, err);
    if (status == K3_OK && !run->tokens.n)
        status = k3_fail(err, K3_ERR_ARGUMENT, "there are no token ids; give some by --ids or -f");
    if (status == K3_OK) status = k3_engine_check_context(&run->engine, run->tokens.n, "the sequence", err);
    return status == K3_OK ? k3_output_open(run->out_path, &run->out, err) : status;
}

static k3_status run_logits(struct logits_run *run, struct k3_error *err)
{
    k3_status status = check_request(run, err);
    if (status == K3_OK) status = k3_engine_open(&run->engine, &run->loading, &run->model, err);
    if (status != K3_OK) return status;

    size_t piece = run->batch ? run->batch : MOST_ROWS;
    if (piece > run->tokens.n) piece = run->tokens.n;
    run->rows = calloc(piece * run->n_vocab, sizeof *run->rows);
    if (!run->rows) return k3_fail_memory(err, "logits", (uint64_t)piece * run->n_vocab * sizeof *run->rows);
    status = open_session(run, err);
    if (status == K3_OK) status = write_logits(run, piece, err);
    return status == K3_OK ? k3_engine_save_warm(&run->engine, run->model, err) : status;
}

int k3_verb_logits(int argc, char **argv)
{
    struct k3_error err;
    bool help = false;
    struct logits_run run = {
        .out.fd = -1, .loading.unit = K3_PROGRESS_BYTES, .prefill.unit = K3_PROGRESS_TOKENS};
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        K3_IDS_OPTIONS(run.ids, run.ids_file),
        {K3_OPTION_TEXT, 'o', "output", &run.out_path, 0, 0, "FILE", "where the logits go"},
        {K3_OPTION_U32, 0, "batch", &run.batch, 0, MOST_ROWS, "N",
         "compute N tokens together, 1 as in decoding (default: 0,\nas many as memory allows, 512 at most)"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(run.engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) {
        k3_options_help(ABOUT, table);
    } else if (status == K3_OK && !run.out_path) {
        status = k3_fail(&err, K3_ERR_ARGUMENT, "where do the logits go? Name a file with -o FILE");
    } else if (status == K3_OK) {
        status = run_logits(&run, &err);
    }
    k3_output_discard(&run.out);
    free(run.rows);
    k3_session_free(run.session);
    k3_model_close(run.model);
    k3_tokens_free(&run.tokens);
    return k3_program_end(status, &err);
}
