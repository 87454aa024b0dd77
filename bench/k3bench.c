/* k3bench.c - the verbs of k3bench. */
#include "verbs.h"

#include "common/dispatch.h"

static const struct k3_verb verbs[] = {
    {"decode", "tokens a second, one token at a time", k3_verb_decode},
    {"prefill", "tokens a second, many tokens at a time", k3_verb_prefill},
    {"kernels", "products of weights and activations, beside the machine's limits", k3_verb_kernels},
    {"floats", "loops over floats: attention, activations, norms", k3_verb_floats},
    {"gpu", "kernels of a GPU, beside what it copies and multiplies at most", k3_verb_gpu},
    {"model-of", "how fast a machine would run a model, and what binds it", k3_verb_model_of},
    {"plot", "charts of what the other verbs measured", k3_verb_plot},
    {"policy", "hit rates of cache policies on recorded routing", k3_verb_policy},
    {"io", "what the expert store reads a second, and what the drive gives", k3_verb_io},
    {0},
};

int main(int argc, char **argv)
{
    return k3_dispatch(argc, argv, "Measures Kimi-K3 models and the engine on this machine.", verbs);
}
