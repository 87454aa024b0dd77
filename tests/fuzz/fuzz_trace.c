/* fuzz_trace.c - any bytes as a trace of routing: they end in a trace whose ids are in range or in a message. */
#include "memory_file.h"
#include "common/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct k3_error err = {K3_OK, ""};
    struct k3_trace trace = {0};
    k3_status status = k3_trace_read(test_memory_file(data, size), &trace, &err);
    if (status != K3_OK && (err.status != status || !err.message[0])) abort();
    if (status != K3_OK) return 0;
    size_t n = trace.begin[(size_t)trace.n_tokens * trace.n_layers];
    for (size_t i = 0; i < n; i++)
        if (trace.ids[i] >= trace.n_experts) abort();
    k3_trace_free(&trace);
    return 0;
}
