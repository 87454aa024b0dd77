/* engine.c - finds and opens the model that options ask for. */
#include "common/engine.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#define SMALL_MODEL "k3-tiny-IQ1_M.gguf"

/* Whether folder/SMALL_MODEL can be read; its name goes to `out`. */
static bool has_model(const char *folder, const char *below, char *out, size_t size)
{
    int n = snprintf(out, size, "%s%s" SMALL_MODEL, folder, below);
    return n > 0 && (size_t)n < size && access(out, R_OK) == 0;
}

k3_status k3_engine_find_model(struct k3_engine *engine, struct k3_error *err)
{
    static char path[PATH_MAX];
    if (engine->model) return K3_OK;

    char folder[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    folder[n > 0 ? n : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) slash[1] = 0;

    bool found = has_model(folder, "../../models/", path, sizeof path) ||
                 has_model("models/", "", path, sizeof path) ||
                 has_model(folder, "../share/k3/", path, sizeof path) ||
                 has_model(K3_DATA_FOLDER, "/", path, sizeof path);
    if (!found)
        return k3_fail(err, K3_ERR_ARGUMENT,
                       "which model? " SMALL_MODEL " is not found; name one with -m FILE");
    engine->model = path;
    return K3_OK;
}

k3_status k3_engine_open(struct k3_engine *engine, struct k3_progress *loading, struct k3_model **model,
                         struct k3_error *err)
{
    k3_status status = k3_engine_find_model(engine, err);
    if (status != K3_OK) return status;
    uint64_t n_slots = engine->slots.count;
    struct k3_model_options options = {.threads = (int)engine->threads,
                                       .exact = engine->exact,
                                       .slots = n_slots < UINT32_MAX ? (uint32_t)n_slots : UINT32_MAX,
                                       .slots_percent = (float)engine->slots.percent,
                                       .io = (enum k3_io)engine->io,
                                       .direct = (enum k3_direct)engine->direct,
                                       .progress = k3_progress_show,
                                       .progress_ctx = loading};
    k3_progress_begin(loading);
    status = k3_model_open(engine->model, &options, model, err);
    k3_progress_clear(loading);
    return status;
}
