/* route.cu - which experts a token goes to, and their weights.
 *
 * FORMULA. prob = sigmoid(logit); the top_k largest prob + bias, the lower index where two are equal, best first;
 * their weights are prob, divided by the sum of the chosen if `normalise`, times `scale` (architecture.md section 7).
 * MAPPING. A block of threads for each token. A thread ranks every 256th expert: how many have a larger score, or the
 * same and a lower index. Ranks are all different, so the expert of rank r < top_k writes itself to place r: no sort,
 * and one barrier. The weights' sum has top_k terms, which one thread adds in order.
 * COST. n_experts^2 comparisons, 160,000 with 400 experts, 625 for a thread, which read the same shared value as
 * their neighbours. Bound: latency of shared memory. */
#include "kernels.h"
#include "simt.h"

#define THREADS 256u

K3_KERNEL route(K3_GLOBAL(float) probs, K3_CONSTANT(float) bias, unsigned n_experts, unsigned top_k,
                int normalise, float scale, K3_GLOBAL(uint32_t) ids, K3_GLOBAL(float) weights)
{
    K3_SHARED(float, scores, K3_GPU_MAX_EXPERTS);
    K3_SHARED(float, chosen, K3_GPU_MAX_TOP_K);
    probs = probs + (size_t)blockIdx.x * n_experts;
    ids = ids + (size_t)blockIdx.x * top_k;
    weights = weights + (size_t)blockIdx.x * top_k;

    for (unsigned e = threadIdx.x; e < n_experts; e += THREADS) {
        float prob = k3_sigmoid(probs[e]), score = prob + bias[e];
        probs[e] = prob;
        scores[e] = score == score ? score : -INFINITY; /* NaN has no rank: ids would stay unwritten */
    }
    k3_sync();
    for (unsigned e = threadIdx.x; e < n_experts; e += THREADS) {
        float mine = scores[e];
        unsigned rank = 0;
        for (unsigned other = 0; other < n_experts; other++)
            rank += scores[other] > mine || (scores[other] == mine && other < e);
        if (rank < top_k) {
            ids[rank] = e;
            chosen[rank] = probs[e];
        }
    }
    k3_sync();
    if (threadIdx.x >= top_k) return;
    float weight = chosen[threadIdx.x], sum = 0;
    for (unsigned i = 0; i < top_k; i++) sum += chosen[i];
    if (normalise) weight /= sum + 1e-20f;
    weights[threadIdx.x] = weight * scale;
}

extern "C" void k3_gpu_route(float *probs, const float *bias, size_t n, size_t n_experts, size_t top_k,
                             int normalise, float scale, uint32_t *ids, float *weights, k3_stream stream)
{
    K3_LAUNCH(route, (unsigned)n, THREADS, stream, probs, bias, (unsigned)n_experts, (unsigned)top_k,
              normalise, scale, ids, weights);
}
