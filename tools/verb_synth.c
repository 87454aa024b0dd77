/* verb_synth.c - a model with random weights. */
#include "verbs.h"
#include "common/progress.h"
#include "synth.h"

#include <string.h>

#define ABOUT                                                                                                \
    "Usage: k3tool synth -o FILE [OPTION]...\n"                                                              \
    "Writes a model with random weights: the widths of K3, few layers. It computes, reads and routes like\n" \
    "K3 and says nothing; it is for measurements and tests.\n"

static k3_status choose_dims(const char *name, bool *tiny, struct k3_error *err)
{
    *tiny = strcmp(name, "tiny") == 0;
    if (*tiny || strcmp(name, "real") == 0) return K3_OK;
    return k3_fail(err, K3_ERR_ARGUMENT, "--dims is '%s'; real and tiny are known", name);
}

int k3_verb_synth(int argc, char **argv)
{
    struct k3_error err;
    struct k3_progress writing = {.unit = K3_PROGRESS_BYTES};
    struct k3_synth_options o = {
        .seed = 1, .skew = 1, .progress = k3_progress_show, .progress_ctx = &writing};
    const char *path = NULL, *dims = "real";
    uint32_t threads = 0;
    bool help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_TEXT, 'o', "output", &path, 0, 0, "FILE",
         "where the model goes; a GGUF file is never overwritten"},
        {K3_OPTION_TEXT, 0, "dims", &dims, 0, 0, "real|tiny",
         "the widths of K3 (default), or those of a model of some MB"},
        {K3_OPTION_U32, 0, "layers", &o.layers, 2, K3_MAX_LAYERS, "N",
         "the first without experts, every fourth and the last\nwith MLA (default: 4)"},
        {K3_OPTION_U32, 0, "experts", &o.experts, 1, 1 << 12, "N",
         "in each layer but the first (default: 400; 32 if tiny)"},
        {K3_OPTION_U32, 0, "vocab", &o.vocab, K3_SYNTH_VOCAB_MIN, K3_SYNTH_VOCAB_MAX, "N",
         "tokens (default: 4096; 1024 if tiny)"},
        {K3_OPTION_U64, 0, "seed", &o.seed, 0, UINT64_MAX, "N",
         "the same seed gives the same file (default: 1)"},
        {K3_OPTION_FLOAT, 0, "skew", &o.skew, 0, 4, "X",
         "how much the router prefers some experts and those of\n"
         "the tokens before; 0: not at all (default: 1, as real models)"},
        {K3_OPTION_U32, 't', "threads", &threads, 0, 1024, "N", "(default: 0, one per processor)"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);

    o.threads = (int)threads;
    status = choose_dims(dims, &o.tiny, &err);
    if (status == K3_OK && !path)
        status = k3_fail(&err, K3_ERR_ARGUMENT, "where does the model go? Name a file with -o FILE");
    k3_progress_begin(&writing);
    if (status == K3_OK) status = k3_synth_write(path, &o, &err);
    k3_progress_clear(&writing);
    return k3_program_end(status, &err);
}
