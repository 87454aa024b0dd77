/* Plans of models that are in order: the fixtures, the real shape of K3, and the older ways to write things
 * down. */
#include "k3_builder.h"
#include "model/model.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS K3_TEST_DATA "/fixtures/models/"

static struct k3_plan *open_or_fail(const char *path)
{
    struct k3_plan *plan = NULL;
    struct k3_error err;
    if (k3_plan_open(path, &plan, &err) != K3_OK) fail_msg("%s", err.message);
    return plan;
}

static struct k3_plan *open_gb(struct gb *gb)
{
    char folder[64];
    test_folder_make(folder);
    gb_write(gb, test_path(folder, "m.gguf"));
    struct k3_plan *plan = open_or_fail(test_path(folder, "m.gguf"));
    test_folder_remove(folder);
    return plan;
}

static void fixtures_have_the_hyper_parameters_they_were_made_with(void **state)
{
    (void)state;
    struct k3_plan *a = open_or_fail(MODELS "split/k3-tiny-a-q8_0-mxfp4-00001-of-00002.gguf");
    const struct k3_hparams *hp = &a->hp;
    assert_int_equal(hp->n_layers, 5);
    assert_int_equal(hp->n_embd, 128);
    assert_int_equal(hp->n_vocab, 512);
    assert_int_equal(hp->context_length, 4096);
    assert_int_equal(hp->n_heads, 3);
    assert_int_equal(hp->kda_dim, 32);
    assert_int_equal(hp->conv_taps, 4);
    assert_int_equal(hp->q_rank, 64);
    assert_int_equal(hp->kv_rank, 64);
    assert_int_equal(hp->pe_dim, 16);
    assert_int_equal(hp->qk_dim, 48);
    assert_int_equal(hp->v_dim, 32);
    assert_int_equal(hp->n_ffn, 192);
    assert_int_equal(hp->n_dense_layers, 1);
    assert_int_equal(hp->n_experts, 16);
    assert_int_equal(hp->top_k, 4);
    assert_int_equal(hp->n_expert_ffn, 32);
    assert_int_equal(hp->n_shared_ffn, 64);
    assert_int_equal(hp->latent, 64);
    assert_int_equal(hp->res_block, 2);
    assert_true(hp->has_latent && hp->normalise_weights && hp->bounded_gate);
    assert_true(hp->eps == 1e-5f && hp->eps_lora == 1e-5f && hp->gate_floor == -5 && hp->weight_scale == 1);
    assert_true(hp->situ_beta == 4 && hp->situ_linear_beta == 25);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(hp->is_mla[i], i >= 3);
    k3_plan_close(a);

    struct k3_plan *b = open_or_fail(MODELS "k3-tiny-b-q8_0-mxfp4.gguf");
    assert_int_equal(b->hp.q_rank, 0);
    assert_int_equal(b->hp.n_dense_layers, 2);
    assert_true(b->hp.weight_scale == 2.5f && b->hp.gate_floor == -3 && b->hp.eps == 1e-6f);
    assert_non_null(k3_plan_tensor(b, 3, K3_MLA_Q));
    assert_null(k3_plan_tensor(b, 3, K3_MLA_Q_A));
    assert_null(k3_plan_tensor(b, 3, K3_LATENT_NORM));
    assert_non_null(k3_plan_tensor(b, 3, K3_LATENT_DOWN));
    k3_plan_close(b);

    struct k3_plan *c = open_or_fail(MODELS "split/k3-tiny-c-q8_0-mxfp4-00003-of-00003.gguf");
    assert_false(c->hp.has_latent || c->hp.normalise_weights || c->hp.bounded_gate);
    assert_int_equal(c->hp.res_block, 0);
    assert_int_equal(c->hp.latent, 64);
    assert_true(c->hp.situ_linear_beta == 0 && c->hp.weight_scale == 1.5f);
    assert_null(k3_plan_tensor(c, 0, K3_OUTPUT_RES_SCORE));
    assert_null(k3_plan_tensor(c, 1, K3_MLA_GATE));
    k3_plan_close(c);
}

static void every_fixture_gives_a_plan(void **state)
{
    (void)state;
    static const char *const paths[] = {
        MODELS "k3-tiny-a-f32.gguf",
        MODELS "k3-tiny-a-q8_0-mxfp4.gguf",
        MODELS "k3-tiny-c-f32.gguf",
        MODELS "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf",
        MODELS "split/k3-tiny-a-q8_0-mxfp4-00002-of-00002.gguf",
        K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) k3_plan_close(open_or_fail(paths[i]));
    k3_plan_close(NULL);
}

