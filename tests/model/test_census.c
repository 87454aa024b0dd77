/* The census, on the real shape of K3 (headers only, the weights are holes) and on files with problems. */
#include "k3_builder.h"
#include "model/census.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

/* Numbers of gguf.md sections 4 and 5, which were checked against the published sizes. */
static void reap55_has_the_published_size(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    struct k3_plan *plan = NULL;
    struct k3_census census;
    struct k3_error err;
    test_folder_make(folder);
    gb_init(&gb);
    gb_add_k3(&gb, &k3_reap55);
    gb_write_split(&gb, test_path(folder, "reap55"), 8, 0);
    gb_free(&gb);
    if (k3_plan_open(test_path(folder, "reap55-00005-of-00008.gguf"), &plan, &err) != K3_OK)
        fail_msg("%s", err.message);
    assert_int_equal(k3_census_take(plan->gguf, &census, &err), K3_OK);

    assert_int_equal(census.n_problems, 0);
    assert_int_equal(census.n_tensors, 2573);
    assert_int_equal(census.bytes, 342477101184);
    assert_int_equal(census.n_expert_tensors, 276);
    assert_int_equal(census.n_slots, 36800);
    assert_int_equal(census.expert_parameters, 1215509299200);
    assert_int_equal(census.expert_bytes, 281719603200);
    assert_int_equal(census.parameters, 1271924468768);
    assert_int_equal(census.types[K3_TYPE_F32].count, 1112);
    assert_int_equal(census.types[K3_TYPE_Q8_0].count, 1185);
    assert_int_equal(census.types[K3_TYPE_IQ1_M].count, 184);
    assert_int_equal(census.types[K3_TYPE_IQ2_XXS].count, 92);
    assert_int_equal(census.types[K3_TYPE_Q8_0].bytes, 59645831168);
    assert_int_equal(census.types[K3_TYPE_F32].bytes, 1111666816);
    assert_int_equal(k3_plan_tensor(plan, 92, K3_EXPERTS_DOWN)->bytes, 1135411200);
    assert_true(plan->hp.is_mla[91] && plan->hp.is_mla[92] && !plan->hp.is_mla[90]);

    k3_census_free(&census);
    k3_plan_close(plan);
    test_folder_remove(folder);
}

static void all_problems_are_listed_and_the_first_is_the_error(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    struct k3_gguf *gguf = NULL;
    struct k3_plan *plan = NULL;
    struct k3_census census;
    struct k3_error err;
    test_folder_make(folder);
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    gb_drop_key(&gb, "kimi-k3.expert_weights_norm");
    gb_drop_tensor(&gb, "blk.0.ffn_down.weight");
    gb_drop_tensor(&gb, "blk.3.ffn_down_exps.weight");
    gb_write(&gb, test_path(folder, "m.gguf"));
    gb_free(&gb);
    const char *path = test_path(folder, "m.gguf");

    assert_int_equal(k3_plan_open(path, &plan, &err), K3_ERR_FORMAT);
    assert_null(plan);
    assert_int_equal(k3_gguf_open(path, &gguf, NULL), K3_OK);
    assert_int_equal(k3_census_take(gguf, &census, NULL), K3_OK);
    assert_int_equal(census.n_problems, 3);
    assert_string_equal(census.problems[0], err.message);
    assert_string_equal(census.problems[0], "m.gguf: key kimi-k3.expert_weights_norm is missing");
    assert_string_equal(census.problems[1], "m.gguf: tensor blk.0.ffn_down.weight is missing");
    assert_string_equal(census.problems[2], "m.gguf: tensor blk.3.ffn_down_exps.weight is missing");
    assert_int_equal(census.n_expert_tensors, 8);
    k3_census_free(&census);
    k3_gguf_close(gguf);
    test_folder_remove(folder);
}

/* A width that is not known says nothing of the tensors that depend on it. */
static void one_wrong_key_is_one_problem(void **state)
{
    (void)state;
    static const char *const keys[] = {
        "kimi-k3.embedding_length",         "kimi-k3.attention.head_count",
        "kimi-k3.rope.dimension_count",     "kimi-k3.expert_feed_forward_length",
        "kimi-k3.attention.head_count_kv",  "kimi-k3.attention.kv_lora_rank",
        "kimi-k3.attention.key_length_mla", "tokenizer.ggml.tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char folder[64];
        struct gb gb;
        struct k3_gguf *gguf = NULL;
        struct k3_census census;
        test_folder_make(folder);
        gb_init(&gb);
        gb_add_k3(&gb, &k3_tiny);
        gb_drop_key(&gb, keys[i]);
        gb_write(&gb, test_path(folder, "m.gguf"));
        gb_free(&gb);
        assert_int_equal(k3_gguf_open(test_path(folder, "m.gguf"), &gguf, NULL), K3_OK);
        assert_int_equal(k3_census_take(gguf, &census, NULL), K3_OK);
        if (census.n_problems != 1)
            fail_msg("%s: %zu problems, %s", keys[i], census.n_problems, census.problems[1]);
        assert_non_null(strstr(census.problems[0], keys[i]));
        k3_census_free(&census);
        k3_gguf_close(gguf);
        test_folder_remove(folder);
    }
}

static void another_kind_of_file_is_counted_too(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    struct k3_gguf *gguf = NULL;
    struct k3_census census;
    test_folder_make(folder);
    gb_init(&gb);
    gb_add_tensor(&gb, "blk.0.ffn_up_exps.weight.in_sum2", K3_TYPE_F32, 1, (uint64_t[]){7});
    gb_write(&gb, test_path(folder, "m.gguf"));
    gb_free(&gb);
    assert_int_equal(k3_gguf_open(test_path(folder, "m.gguf"), &gguf, NULL), K3_OK);
    assert_int_equal(k3_census_take(gguf, &census, NULL), K3_OK);
    assert_int_equal(census.n_tensors, 1);
    assert_int_equal(census.parameters, 7);
    assert_int_equal(census.n_expert_tensors, 0);
    assert_int_equal(census.n_problems, 1);
    assert_string_equal(census.problems[0], "m.gguf: key general.architecture is missing");
    k3_census_free(&census);
    k3_gguf_close(gguf);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reap55_has_the_published_size),
        cmocka_unit_test(all_problems_are_listed_and_the_first_is_the_error),
        cmocka_unit_test(one_wrong_key_is_one_problem),
        cmocka_unit_test(another_kind_of_file_is_counted_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
