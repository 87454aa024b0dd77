/* warm.c - keeps from one run to the next which experts are worth having in memory.
 *
 * The file is text, the most used expert first:
 *
 *     k3-warm 1
 *     model 0f3a5c7e9b1d2468 layers 1..92 experts 896
 *     n 2
 *     17 403 1250
 *     5 12 980
 *
 * n lines of layer, expert, and how often it was used of late, in hundredths. */
#include "engine/warm.h"

#include "base/file.h"
#include "base/output.h"
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "k3-warm 1\n"

/* "1023 65535 1000000\n" and some: far more than any model has experts. */
#define MAX_BYTES  ((uint64_t)64 << 20)
#define SHORT_LINE 6 /* bytes of the shortest line of an expert: "1 2 3\n" */
#define LINE_BYTES 96
#define USES_MAX   1000000 /* hundredths; all requests there can be, halved every 128, are below 200 */

/* ---- the model a file is for ---- */

/* FNV-1a, 64 bits. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) hash = (hash ^ (value >> 8 * i & 0xff)) * 0x100000001b3u;
    return hash;
}

/* Names of files do not count: a model that was moved is the same. */
static struct k3_warm_shape shape_of(const struct k3_plan *plan)
{
    const struct k3_hparams *hp = &plan->hp;
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < plan->gguf->n_shards; i++) hash = mix(hash, plan->gguf->shards[i].size);
    for (uint32_t layer = hp->n_dense_layers; layer < hp->n_layers; layer++)
        for (int role = K3_FIRST_EXPERT_ROLE; role < K3_ROLE_COUNT; role++) {
            const struct k3_gguf_tensor *t = k3_plan_tensor(plan, layer, role);
            hash = mix(mix(mix(mix(hash, t->shard), t->offset), t->bytes), t->type);
        }
    return (struct k3_warm_shape){hp->n_dense_layers, hp->n_layers, hp->n_experts, hash};
}

static void model_line(const struct k3_warm_shape *shape, char line[LINE_BYTES])
{
    snprintf(line, LINE_BYTES, "model %016" PRIx64 " layers %u..%u experts %u\n", shape->fingerprint,
             shape->first_layer, shape->n_layers - 1, shape->n_experts);
}

/* ---- reading ---- */

struct text {
    const char *name, *at, *end;
};

static bool skip(struct text *text, const char *what)
{
    size_t n = strlen(what);
    if ((size_t)(text->end - text->at) < n || memcmp(text->at, what, n) != 0) return false;
    text->at += n;
    return true;
}

/* A number up to `max`, and the character that follows it. */
static bool number(struct text *text, uint32_t max, char after, uint32_t *value)
{
    const char *begin = text->at;
    uint64_t parsed = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        parsed = 10 * parsed + (uint64_t)(*text->at - '0');
        if (parsed > max) return false;
    }
    if (text->at == begin || text->at == text->end || *text->at != after) return false;
    text->at++;
    *value = (uint32_t)parsed;
    return true;
}

static k3_status check_head(struct text *text, const struct k3_warm_shape *shape, struct k3_error *err)
{
    char line[LINE_BYTES];
    model_line(shape, line);
    if (!skip(text, MAGIC))
        return k3_fail(err, K3_ERR_FORMAT,
                       "%s: is no list of warm experts: it does not begin with \"k3-warm 1\"", text->name);
    if (skip(text, line)) return K3_OK;
    if (!skip(text, "model "))
        return k3_fail(err, K3_ERR_FORMAT, "%s: line 2 does not say which model it is for", text->name);
    line[strcspn(line, "\n")] = 0;
    return k3_fail(err, K3_ERR_FORMAT, "%s: is of another model; of this one it would say \"%s\"", text->name,
                   line);
}

size_t k3_warm_capacity(size_t n)
{
    return n / SHORT_LINE + 1;
}

static k3_status parse_items(struct text *text, const struct k3_warm_shape *shape,
                             struct k3_store_item *items, uint32_t n, bool *seen, struct k3_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t layer, expert, uses, line = i + 4;
        if (!number(text, shape->n_layers - 1, ' ', &layer) || layer < shape->first_layer ||
            !number(text, shape->n_experts - 1, ' ', &expert) || !number(text, USES_MAX, '\n', &uses))
            return k3_fail(
                err, K3_ERR_FORMAT,
                "%s: line %u is not \"LAYER EXPERT USES\" with a layer from %u to %u, an expert to %u and "
                "uses to %d",
                text->name, line, shape->first_layer, shape->n_layers - 1, shape->n_experts - 1, USES_MAX);
        bool *is_there = &seen[(uint64_t)layer * shape->n_experts + expert];
        if (*is_there)
            return k3_fail(err, K3_ERR_FORMAT, "%s: line %u names expert %u of layer %u a second time",
                           text->name, line, expert, layer);
        *is_there = true;
        items[i] = (struct k3_store_item){layer, expert, uses};
    }
    if (text->at < text->end)
        return k3_fail(err, K3_ERR_FORMAT, "%s: goes on after the %u experts that it announces", text->name,
                       n);
    return K3_OK;
}

