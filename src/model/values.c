/* values.c - checks of values that are cheap and catch a file whose bytes are wrong although its header is
 * right (gguf.md section 7). */
#include "model/model_internal.h"

#include <math.h>

static k3_status check_one_sign(const char *file, const char *name, const float *values, size_t n,
                                struct k3_error *err)
{
    size_t negative = 0, positive = 0;
    for (size_t i = 0; i < n; i++) {
        negative += values[i] < 0;
        positive += values[i] > 0;
    }
    if (negative == n || positive == n) return K3_OK;
    return k3_fail(err, K3_ERR_FORMAT,
                   "%s: tensor %s has %zu negative and %zu positive values of %zu; all must be of one sign",
                   file, name, negative, positive, n);
}

k3_status k3_check_values(const struct k3_plan *plan, const struct k3_gguf_tensor *tensor, enum k3_role role,
                          const float *values, size_t n, struct k3_error *err)
{
    const char *file = k3_file_name(plan->gguf->shards[tensor->shard].path);
    bool all_zero = true;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return k3_fail(err, K3_ERR_FORMAT, "%s: tensor %s has value %g at index %zu", file, tensor->name,
                           (double)values[i], i);
        all_zero &= values[i] == 0;
    }
    if (all_zero && k3_role_is_norm(role))
        return k3_fail(err, K3_ERR_FORMAT, "%s: tensor %s is all zero", file, tensor->name);
    /* What follows the value of the last head is padding. */
    size_t n_heads = plan->hp.n_heads;
    if (role == K3_KDA_A) return check_one_sign(file, tensor->name, values, n < n_heads ? n : n_heads, err);
    return K3_OK;
}