static void a_tensor_is_found_by_layer_and_role(void **state)
{
    (void)state;
    struct k3_plan *plan = open_or_fail(MODELS "k3-tiny-a-f32.gguf");
    assert_string_equal(k3_plan_tensor(plan, 0, K3_OUTPUT)->name, "output.weight");
    assert_string_equal(k3_plan_tensor(plan, 4, K3_OUTPUT)->name, "output.weight");
    assert_string_equal(k3_plan_tensor(plan, 4, K3_EXPERTS_DOWN)->name, "blk.4.ffn_down_exps.weight");
    assert_string_equal(k3_plan_tensor(plan, 2, K3_KDA_A)->name, "blk.2.ssm_a");
    assert_string_equal(k3_plan_tensor(plan, 2, K3_KDA_DT)->name, "blk.2.ssm_dt.bias");
    assert_null(k3_plan_tensor(plan, 2, K3_MLA_GATE));
    assert_null(k3_plan_tensor(plan, 0, K3_ROUTER));
    assert_null(k3_plan_tensor(plan, 1, K3_FFN_UP));
    assert_string_equal(k3_role_name(K3_ATTN_NORM), "attn_norm");
    assert_string_equal(k3_role_name(K3_ROUTER_BIAS), "exp_probs_b");
    for (int role = 0; role < K3_ROLE_COUNT; role++) assert_non_null(k3_role_name((enum k3_role)role));
    k3_plan_close(plan);
}

/* ---- older and other ways ---- */

static void set_ints(struct gb *gb, const char *key, const int32_t *values, uint64_t n)
{
    gb_drop_key(gb, key);
    gb_add_array(gb, key, K3_GGUF_I32, values, n, sizeof *values);
}

static void shapes_of_other_conversions_are_accepted(void **state)
{
    (void)state;
    struct gb gb;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    gb_set_shape(gb_tensor(&gb, "blk.0.ssm_conv1d_q.weight"), K3_TYPE_F32, 4, (uint64_t[]){4, 1, 64, 1});
    gb_set_shape(gb_tensor(&gb, "blk.0.ssm_conv1d_k.weight"), K3_TYPE_F32, 2, (uint64_t[]){4, 64});
    gb_set_shape(gb_tensor(&gb, "blk.0.ssm_a"), K3_TYPE_F32, 2, (uint64_t[]){1, 2});
    gb_set_shape(gb_tensor(&gb, "blk.2.ssm_a"), K3_TYPE_F32, 1, (uint64_t[]){128});
    gb_set_shape(gb_tensor(&gb, "blk.0.attn_norm.weight"), K3_TYPE_F32, 3, (uint64_t[]){32, 1, 1});
    k3_plan_close(open_gb(&gb));
    gb_free(&gb);
}

static void a_joint_kv_b_is_accepted(void **state)
{
    (void)state;
    struct gb gb;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    gb_drop_tensor(&gb, "blk.1.attn_k_b.weight");
    gb_drop_tensor(&gb, "blk.1.attn_v_b.weight");
    gb_add_tensor(&gb, "blk.1.attn_kv_b.weight", K3_TYPE_BF16, 2, (uint64_t[]){32, 2 * (32 + 32)});
    struct k3_plan *plan = open_gb(&gb);
    assert_non_null(k3_plan_tensor(plan, 1, K3_MLA_KV_B));
    assert_null(k3_plan_tensor(plan, 1, K3_MLA_K_B));
    assert_null(k3_plan_tensor(plan, 3, K3_MLA_KV_B));
    assert_non_null(k3_plan_tensor(plan, 3, K3_MLA_K_B));
    k3_plan_close(plan);
    gb_free(&gb);
}

static void keys_of_other_conversions_are_accepted(void **state)
{
    (void)state;
    struct gb gb;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    gb_drop_key(&gb, "kimi-k3.attention.value_length");
    gb_drop_key(&gb, "kimi-k3.attention.key_length");
    gb_drop_key(&gb, "kimi-k3.vocab_size");
    gb_drop_key(&gb, "kimi-k3.context_length");
    gb_drop_key(&gb, "kimi-k3.expert_weights_scale");
    gb_add_f32(&gb, "kimi-k3.expert_weights_scale", 0);
    gb_add_u32(&gb, "kimi-k3.expert_group_count", 1);
    set_ints(&gb, "kimi-k3.expert_used_count", (const int32_t[]){0, 2, 2, 2}, 4);
    set_ints(&gb, "kimi-k3.expert_feed_forward_length", (const int32_t[]){32, 32, 32, 32}, 4);
    gb_drop_key(&gb, "kimi-k3.attention.head_count_kv");
    gb_add_array(&gb, "kimi-k3.attention.head_count_kv", K3_GGUF_U32, (const uint32_t[]){0, 1, 0, 1}, 4, 4);
    struct k3_plan *plan = open_gb(&gb);
    assert_int_equal(plan->hp.n_vocab, 16);
    assert_int_equal(plan->hp.context_length, 0);
    assert_int_equal(plan->hp.top_k, 2);
    assert_int_equal(plan->hp.n_expert_ffn, 32);
    assert_true(plan->hp.weight_scale == 1);
    k3_plan_close(plan);
    gb_free(&gb);
}

