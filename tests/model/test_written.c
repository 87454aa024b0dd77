/* Hyper-parameters that are written are read back the same, and the tensors described are those that are asked for. */
#include "gguf_builder.h"

#include "model/census.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define MODELS K3_TEST_DATA "/fixtures/models/"

static struct k3_error err;

static void check(k3_status status)
{
    if (status != K3_OK) fail_msg("%s", err.message);
}

static void put_tokenizer(struct k3_gguf_writer *w, const struct k3_gguf *from)
{
    for (size_t i = 0; i < from->n_values; i++)
        if (!strncmp(from->values[i].key, "tokenizer.", 10)) check(k3_gguf_put(w, &from->values[i], &err));
}

static void put_tensors(struct k3_gguf_writer *w, const struct k3_hparams *hp)
{
    char name[K3_GGUF_NAME_MAX + 1];
    uint64_t ne[K3_GGUF_MAX_DIMS];
    uint32_t n_dims;
    for (uint32_t layer = 0; layer < hp->n_layers; layer++)
        for (int role = 0; role < K3_ROLE_COUNT; role++)
            if (k3_role_describe(hp, (enum k3_role)role, layer, name, ne, &n_dims))
                check(k3_gguf_put_tensor(w, name, K3_TYPE_F32, n_dims, ne, &err));
    void *zeros = calloc(1, k3_gguf_writer_bytes(w));
    check(k3_gguf_put_data(w, zeros, k3_gguf_writer_bytes(w), &err));
    free(zeros);
}

static void written_hyper_parameters_are_read_back(void **state)
{
    (void)state;
    static const char *const models[] = {MODELS "k3-tiny-a-f32.gguf", MODELS "k3-tiny-b-q8_0-mxfp4.gguf",
                                         MODELS "k3-tiny-c-f32.gguf", K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char folder[64];
        struct k3_plan *from = NULL, *back = NULL;
        struct k3_gguf_writer *w = NULL;
        struct k3_census census;
        test_folder_make(folder);
        check(k3_plan_open(models[i], &from, &err));
        check(k3_gguf_writer_create(test_path(folder, "m.gguf"), &w, &err));
        check(k3_gguf_put_string(w, "general.architecture", "kimi-k3", &err));
        check(k3_hparams_write(&from->hp, w, &err));
        put_tokenizer(w, from->gguf);
        put_tensors(w, &from->hp);
        check(k3_gguf_writer_commit(w, &err));
        k3_gguf_writer_free(w);

        check(k3_plan_open(test_path(folder, "m.gguf"), &back, &err));
        assert_memory_equal(&back->hp, &from->hp, sizeof back->hp);
        check(k3_census_take(back->gguf, &census, &err));
        assert_int_equal(census.n_problems, 0);
        k3_census_free(&census);
        k3_plan_close(back);
        k3_plan_close(from);
        test_folder_remove(folder);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(written_hyper_parameters_are_read_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
