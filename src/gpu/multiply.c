/* multiply.c - products: the kernels for the type of the matrix, with activations as that type takes them. */
#include "gpu/gpu_internal.h"

/* What products with q8_0 matrices take of x: what the kernel that made it left, or rounded here. */
static const struct k3_gpu_acts *rounded(struct k3_gpu_device *dev, const struct k3_gpu_input *in, size_t n,
                                         size_t cols)
{
    if (in->acts) return in->acts;
    k3_gpu_round_q8_0(in->x, n, cols, cols, &dev->s.acts, dev->stream);
    return &dev->s.acts;
}

void k3_gpu_matmul_all(struct k3_gpu_device *dev, const struct k3_gpu_target *targets, size_t n_targets,
                       const struct k3_gpu_input *in, size_t n)
{
    struct k3_gpu_product products[K3_GPU_MAX_PRODUCTS];
    size_t n_products = 0;
    for (size_t i = 0; i < n_targets; i++) {
        const struct k3_gpu_matrix *w = targets[i].w;
        if (w->q8_0.q)
            products[n_products++] = (struct k3_gpu_product){w->q8_0, targets[i].y};
        else
            k3_gpu_multiply_f32(w->f32, w->rows, w->cols, in->x, n, targets[i].y, dev->stream);
    }
    if (n_products)
        k3_gpu_multiply_all_q8_0(products, n_products, rounded(dev, in, n, products[0].w.cols), n,
                                 dev->stream);
}

void k3_gpu_matmul(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const struct k3_gpu_input *in,
                   size_t n, float *y)
{
    k3_gpu_matmul_all(dev, &(struct k3_gpu_target){w, y}, 1, in, n);
}

void k3_gpu_matmul_add(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w,
                       const struct k3_gpu_input *in, size_t n, const float *plus, float *y)
{
    if (w->q8_0.q) {
        k3_gpu_multiply_add_q8_0(&w->q8_0, rounded(dev, in, n, w->cols), n, plus, y, dev->stream);
        return;
    }
    k3_gpu_multiply_f32(w->f32, w->rows, w->cols, in->x, n, dev->s.product, dev->stream);
    if (plus) k3_gpu_add(dev->s.product, plus, n * w->rows, dev->stream);
    k3_gpu_add(y, dev->s.product, n * w->rows, dev->stream);
}

void k3_gpu_matmul_heads(struct k3_gpu_device *dev, const struct k3_gpu_matrix *w, const float *x,
                         const struct k3_gpu_acts *acts, size_t stride, size_t n, float *y)
{
    size_t heads = dev->hp->n_heads;
    if (!w->q8_0.q) {
        k3_gpu_multiply_heads_f32(w->f32, heads, w->rows / heads, w->cols, x, stride, n, y, dev->stream);
        return;
    }
    if (!acts) k3_gpu_round_q8_0(x, n * heads, w->cols, stride, &dev->s.acts, dev->stream);
    k3_gpu_multiply_heads_q8_0(&w->q8_0, acts ? acts : &dev->s.acts, heads, n, y, dev->stream);
}

const struct k3_gpu_acts *k3_gpu_acts_for(const struct k3_gpu_device *dev, const struct k3_gpu_matrix *w)
{
    return w->q8_0.q ? &dev->s.acts : NULL;
}
