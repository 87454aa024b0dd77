/* fuzz_results.c - any bytes as results of k3bench: they end in rates that are numbers or in a message, and whatever the
 * rates are, a scale can be drawn for them. */
#include "chart.h"
#include "memory_file.h"
#include "rates.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(double rate)
{
    if (!(rate >= 0 && rate < 1e18)) abort();
    double step = k3_chart_step(rate);
    if (!(step > 0) || rate / step > 10.5) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct k3_error err = {K3_OK, ""};
    struct k3_rates rates;
    k3_status status = k3_rates_read(test_memory_file(data, size), &rates, &err);
    if (status != K3_OK && (err.status != status || !err.message[0])) abort();
    if (status != K3_OK) return 0;
    check(rates.bandwidth);
    check(rates.cores);
    for (int t = 0; t < K3_TYPE_COUNT; t++) {
        check(rates.one[t]);
        check(rates.many[t]);
    }
    return 0;
}
