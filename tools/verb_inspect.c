/* verb_inspect.c - what a GGUF file holds: its metadata, its tensors by type, the census of experts and the
 * problems. Only headers are read. The exit status is 1 when there is a problem. */
#include "verbs.h"
#include "inspect.h"

#include <string.h>
#include <unistd.h>

#define ABOUT                                                                                                \
    "Usage: k3tool inspect [--json] FILE\n"                                                                  \
    "Shows what a GGUF file, or the set that a shard belongs to, holds. Weights are not read.\n"             \
    "The exit status is 1 when something is wrong with the file.\n"

struct k3_gguf_string k3_inspection_architecture(const struct k3_inspection *found)
{
    struct k3_gguf_string name = {"", 0};
    if (found->gguf) k3_gguf_get_string(found->gguf, "general.architecture", &name, NULL);
    return name;
}

double k3_inspection_real(const struct k3_gguf_value *value, uint64_t i)
{
    const char *items = value->array.items;
    if (value->array.kind == K3_GGUF_F64) {
        double real;
        memcpy(&real, items + i * sizeof real, sizeof real);
        return real;
    }
    float real;
    memcpy(&real, items + i * sizeof real, sizeof real);
    return real;
}

/* Opens and counts; a file that cannot be opened is a finding, not the end. The tokenizer is in the headers, too: it is
 * looked at where nothing else is wrong, so that no mistake is told twice. */
static k3_status take(struct k3_inspection *found, struct k3_error *err)
{
    if (k3_gguf_open(found->path, &found->gguf, &found->broken) != K3_OK) return K3_OK;
    k3_status status = k3_census_take(found->gguf, &found->census, err);
    if (status != K3_OK || found->census.n_problems) return status;
    struct k3_tokenizer *tokenizer = NULL;
    k3_tokenizer_open(found->path, &tokenizer, &found->broken);
    k3_tokenizer_close(tokenizer);
    return K3_OK;
}

size_t k3_inspection_problems(const struct k3_inspection *found)
{
    return found->census.n_problems ? found->census.n_problems : found->broken.status != K3_OK;
}

const char *k3_inspection_problem(const struct k3_inspection *found, size_t i)
{
    return found->census.n_problems ? found->census.problems[i] : found->broken.message;
}

int k3_verb_inspect(int argc, char **argv)
{
    struct k3_error err;
    struct k3_engine engine = {0};
    bool json = false, help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_FLAG, 0, "json", &json, 0, 0, NULL, "one JSON object instead of a table"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_HEADING,
         .help = "Model and engine (accepted everywhere; only the model matters here)"},
        K3_ENGINE_OPTIONS(engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 1, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);

    struct k3_inspection found = {0};
    if (optind < argc) engine.model = argv[optind];
    status = k3_engine_find_model(&engine, &err);
    found.path = engine.model;
    if (status == K3_OK) status = take(&found, &err);
    if (status == K3_OK && json) status = k3_inspection_json(&found, &err);
    if (status == K3_OK && !json && found.gguf) k3_inspection_table(&found);
    size_t n = k3_inspection_problems(&found);
    if (status == K3_OK && n)
        status = n == 1 ? k3_fail(&err, K3_ERR_FORMAT, "%s", k3_inspection_problem(&found, 0))
                        : k3_fail(&err, K3_ERR_FORMAT, "%zu problems; the first: %s", n,
                                  k3_inspection_problem(&found, 0));
    k3_census_free(&found.census);
    k3_gguf_close(found.gguf);
    return k3_program_end(status, &err);
}
