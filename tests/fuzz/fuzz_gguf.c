/* fuzz_gguf.c - any bytes at all, opened as a model file: they end in a plan or in a message, and in nothing
 * else.
 *
 * corpus/gguf/ holds seeds: k3.gguf is a whole K3 of four small layers, kinds.gguf has a value of every kind.
 */
#include "memory_file.h"
#include "model/census.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_explain(k3_status status, const struct k3_error *err)
{
    if (status != K3_OK && (err->status != status || !err->message[0])) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = test_memory_file(data, size);
    struct k3_error err = {K3_OK, ""};
    struct k3_gguf *gguf = NULL;
    struct k3_plan *plan = NULL;
    k3_status status = k3_gguf_open(path, &gguf, &err);
    must_explain(status, &err);
    if (status != K3_OK) return 0;

    struct k3_census census;
    if (k3_census_take(gguf, &census, &err) != K3_OK) abort();
    k3_status planned = k3_plan_open(path, &plan, &err);
    must_explain(planned, &err);
    if ((planned == K3_OK) != (census.n_problems == 0)) abort();

    k3_plan_close(plan);
    k3_census_free(&census);
    k3_gguf_close(gguf);
    return 0;
}
