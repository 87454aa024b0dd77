/* placement.c - see placement.h.
 *
 * Everything is on the GPU if it fits. If not, groups go there from the last to the first, as long as there is room, and
 * the host has the rest. Why in this order: every byte of dense weights is read once for a token, so no layer gains
 * more than another from the GPU's bandwidth for the bytes it takes there; but the token table, of which a token reads
 * one row, gains nothing, and the head, as large, is read whole. And each change between host and GPU costs a wait and a
 * copy: what is taken from the end of the walk makes one change. Where a group does not fit, a smaller one before it
 * may: the two changes more that it makes cost less than reading it from the host's memory would. */
#include "engine/engine_internal.h"

/* Of what is free in a GPU's memory; the rest is for what its driver takes, and for other programs. */
#define VRAM_PERCENT 95

/* Activations take at most this part of a GPU's memory, if batches can be made so small. */
#define SCRATCH_PART 4

struct choice {
    const struct k3_plan *plan;
    const struct k3_model_options *options;
    struct k3_placement *placement;
    uint32_t n_layers;
    bool asked;             /* for a share: gpu_layers */
    struct k3_share wanted; /* all that may be on the GPU, or what was asked for */
};

/* Bytes of the GPU's memory that a share takes at least, with batches of that size. */
static uint64_t need(const struct choice *c, const struct k3_share *share, uint32_t batch)
{
    uint32_t made_for = c->plan->hp.context_length, context = c->options->context;
    if (!context) context = made_for && made_for < K3_LEAST_CONTEXT ? made_for : K3_LEAST_CONTEXT;
    struct k3_gpu_sizes s = c->placement->backend->sizes(c->plan, share, batch);
    return s.dense + s.scratch + k3_sessions_bytes(s.state, s.token, context);
}

static k3_status fail_room(const struct choice *c, uint64_t bytes, const char *what, struct k3_error *err)
{
    const struct k3_placement *p = c->placement;
    return k3_fail(
        err, K3_ERR_MEMORY, "GPU %d (%s): %.2f GiB of its memory may be used, but %.2f GiB are needed for %s",
        p->gpu.index, p->gpu.name, (double)p->vram_limit / ((uint64_t)1 << 30), k3_gib(bytes), what);
}

/* ---- the device and its memory ---- */

static k3_status find(struct choice *c, struct k3_error *err)
{
    const struct k3_gpu_backend *backend = k3_gpu_backend();
    int gpu = c->options->gpu;
    if (!backend) return k3_fail(err, K3_ERR_UNSUPPORTED, "this program was built without support for GPUs");
    if (c->options->exact) return k3_fail(err, K3_ERR_UNSUPPORTED, "the GPU has no exact arithmetic");
    k3_status status = backend->find(gpu > 0 ? gpu - 1 : K3_GPU_BEST, &c->placement->gpu, err);
    if (status == K3_OK) c->placement->backend = backend;
    return status;
}

static k3_status set_limit(struct choice *c, struct k3_error *err)
{
    const struct k3_gpu *gpu = &c->placement->gpu;
    uint64_t vram = c->options->vram;
    float percent = c->options->vram_percent;
    if (!vram && percent > 0) vram = (uint64_t)((double)gpu->bytes * (double)percent / 100);
    c->placement->vram_limit = vram ? vram : gpu->free_bytes / 100 * VRAM_PERCENT;
    if (vram <= gpu->free_bytes) return K3_OK;
    return k3_fail(err, K3_ERR_ARGUMENT,
                   "%.2f GiB of memory were allowed on GPU %d (%s), but it has only %.2f GiB free",
                   (double)vram / ((uint64_t)1 << 30), gpu->index, gpu->name,
                   (double)gpu->free_bytes / ((uint64_t)1 << 30));
}

/* ---- the share ---- */

static k3_status read_options(struct choice *c, struct k3_error *err)
{
    const struct k3_model_options *o = c->options;
    /* Written so that NaN fails too. */
    if (!(o->vram_percent >= 0 && o->vram_percent <= 100))
        return k3_fail(err, K3_ERR_ARGUMENT, "%g %% of the GPU's memory were allowed; 0 to 100 are possible",
                       (double)o->vram_percent);
    c->asked = o->gpu_layers != NULL;
    return k3_share_parse(c->asked ? o->gpu_layers : "all", c->n_layers, &c->wanted, err);
}

