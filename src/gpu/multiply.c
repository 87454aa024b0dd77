/* multiply.c - products: the kernels for the type of the matrix, with activations as that type takes them. */
#include "gpu/gpu_internal.h"

void k3_gpu_matmul_all(struct k3_gpu_device *dev, const struct k3_gpu_target *targets, size_t n_targets,
                       const float *x, size_t n)
{
    bool rounded = false;
    for (size_t i = 0; i < n_targets; i++) {
        const struct k3_gpu_matrix *w = targets[i].w;
        if (!w->q8_0.q) {
            k3_gpu_multiply_f32(w->f32, w->rows, w->cols, x, n, targets[i].y, dev->stream);
            continue;
        }
        if (!rounded) k3_gpu_round_q8_0(x, n, w->cols, w->cols, &dev->s.acts, dev->stream);
        rounded = true;
        k3_gpu_multiply_q8_0(&w->q8_0, &dev->s.acts, n, targets[i].y, dev->stream);
    }
}

void k3_gpu_matmul(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const float *x, size_t n,
                   float *y)
{
    k3_gpu_matmul_all(dev, &(struct k3_gpu_target){w, y}, 1, x, n);
}

void k3_gpu_matmul_heads(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const float *x,
                         size_t stride, size_t n, float *y)
{
    size_t heads = dev->hp->n_heads;
    if (!w->q8_0.q) {
        k3_gpu_multiply_heads_f32(w->f32, heads, w->rows / heads, w->cols, x, stride, n, y, dev->stream);
        return;
    }
    k3_gpu_round_q8_0(x, n * heads, w->cols, stride, &dev->s.acts, dev->stream);
    k3_gpu_multiply_heads_q8_0(&w->q8_0, &dev->s.acts, heads, n, y, dev->stream);
}
