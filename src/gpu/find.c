/* find.c - which device, and whether its kernels can do a model. */
#include "gpu/gpu_internal.h"

static const struct k3_gpu_backend backend = {
    .emulated = k3_gpu_is_emulated,
    .find = k3_gpu_find,
    .check = k3_gpu_check,
    .sizes = k3_gpu_device_sizes,
    .create = k3_gpu_device_create,
};

const struct k3_gpu_backend *k3_gpu_backend(void)
{
    return &backend;
}

k3_status k3_gpu_find(int number, struct k3_gpu *out, struct k3_error *err)
{
    const char *why;
    int n = k3_gpu_count(&why);
    if (n == 0) return k3_fail(err, K3_ERR_UNSUPPORTED, "there is no GPU: %s", why);
    if (number >= n)
        return k3_fail(err, K3_ERR_UNSUPPORTED, "there is no GPU %d: the last one is %d", number, n - 1);

    struct k3_gpu best = {.index = -1};
    for (int i = 0; i < n; i++) {
        struct k3_gpu gpu = {.index = i};
        if (number != K3_GPU_BEST && i != number) continue;
        if (k3_gpu_describe(&gpu) && (best.index < 0 || gpu.free_bytes > best.free_bytes)) best = gpu;
    }
    if (best.index < 0)
        return k3_fail(err, K3_ERR_UNSUPPORTED, "the GPU does not answer: another program may have it alone");
    *out = best;
    return K3_OK;
}

bool k3_gpu_keeps_q8_0(const struct k3_gguf_tensor *t, enum k3_role role)
{
    return t->type == K3_TYPE_Q8_0 && role != K3_ROUTER; /* whose activations must be f32 */
}

/* f16 and bf16 are widened: their products take f32 activations on the CPU, too. */
static bool has_kernels(const struct k3_gguf_tensor *t)
{
    return t->type == K3_TYPE_Q8_0 || t->type == K3_TYPE_F32 || t->type == K3_TYPE_F16 ||
           t->type == K3_TYPE_BF16;
}

static k3_status check_tensors(const struct k3_plan *plan, const struct k3_share *share, struct k3_error *err)
{
    for (uint32_t i = 0; i < plan->hp.n_layers; i++)
        for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
            const struct k3_gguf_tensor *t = k3_share_tensor(plan, share, i, role);
            if (t && !has_kernels(t))
                return k3_fail(
                    err, K3_ERR_UNSUPPORTED,
                    "tensor %s is %s, for which the GPU has no kernels, only for q8_0, f32, f16 and "
                    "bf16",
                    t->name, k3_type_info(t->type)->name);
        }
    return K3_OK;
}

/* What the kernels take at most, for the groups of a share that ask for it. */
static k3_status check_widths(const struct k3_plan *plan, const struct k3_share *share, struct k3_error *err)
{
    const struct k3_hparams *hp = &plan->hp;
    const struct {
        const char *what;
        enum k3_role role; /* that says who asks */
        uint32_t value, most;
    } limits[] = {
        {"KDA heads", K3_KDA_A, hp->kda_dim, K3_GPU_MAX_KDA_DIM},
        {"KDA convolutions", K3_KDA_A, hp->conv_taps, K3_GPU_MAX_KDA_TAPS},
        {"rows of the MLA cache", K3_MLA_KV_A, hp->kv_rank + hp->pe_dim, K3_GPU_MAX_MLA_WIDTH},
        {"router rows", K3_ROUTER, hp->n_experts, K3_GPU_MAX_EXPERTS},
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        for (uint32_t layer = 0; layer < hp->n_layers; layer++)
            if (limits[i].value > limits[i].most && k3_share_tensor(plan, share, layer, limits[i].role))
                return k3_fail(err, K3_ERR_UNSUPPORTED,
                               "%s have %u values, and the GPU's kernels take at most %u", limits[i].what,
                               limits[i].value, limits[i].most);
    return K3_OK;
}

k3_status k3_gpu_check(const struct k3_plan *plan, const struct k3_share *share, struct k3_error *err)
{
    k3_status status = check_widths(plan, share, err);
    return status == K3_OK ? check_tensors(plan, share, err) : status;
}