/* Leaves to the host what the GPU has no kernels for. */
static void drop_unsupported(struct choice *c, struct k3_error *why)
{
    for (uint32_t group = 0; group < k3_n_groups(c->n_layers); group++) {
        struct k3_share one = {0};
        one.has[group] = true;
        bool is_first = why->status == K3_OK;
        c->wanted.has[group] = c->placement->backend->check(c->plan, &one, is_first ? why : NULL) == K3_OK;
    }
}

/* The batch to leave room for: the usual one, unless it takes too much from the weights. */
static uint32_t batch_beside(const struct choice *c)
{
    uint32_t batch = K3_USUAL_BATCH;
    const struct k3_placement *p = c->placement;
    while (batch > K3_LEAST_BATCH &&
           p->backend->sizes(c->plan, &c->wanted, batch).scratch > p->vram_limit / SCRATCH_PART)
        batch /= 2;
    return batch;
}

/* Puts on the GPU what fits. Returns bytes that would do if nothing does. */
static uint64_t fill(const struct choice *c, uint32_t batch, struct k3_share *share)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t group = k3_head_group(c->n_layers); group > K3_EMBEDDING_GROUP; group--) {
        if (!c->wanted.has[group]) continue;
        share->has[group] = true;
        uint64_t bytes = need(c, share, batch);
        share->has[group] = bytes <= c->placement->vram_limit;
        if (bytes < least) least = bytes;
    }
    return least;
}

static k3_status choose_asked(struct choice *c, struct k3_error *err)
{
    k3_status status = c->placement->backend->check(c->plan, &c->wanted, err);
    if (status != K3_OK || !k3_share_count(&c->wanted, c->n_layers)) return status;
    uint64_t bytes = need(c, &c->wanted, K3_LEAST_BATCH);
    if (bytes > c->placement->vram_limit) return fail_room(c, bytes, "the layers asked for", err);
    c->placement->on_gpu = c->wanted;
    return K3_OK;
}

/* A limit that was asked for and leaves nothing on the GPU is an error; one that is there is not. */
static k3_status choose_freely(struct choice *c, struct k3_error *why, struct k3_error *err)
{
    struct k3_share *share = &c->placement->on_gpu;
    drop_unsupported(c, why);
    if (!k3_share_count(&c->wanted, c->n_layers)) return K3_OK;
    uint32_t batch = batch_beside(c);
    uint64_t all = need(c, &c->wanted, batch);
    if (all <= c->placement->vram_limit) {
        *share = c->wanted;
        return K3_OK;
    }
    fail_room(c, all, "the whole dense model", why);
    uint64_t least = fill(c, batch, share);
    bool limited = c->options->vram || c->options->vram_percent > 0;
    if (k3_share_count(share, c->n_layers) || !limited) return K3_OK;
    return fail_room(c, least, "the least part of the model", err);
}

k3_status k3_placement_choose(const struct k3_plan *plan, const struct k3_model_options *o,
                              struct k3_placement *p, struct k3_error *why, struct k3_error *err)
{
    const struct k3_gpu_backend *backend = k3_gpu_backend();
    struct choice c = {.plan = plan, .options = o, .placement = p, .n_layers = plan->hp.n_layers};
    *p = (struct k3_placement){0};
    why->status = K3_OK;
    k3_status status = read_options(&c, err);
    bool asked = o->gpu > 0 || c.asked || o->vram || o->vram_percent > 0;
    bool wanted = o->gpu >= 0 && (asked || (backend && !backend->emulated()));
    if (status == K3_OK && wanted && find(&c, why) == K3_OK) {
        status = set_limit(&c, err);
        if (status == K3_OK) status = c.asked ? choose_asked(&c, err) : choose_freely(&c, why, err);
    }
    p->on_host = k3_share_rest(&p->on_gpu, c.n_layers);
    uint32_t n = k3_share_count(&p->on_gpu, c.n_layers);
    if (!n) p->backend = NULL;
    p->is_split = n && n < k3_n_groups(c.n_layers);
    return status;
}