k3_status k3_warm_parse(const char *name, const char *bytes, size_t n, const struct k3_warm_shape *shape,
                        struct k3_store_item *items, size_t *n_items, struct k3_error *err)
{
    struct text text = {.name = name, .at = bytes, .end = bytes + n};
    k3_status status = check_head(&text, shape, err);
    if (status != K3_OK) return status;
    uint32_t count;
    uint64_t most = (uint64_t)(shape->n_layers - shape->first_layer) * shape->n_experts;
    if (!skip(&text, "n ") || !number(&text, (uint32_t)most, '\n', &count))
        return k3_fail(err, K3_ERR_FORMAT, "%s: line 3 is not \"n\" and a number of experts up to %llu", name,
                       (unsigned long long)most);
    if ((uint64_t)(text.end - text.at) / SHORT_LINE < count)
        return k3_fail(err, K3_ERR_FORMAT, "%s: ends before the %u experts that it announces", name, count);

    bool *seen = calloc((size_t)shape->n_layers * shape->n_experts, sizeof *seen);
    if (!seen) return k3_fail_memory(err, "a list of experts", (uint64_t)shape->n_layers * shape->n_experts);
    status = parse_items(&text, shape, items, count, seen, err);
    free(seen);
    if (status == K3_OK) *n_items = count;
    return status;
}

static k3_status read_text(const struct k3_file *file, char **text, struct k3_error *err)
{
    if (file->size > MAX_BYTES)
        return k3_fail(err, K3_ERR_FORMAT, "%s: is no list of warm experts: it has %llu bytes", file->path,
                       (unsigned long long)file->size);
    *text = malloc((size_t)file->size + 1);
    if (!*text) return k3_fail_memory(err, "a list of experts", file->size);
    return k3_file_read(file, 0, *text, (size_t)file->size, err);
}

/* ---- the model's part ---- */

static k3_status check_slots(const struct k3_model *model, const char *path, struct k3_error *err)
{
    if (k3_store_slots(model->store)) return K3_OK;
    return k3_fail(
        err, K3_ERR_UNSUPPORTED,
        "%s: with mapped files it is the system that keeps experts in memory: there is no list of them",
        path);
}

k3_status k3_model_load_warm(struct k3_model *model, const char *path, k3_progress_fn progress,
                             void *progress_ctx, struct k3_error *err)
{
    struct k3_file file = {.fd = -1};
    char *text = NULL;
    struct k3_store_item *items = NULL;
    struct k3_warm_shape shape = shape_of(model->plan);
    size_t n = 0;
    k3_status status = check_slots(model, path, err);
    if (status == K3_OK) status = k3_file_open(path, &file, err);
    if (status == K3_OK) status = read_text(&file, &text, err);
    if (status == K3_OK) {
        size_t capacity = k3_warm_capacity((size_t)file.size);
        items = calloc(capacity, sizeof *items);
        status = items ? k3_warm_parse(path, text, (size_t)file.size, &shape, items, &n, err)
                       : k3_fail_memory(err, "a list of experts", capacity * sizeof *items);
    }
    if (status == K3_OK) {
        pthread_mutex_lock(&model->lock);
        bool done = k3_store_preload(model->store, items, n, progress, progress_ctx);
        pthread_mutex_unlock(&model->lock);
        if (!done) status = k3_fail(err, K3_ERR_CANCELLED, "%s: reading its experts was cancelled", path);
    }
    free(items);
    free(text);
    k3_file_close(&file);
    return status;
}

static k3_status write_list(struct k3_output *out, const struct k3_warm_shape *shape,
                            const struct k3_store_item *items, size_t n, struct k3_error *err)
{
    char head[LINE_BYTES], line[LINE_BYTES];
    model_line(shape, head);
    snprintf(line, sizeof line, "n %zu\n", n);
    k3_status status = k3_output_write(out, MAGIC, strlen(MAGIC), err);
    if (status == K3_OK) status = k3_output_write(out, head, strlen(head), err);
    if (status == K3_OK) status = k3_output_write(out, line, strlen(line), err);
    for (size_t i = 0; i < n && status == K3_OK; i++) {
        int length =
            snprintf(line, sizeof line, "%u %u %u\n", items[i].layer, items[i].expert, items[i].uses);
        status = k3_output_write(out, line, (size_t)length, err);
    }
    return status;
}

k3_status k3_model_save_warm(struct k3_model *model, const char *path, struct k3_error *err)
{
    struct k3_output out = {.fd = -1};
    struct k3_warm_shape shape = shape_of(model->plan);
    size_t capacity = k3_store_slots(model->store), n = 0;
    k3_status status = check_slots(model, path, err);
    if (status != K3_OK) return status;
    struct k3_store_item *items = calloc(capacity, sizeof *items);
    if (!items) return k3_fail_memory(err, "a list of experts", capacity * sizeof *items);
    pthread_mutex_lock(&model->lock);
    n = k3_store_list(model->store, items, capacity);
    pthread_mutex_unlock(&model->lock);

    status = k3_output_open(path, &out, err);
    if (status == K3_OK) status = write_list(&out, &shape, items, n, err);
    if (status == K3_OK) status = k3_output_commit(&out, err);
    k3_output_discard(&out);
    free(items);
    return status;
}
