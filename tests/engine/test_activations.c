/* Every intermediate value of the reference's p1 prefill against ours, operation by operation. */
#include "reference.h"

#include "engine/engine_internal.h"
#include "ops/cpu_device.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIXTURES K3_TEST_DATA "/fixtures"

/* Of the largest value of the array. Ours and the reference's sums have other orders: 1e-5 is seen. */
#define TOLERANCE 1e-4

/* All that was shown under one name in one layer, in order; rows of pairs (token, choice) go to their place. */
struct record {
    char name[32];
    int layer;
    float *values;
    size_t n;
};

struct recording {
    struct record *list;
    size_t n;
};

static void record(void *ctx, const char *name, int layer, size_t row, const float *values, size_t n_rows,
                   size_t width)
{
    struct recording *r = ctx;
    struct record *to = NULL;
    if (!strncmp(name, "ffn_moe_", 8)) /* these come row by row, in any order */
        for (size_t i = 0; i < r->n; i++)
            if (!strcmp(r->list[i].name, name) && r->list[i].layer == layer) to = &r->list[i];
    if (!to) {
        r->list = realloc(r->list, (r->n + 1) * sizeof *r->list);
        to = &r->list[r->n++];
        *to = (struct record){.layer = layer};
        snprintf(to->name, sizeof to->name, "%s", name);
    }
    size_t end = (row + n_rows) * width;
    if (end > to->n) {
        to->values = realloc(to->values, end * sizeof *to->values);
        to->n = end;
    }
    memcpy(to->values + row * width, values, n_rows * width * sizeof *values);
}

/* The `occurrence`-th record of a name and layer. The reference counts states over all layers. */
static const struct record *find(const struct recording *r, const char *name, int layer, int occurrence)
{
    bool any_layer = !strcmp(name, "kda_state");
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->list[i].name, name) && (any_layer || r->list[i].layer == layer) && occurrence-- == 0)
            return &r->list[i];
    return NULL;
}

static void compare_entry(const char *model, const json_t *entry, const struct recording *r,
                          const float *reference)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    int layer = (int)json_integer_value(json_object_get(entry, "layer"));
    int occurrence = (int)json_integer_value(json_object_get(entry, "occurrence"));
    const float *want = reference + json_integer_value(json_object_get(entry, "offset_floats"));
    size_t n = 1, i;
    json_t *dimension;
    json_array_foreach(json_object_get(entry, "shape"), i, dimension) n *=
        (size_t)json_integer_value(dimension);

    const struct record *got = find(r, name, layer, occurrence);
    if (!got) fail_msg("%s: %s of layer %d (%d) was not shown", model, name, layer, occurrence);
    if (got->n != n)
        fail_msg("%s: %s of layer %d has %zu values, expected %zu", model, name, layer, got->n, n);
    double largest = 0;
    for (i = 0; i < n; i++) largest = fmax(largest, fabs((double)want[i]));
    for (i = 0; i < n; i++)
        if (!(fabs((double)got->values[i] - (double)want[i]) <= TOLERANCE * largest))
            fail_msg("%s: %s of layer %d (%d): value %zu is %.9g, expected %.9g", model, name, layer,
                     occurrence, i, (double)got->values[i], (double)want[i]);
}

static size_t compare_model(const char *name, const struct prompt *p)
{
    char path[256];
    snprintf(path, sizeof path, FIXTURES "/models/%s.gguf", name);
    struct k3_model *model = open_model(path, true, 2);
    struct recording recording = {0};
    struct k3_tap tap = {record, &recording};
    k3_cpu_device_set_tap(model->device, &tap);
    free(prefill(model, p->ids, p->n, 0));
    k3_model_close(model);

    json_error_t error;
    size_t n, i;
    snprintf(path, sizeof path, FIXTURES "/ref/%s/exact/acts_p1.f32", name);
    float *reference = read_floats(path, &n);
    snprintf(path, sizeof path, FIXTURES "/ref/%s/exact/acts_p1.json", name);
    json_t *entries = json_load_file(path, 0, &error), *entry;
    assert_non_null(reference);
    assert_non_null(entries);
    json_array_foreach(entries, i, entry) compare_entry(name, entry, &recording, reference);
    size_t n_entries = json_array_size(entries);

    json_decref(entries);
    free(reference);
    for (i = 0; i < recording.n; i++) free(recording.list[i].values);
    free(recording.list);
    return n_entries;
}

static void every_intermediate_value_agrees(void **state)
{
    (void)state;
    const char *models[] = {"k3-tiny-a-f32", "k3-tiny-a-q8_0-mxfp4", "k3-tiny-b-q8_0-mxfp4", "k3-tiny-c-f32",
                            "k3-tiny-q-q8_0-iq1_m-iq2_xxs"};
    struct prompts prompts = read_prompts(FIXTURES "/prompts.tsv");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        print_message("%s: %zu arrays agree\n", models[i],
                      compare_model(models[i], find_prompt(&prompts, "p1")));
    free_prompts(&prompts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_intermediate_value_agrees)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
