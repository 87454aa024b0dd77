/* Weights on their way to the emulated GPU: how it is connected, and what is read back when they are verified. */
#include "emulator/faults.h"

#include <k3/k3.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#define MODEL(name) K3_TEST_DATA "/fixtures/models/" name

static k3_status open_and_close(const char *path, bool verify, struct k3_error *err)
{
    struct k3_model_options options = {.threads = 1, .gpu = K3_GPU(0), .context = 64, .verify = verify};
    struct k3_model *model;
    k3_status status = k3_model_open(path, &options, &model, err);
    if (status == K3_OK) k3_model_close(model);
    return status;
}

/* ---- copies ---- */

/* The sentence for a bit that changed in the n-th copy; false if there are fewer copies. */
static bool check_wrong_copy(const char *path, unsigned n)
{
    struct k3_error err;
    k3_simt_faults.bad_copy = n;
    k3_status status = open_and_close(path, true, &err);
    bool happened = k3_simt_faults.bad_copy == 0;
    k3_simt_faults.bad_copy = 0;
    if (status == K3_OK && happened) fail_msg("%s: a wrong bit in copy %u is not noticed", path, n);
    if (!happened) {
        assert_int_equal(status, K3_OK);
        return false;
    }
    assert_int_equal(status, K3_ERR_IO);
    if (!strstr(err.message, "is not what was uploaded")) fail_msg("copy %u: %s", n, err.message);
    assert_int_equal(strncmp(err.message, "tensor ", 7), 0);
    return true;
}

static void a_wrong_bit_in_any_copy_is_found_where_it_is_verified(void **state)
{
    (void)state;
    const char *const files[] = {MODEL("k3-tiny-a-q8_0-mxfp4.gguf"), MODEL("k3-tiny-c-f32.gguf")};
    for (size_t i = 0; i < 2; i++) {
        unsigned n = 1;
        while (check_wrong_copy(files[i], n)) n += 1 + n / 8;
        assert_true(n > 50); /* there are as many tensors, and then it was none of them */
    }
}

static void nothing_is_read_back_unless_asked_for(void **state)
{
    (void)state;
    struct k3_error err;
    k3_simt_faults.bad_copy = 1;
    k3_status status = open_and_close(MODEL("k3-tiny-a-q8_0-mxfp4.gguf"), false, &err);
    assert_int_equal(k3_simt_faults.bad_copy, 0);
    if (status != K3_OK) fail_msg("%s", err.message);
}

/* ---- the link ---- */

static void collect(void *ctx, const char *message)
{
    char *all = ctx;
    strncat(all, message, 1000 - strlen(all));
}

/* What is logged with that link; the plan must have it too. */
static void log_with(struct k3_pcie link, char log[1001])
{
    struct k3_error err;
    struct k3_memory_plan plan;
    struct k3_model_options options = {.threads = 1, .gpu = K3_GPU(0), .context = 64};
    k3_simt_faults.link = link;
    log[0] = 0;
    k3_set_log(collect, log);
    k3_status status = open_and_close(MODEL("k3-tiny-a-q8_0-mxfp4.gguf"), false, &err);
    k3_set_log(NULL, NULL);
    if (status != K3_OK) fail_msg("%s", err.message);
    assert_int_equal(k3_memory_plan(MODEL("k3-tiny-a-q8_0-mxfp4.gguf"), &options, &plan, &err), K3_OK);
    k3_simt_faults.link = (struct k3_pcie){0};
    assert_int_equal(plan.pcie_generation, link.generation);
    assert_int_equal(plan.pcie_width, link.width);
    assert_int_equal(plan.pcie_max_width, link.max_width);
}

static void a_link_with_fewer_lanes_than_there_are_is_worth_a_sentence(void **state)
{
    (void)state;
    char log[1001];
    log_with((struct k3_pcie){5, 8, 16}, log);
    if (!strstr(log, "GPU 0 (emulated) is connected by 8 of its 16 PCIe lanes")) fail_msg("%s", log);
    log_with((struct k3_pcie){4, 16, 16}, log);
    assert_string_equal(log, "");
    log_with((struct k3_pcie){0, 0, 16}, log); /* not known */
    assert_string_equal(log, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_bit_in_any_copy_is_found_where_it_is_verified),
        cmocka_unit_test(nothing_is_read_back_unless_asked_for),
        cmocka_unit_test(a_link_with_fewer_lanes_than_there_are_is_worth_a_sentence),
    };
    return cmocka_run_group_tests_name("uploads to the GPU", tests, NULL, NULL);
}
