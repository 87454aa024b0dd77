/* machine.h - what a result has to say about the machine it was measured on, and whether that machine was quiet. */
#ifndef K3_BENCH_MACHINE_H
#define K3_BENCH_MACHINE_H

#include "base/error.h"

#include <jansson.h>

/* Chooses the kernels that the environment variable K3_CPU names, if it is set. */
k3_status k3_machine_kernels(struct k3_error *err);

/* {"cpu", "cores", "processors", "kernel", "compiler", "flags", "version", "kernels"}: the processor's name, cores and
 * processors to use, the system's release, what built this program and how, and the implementation that computes. NULL when memory is out. */
json_t *k3_machine_json(void);

/* Cores among the processors this process may use: those that share one by SMT count once. */
int k3_machine_cores(void);

/* Bytes of the last level of cache, and of the second; 0: unknown. */
uint64_t k3_machine_last_cache(void);

/* "fnv1a64:" and a hash of the sizes of a model's files and of their headers, up to the first tensor: quick, and the same
 * for files that differ in their weights alone. */
k3_status k3_machine_model_hash(const char *path, json_t **hash, struct k3_error *err);

/* ---- noise ---- */

struct k3_noise {
    uint64_t started_ns, own_ns;
    double busy_s; /* of all processors, since the system started; negative: not known */
};

void k3_noise_begin(struct k3_noise *noise);

/* Processors that others kept busy since then, on average; negative: not known. */
double k3_noise_others(const struct k3_noise *noise);

/* {"others_busy", "load_average", "spread", "noisy"}. `spread`: the median over the rows of how far their repetitions lie
 * apart. */
json_t *k3_noise_json(const struct k3_noise *noise, double spread);

/* Gives each row the members `machine`, without `kernels`, which rows of this kind name themselves, and `noise`. */
k3_status k3_machine_add(json_t *rows, json_t *noise, struct k3_error *err);

/* Says when results are not to be trusted: below a table, and to a person whose table went to a file as JSON or CSV. */
void k3_noise_warn(const json_t *noise, bool table);

#endif
