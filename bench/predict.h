/* predict.h - how long a machine takes for a token, and for a batch of tokens: docs/performance-model.md has the formulas
 * and where their numbers come from. */
#ifndef K3_BENCH_PREDICT_H
#define K3_BENCH_PREDICT_H

#include "cost.h"

struct k3_machine {
    double cores;
    double ram_bytes, reserve_bytes; /* of which the system, the program, sessions and activations take */
    double vram_bytes;               /* 0: no GPU */
    double ram_rate, vram_rate, pcie_rate, drive_rate; /* bytes a second */
    double gpu_rate;                                   /* multiply-adds a second */
    double one[K3_TYPE_COUNT],
        many[K3_TYPE_COUNT]; /* multiply-adds a second and core, with one and many columns */
    double layer_s;          /* what a layer takes beside its work: threads; and launches, in prefill */
    double launch_s;         /* of a GPU, from the end of one kernel to where the next one is at full speed */
    double transfer_s;       /* of a copy between GPU and host, beside its bytes */
    double wait_s;           /* from the end of what the host waits for to where its threads work with it */
    double op_rate;          /* of a GPU: instructions of threads a second */
    double hits;             /* share of requests found in memory; negative: as the cached share gives */
};

#define K3_MAX_TERMS 12

struct k3_term {
    const char *name, *what;
    double seconds;
};

struct k3_prediction {
    struct k3_term terms[K3_MAX_TERMS];
    uint32_t n_terms;
    double cached;       /* share of the pool of experts in memory */
    double hits;         /* share of requests; in prefill of the experts touched */
    double sequential_s; /* nothing at the same time */
    double overlapped_s; /* everything at the same time that can be */
    const char *bound;   /* the name of the term that `overlapped_s` could not do without most */
};

/* Seconds of all calls of a kernel, or of the host, for a token that sees `keys` tokens, itself included. */
double k3_predict_gpu_work(const struct k3_machine *m, const struct k3_gpu_work *work, double keys);

/* Seconds of all kernels of a token, of the host's copies and waits, and of the memory alone: each dense weight once, as
 * files have it, the KDA state twice, the MLA cache once. */
double k3_predict_gpu_kernels(const struct k3_machine *m, const struct k3_cost *cost, double keys);
double k3_predict_gpu_host(const struct k3_machine *m, const struct k3_cost *cost, double keys);
double k3_predict_gpu_floor(const struct k3_machine *m, const struct k3_cost *cost, double keys);

/* A token after `context` others. */
void k3_predict_decode(const struct k3_machine *m, const struct k3_cost *cost, double context,
                       struct k3_prediction *p);

/* n tokens after `context` others, in batches of `batch`. */
void k3_predict_prefill(const struct k3_machine *m, const struct k3_cost *cost, double context, double n,
                        double batch, struct k3_prediction *p);

/* Hit rate of decode when a share of the pool is in memory. */
double k3_predict_hits(double cached);

/* The share of a layer's experts that a batch of n tokens touches; a token touches `least` of it. */
double k3_predict_touched(double n, double least);

#endif
