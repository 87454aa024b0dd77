/* engine.c - finds and opens the model that options ask for. */
#include "common/engine.h"
#include "base/cpu.h"
#include "base/host.h"

#include <errno.h>
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

static void choose_threads(struct k3_engine *engine)
{
    if (engine->choice.n) return;
    if (engine->threads)
        engine->choice = (struct k3_thread_choice){(int)engine->threads, k3_cpu_count(), K3_THREADS_ASKED};
    else
        engine->choice = k3_threads_choose();
    engine->threads = (uint32_t)engine->choice.n;
}

struct k3_model_options k3_engine_options(const struct k3_engine *engine)
{
    uint64_t n_slots = engine->slots.count;
    return (struct k3_model_options){.threads = (int)engine->threads,
                                     .exact = engine->exact,
                                     .gpu = engine->gpu,
                                     .gpu_layers = engine->gpu_layers,
                                     .vram = engine->vram.count,
                                     .vram_percent = (float)engine->vram.percent,
                                     .verify = engine->verify,
                                     .ram = k3_amount_of(&engine->ram, k3_host_memory().total),
                                     .context = engine->context,
                                     .slots = n_slots < UINT32_MAX ? (uint32_t)n_slots : UINT32_MAX,
                                     .slots_percent = (float)engine->slots.percent,
                                     .io = (enum k3_io)engine->io,
                                     .direct = (enum k3_direct)engine->direct,
                                     .lookahead = (enum k3_lookahead)engine->lookahead};
}

k3_status k3_engine_plan(struct k3_engine *engine, struct k3_memory_plan *memory, struct k3_error *err)
{
    k3_status status = k3_engine_find_model(engine, err);
    if (status != K3_OK) return status;
    choose_threads(engine);
    struct k3_model_options options = k3_engine_options(engine);
    return k3_memory_plan(engine->model, &options, memory, err);
}

k3_status k3_engine_check_context(struct k3_engine *engine, size_t n, const char *what, struct k3_error *err)
{
    struct k3_memory_plan memory;
    k3_status status = k3_engine_plan(engine, &memory, err);
    if (status == K3_OK && n > memory.context)
        status =
            k3_fail(err, K3_ERR_FULL, "%s has %zu tokens, more than the context of %u; -c N sets another",
                    what, n, memory.context);
    return status;
}

/* The first run has no list yet. It gets an empty one, so that a place where none can be written is known now and not
 * when the work is done. */
static k3_status load_warm(const struct k3_engine *engine, struct k3_progress *loading,
                           struct k3_model *model, struct k3_error *err)
{
    if (!engine->warm) return K3_OK;
    if (access(engine->warm, F_OK) != 0 && errno == ENOENT)
        return k3_model_save_warm(model, engine->warm, err);
    return k3_model_load_warm(model, engine->warm, k3_progress_show, loading, err);
}

k3_status k3_engine_save_warm(const struct k3_engine *engine, struct k3_model *model, struct k3_error *err)
{
    return engine->warm ? k3_model_save_warm(model, engine->warm, err) : K3_OK;
}

k3_status k3_engine_open(struct k3_engine *engine, struct k3_progress *loading, struct k3_model **out,
                         struct k3_error *err)
{
    struct k3_model *model = NULL;
    k3_status status = k3_engine_find_model(engine, err);
    if (status != K3_OK) return status;
    choose_threads(engine);
    struct k3_model_options options = k3_engine_options(engine);
    options.progress = k3_progress_show;
    options.progress_ctx = loading;
    k3_progress_begin(loading);
    status = k3_model_open(engine->model, &options, &model, err);
    if (status == K3_OK) {
        k3_progress_begin(loading);
        status = load_warm(engine, loading, model, err);
    }
    k3_progress_clear(loading);
    if (status == K3_OK)
        *out = model;
    else
        k3_model_close(model);
    return status;
}
