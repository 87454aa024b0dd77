/* verb_plan.c - how a model would use the memory, without loading it. */
#include "verbs.h"

#include "common/json.h"
#include "common/memory_table.h"

#include <string.h>
#include <stdlib.h>

#define ABOUT                                                                                                \
    "Usage: k3tool plan [-m FILE] [--ram SIZE] [--gpu N] [--vram SIZE] [--json]\n"                           \
    "Shows how a model would use the memory of this machine and of its GPU. Only headers are read.\n"        \
    "The exit status is 1 when the limit is too low; the message says what would do.\n"

static bool add_text(json_t *object, const char *name, const char *text)
{
    return json_object_set_new(object, name, k3_json_text(text, strlen(text))) == 0;
}

static k3_status print_json(const char *path, const struct k3_memory_plan *m, struct k3_error *err)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {
        {"dense_bytes", m->dense},
        {"scratch_bytes", m->scratch},
        {"session_bytes", m->sessions},
        {"slots_bytes", m->slots},
        {"reserve_bytes", m->reserve},
        {"sum_bytes", m->dense + m->scratch + m->sessions + m->slots + m->reserve},
        {"limit_bytes", m->limit},
        {"available_bytes", m->available},
        {"slot_bytes", m->slot_bytes},
        {"slots", m->n_slots},
        {"least_slots", m->least_slots},
        {"experts", m->n_experts},
        {"context", m->context},
        {"batch", m->batch},
        {"vram_dense_bytes", m->vram_dense},
        {"vram_scratch_bytes", m->vram_scratch},
        {"vram_session_bytes", m->vram_sessions},
        {"vram_limit_bytes", m->vram_limit},
        {"vram_left_bytes", m->vram_limit - m->vram_dense - m->vram_scratch - m->vram_sessions},
        {"pcie_generation", m->pcie_generation},
        {"pcie_width", m->pcie_width},
        {"pcie_max_width", m->pcie_max_width},
    };
    json_t *object = json_object();
    bool failed = !add_text(object, "model", path) || !add_text(object, "on_gpu", m->on_gpu) ||
                  !add_text(object, "on_host", m->on_host);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |=
            json_object_set_new(object, members[i].name, json_integer((json_int_t)members[i].value)) != 0;
    char *text = failed ? NULL : json_dumps(object, JSON_INDENT(2));
    json_decref(object);
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}

int k3_verb_plan(int argc, char **argv)
{
    struct k3_error err;
    struct k3_engine engine = {0};
    struct k3_memory_plan memory;
    char table_text[K3_MEMORY_TABLE_MAX], threads[K3_MEMORY_TABLE_MAX];
    bool json = false, help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_FLAG, 0, "json", &json, 0, 0, NULL, "one JSON object instead of a table"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_HEADING, .help = "Model and engine"},
        K3_ENGINE_OPTIONS(engine),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 0, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);
    status = k3_engine_plan(&engine, &memory, &err);
    if (status == K3_OK && json) status = print_json(engine.model, &memory, &err);
    if (status == K3_OK && !json)
        k3_out("%s%s", k3_memory_table(&memory, table_text),
               k3_threads_line(&engine.choice, threads, sizeof threads));
    if (status == K3_OK && !json && memory.no_gpu[0])
        k3_out("%s: %s\n", memory.gpu < 0 ? "GPU not used" : "Not all on the GPU", memory.no_gpu);
    return k3_program_end(status, &err);
}