static void types_may_differ_from_tensor_to_tensor(void **state)
{
    (void)state;
    static const enum k3_type types[] = {K3_TYPE_F32,  K3_TYPE_F16,    K3_TYPE_BF16,
                                         K3_TYPE_Q4_1, K3_TYPE_Q5_0,   K3_TYPE_Q5_1,
                                         K3_TYPE_Q8_0, K3_TYPE_IQ4_NL, K3_TYPE_MXFP4};
    struct gb gb;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    for (size_t i = 0, n = 0; i < gb.n_tensors; i++) {
        struct gb_tensor *t = &gb.tensors[i];
        if (t->type != K3_TYPE_F32)
            gb_set_shape(t, types[n++ % (sizeof types / sizeof types[0])], t->n_dims, t->ne);
    }
    gb_set_shape(gb_tensor(&gb, "blk.1.ffn_gate_inp.weight"), K3_TYPE_BF16, 2, (uint64_t[]){32, 4});
    k3_plan_close(open_gb(&gb));
    gb_free(&gb);
}

static void count_lines(void *ctx, const char *message)
{
    assert_non_null(strstr(message, "not used"));
    ++*(int *)ctx;
}

static void unexpected_tensors_are_logged_and_ignored(void **state)
{
    (void)state;
    struct gb gb;
    char name[32];
    int n_lines = 0;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "blk.%d.nextn.weight", i);
        gb_add_tensor(&gb, name, K3_TYPE_F32, 1, (uint64_t[]){1});
    }
    k3_set_log(count_lines, &n_lines);
    k3_plan_close(open_gb(&gb));
    k3_set_log(NULL, NULL);
    assert_int_equal(n_lines, 9); /* eight names, then how many more */
    gb_free(&gb);
}

/* ---- values ---- */

static void values_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct gb gb;
    struct k3_error err;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    gb_set_shape(gb_tensor(&gb, "blk.0.ssm_a"), K3_TYPE_F32, 1, (uint64_t[]){4});
    struct k3_plan *plan = open_gb(&gb);
    gb_free(&gb);
    const struct k3_gguf_tensor *norm = k3_plan_tensor(plan, 0, K3_ATTN_NORM),
                                *a = k3_plan_tensor(plan, 0, K3_KDA_A),
                                *bias = k3_plan_tensor(plan, 1, K3_ROUTER_BIAS);
    const struct {
        const struct k3_gguf_tensor *tensor;
        enum k3_role role;
        float values[4];
        const char *message; /* NULL: fine */
    } cases[] = {
        {norm, K3_ATTN_NORM, {0, 0, 1, 0}, NULL},
        {norm, K3_ATTN_NORM, {0, 0, 0, 0}, "m.gguf: tensor blk.0.attn_norm.weight is all zero"},
        {norm, K3_ATTN_NORM, {1, 1, NAN, 1}, "tensor blk.0.attn_norm.weight has value nan at index 2"},
        {bias, K3_ROUTER_BIAS, {0, 0, 0, 0}, NULL},
        {bias,
         K3_ROUTER_BIAS,
         {0, -INFINITY, 0, 0},
         "tensor blk.1.exp_probs_b.bias has value -inf at index 1"},
        {a, K3_KDA_A, {-1, -2, 0, 0}, NULL}, /* two heads, two of padding */
        {a, K3_KDA_A, {1, 2, 0, 0}, NULL},
        {a, K3_KDA_A, {1, -2, 0, 0}, "tensor blk.0.ssm_a has 1 negative and 1 positive values of 2"},
        {a, K3_KDA_A, {-1, 0, 0, 0}, "tensor blk.0.ssm_a has 1 negative and 0 positive values of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        k3_status status = k3_check_values(plan, cases[i].tensor, cases[i].role, cases[i].values, 4, &err);
        assert_int_equal(status, cases[i].message ? K3_ERR_FORMAT : K3_OK);
        if (cases[i].message && !strstr(err.message, cases[i].message)) fail_msg("%s", err.message);
    }
    k3_plan_close(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixtures_have_the_hyper_parameters_they_were_made_with),
        cmocka_unit_test(every_fixture_gives_a_plan),
        cmocka_unit_test(a_tensor_is_found_by_layer_and_role),
        cmocka_unit_test(shapes_of_other_conversions_are_accepted),
        cmocka_unit_test(a_joint_kv_b_is_accepted),
        cmocka_unit_test(keys_of_other_conversions_are_accepted),
        cmocka_unit_test(types_may_differ_from_tensor_to_tensor),
        cmocka_unit_test(unexpected_tensors_are_logged_and_ignored),
        cmocka_unit_test(values_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
