/* verb_routing.c - statistics of a recorded trace of routing. */
#include "verbs.h"
#include "routing.h"

#include <stdio.h>
#include <unistd.h>

#define ABOUT                                                                                                \
    "Usage: k3tool routing FILE\n"                                                                           \
    "Shows what a trace of routing (one JSON object a line: {\"tok\": 0, \"layers\": [[3, 17], ...]}) "      \
    "says,\n"                                                                                                \
    "for each MoE layer and for all: the share of a token's experts that the token before had, too; the\n"   \
    "different experts of 2 to 32 tokens in multiples of those of one; and the share of requests that "      \
    "goes\n"                                                                                                 \
    "to the tenth of the experts that is used most.\n"

static void print_row(const char *name, const struct k3_routing_stats *s)
{
    k3_out("%8s %9.3f", name, s->overlap);
    for (int i = 0; i < K3_ROUTING_SPANS; i++) k3_out(" %7.2f", s->distinct[i]);
    k3_out(" %10.3f\n", s->top_tenth);
}

static void add(struct k3_routing_stats *sum, const struct k3_routing_stats *s, double weight)
{
    sum->overlap += weight * s->overlap;
    for (int i = 0; i < K3_ROUTING_SPANS; i++) sum->distinct[i] += weight * s->distinct[i];
    sum->top_tenth += weight * s->top_tenth;
}

static k3_status print_trace(const char *path, uint32_t n_experts, struct k3_error *err)
{
    struct k3_trace trace;
    struct k3_routing_stats all = {0}, one;
    k3_status status = k3_trace_read(path, &trace, err);
    if (status != K3_OK) return status;
    if (!n_experts) n_experts = trace.n_experts;
    if (trace.n_experts > n_experts)
        status = k3_fail(err, K3_ERR_ARGUMENT, "%s: has expert %u, but --experts is %u", path,
                         trace.n_experts - 1, n_experts);
    if (status == K3_OK) {
        k3_out("%u tokens, %u MoE layers, %.4g of %u experts\n\n", trace.n_tokens, trace.n_layers,
               (double)trace.begin[(size_t)trace.n_tokens * trace.n_layers] / trace.n_tokens / trace.n_layers,
               n_experts);
        k3_out("%8s %9s %7s %7s %7s %7s %7s %10s\n", "layer", "overlap", "2", "4", "8", "16", "32",
               "top tenth");
    }
    for (uint32_t layer = 0; status == K3_OK && layer < trace.n_layers; layer++) {
        char name[16];
        snprintf(name, sizeof name, "%u", layer);
        status = k3_routing_measure(&trace, layer, n_experts, &one, err);
        if (status != K3_OK) break;
        add(&all, &one, 1.0 / trace.n_layers);
        print_row(name, &one);
    }
    if (status == K3_OK) print_row("all", &all);
    k3_trace_free(&trace);
    return status;
}

int k3_verb_routing(int argc, char **argv)
{
    struct k3_error err;
    uint32_t n_experts = 0;
    bool help = false;
    const struct k3_option table[] = {
        {.kind = K3_OPTION_HEADING, .help = "Options"},
        {K3_OPTION_U32, 0, "experts", &n_experts, 1, 1 << 16, "N",
         "experts in a layer (default: as many as the trace names)"},
        K3_HELP_OPTION(help),
        {.kind = K3_OPTION_END},
    };
    k3_status status = k3_options_parse(argc, argv, table, 1, &err);
    if (status == K3_OK && help) k3_options_help(ABOUT, table);
    if (status != K3_OK || help) return k3_program_end(status, &err);
    status = optind < argc ? print_trace(argv[optind], n_experts, &err)
                           : k3_fail(&err, K3_ERR_ARGUMENT, "which trace? Name a file");
    return k3_program_end(status, &err);
}
