/* Files that are valid GGUF but no K3 this program runs: each is refused with its own sentence. */
#include "k3_builder.h"
#include "model/model.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define K "kimi-k3."

/* Opens the plan of what `gb` describes; the message of a refusal is in *err. */
static k3_status open_plan(struct gb *gb, struct k3_error *err)
{
    char folder[64];
    struct k3_plan *plan = NULL;
    test_folder_make(folder);
    gb_write(gb, test_path(folder, "m.gguf"));
    err->message[0] = 0;
    k3_status status = k3_plan_open(test_path(folder, "m.gguf"), &plan, err);
    k3_plan_close(plan);
    test_folder_remove(folder);
    return status;
}

static void expect(struct gb *gb, k3_status status, const char *message)
{
    struct k3_error err;
    k3_status is = open_plan(gb, &err);
    if (is != status || !strstr(err.message, message))
        fail_msg("status %d, '%s'; expected %d, '%s'", is, err.message, status, message);
}

/* ---- one thing wrong ---- */

static void set_u32(struct gb *gb, const char *key, uint32_t value)
{
    gb_drop_key(gb, key);
    gb_add_u32(gb, key, value);
}
static void set_f32(struct gb *gb, const char *key, float value)
{
    gb_drop_key(gb, key);
    gb_add_f32(gb, key, value);
}
static void set_ints(struct gb *gb, const char *key, const int32_t *values, uint64_t n)
{
    gb_drop_key(gb, key);
    gb_add_array(gb, key, K3_GGUF_I32, values, n, sizeof *values);
}
static void set_string(struct gb *gb, const char *key, const char *value)
{
    gb_drop_key(gb, key);
    gb_add_string(gb, key, value);
}

#define KEY_CASE(name, how, key, ...)                                                                        \
    static void name(struct gb *gb)                                                                          \
    {                                                                                                        \
        how(gb, key, __VA_ARGS__);                                                                           \
    }

KEY_CASE(another_architecture, set_string, "general.architecture", "llama")
KEY_CASE(no_layers, set_u32, K "block_count", 0)
KEY_CASE(too_many_layers, set_u32, K "block_count", 1025)
KEY_CASE(layers_as_text, set_string, K "block_count", "4")
KEY_CASE(huge_width, set_u32, K "embedding_length", UINT32_MAX)
KEY_CASE(huge_heads, set_u32, K "attention.head_count", 1 << 20)
KEY_CASE(wide_kda_heads, set_u32, K "kda.head_dim", 257)
KEY_CASE(no_heads, set_u32, K "attention.head_count", 0)
KEY_CASE(many_chosen, set_u32, K "expert_used_count", 65)
KEY_CASE(more_chosen_than_there_are, set_u32, K "expert_used_count", 5)
KEY_CASE(only_dense_layers, set_u32, K "leading_dense_block_count", 4)
KEY_CASE(no_shared_expert, set_u32, K "expert_shared_count", 0)
KEY_CASE(many_shared_experts, set_u32, K "expert_shared_count", UINT32_MAX)
KEY_CASE(softmax_router, set_u32, K "expert_gating_func", 1)
KEY_CASE(keys_all_shared, set_u32, K "attention.key_length_mla", 32)
KEY_CASE(other_key_length, set_u32, K "attention.key_length", 65)
KEY_CASE(other_vocabulary, set_u32, K "vocab_size", 17)
KEY_CASE(bos_outside, set_u32, "tokenizer.ggml.bos_token_id", 16)
KEY_CASE(eos_outside, set_u32, "tokenizer.ggml.eos_token_id", 17)
KEY_CASE(eps_of_nan, set_f32, K "attention.layer_norm_rms_epsilon", NAN)
KEY_CASE(eps_of_0, set_f32, K "attention.layer_norm_rms_epsilon", 0)
KEY_CASE(beta_of_0, set_f32, K "activation.situ_beta", 0)
KEY_CASE(negative_linear_beta, set_f32, K "activation.situ_linear_beta", -1)
KEY_CASE(infinite_scale, set_f32, K "expert_weights_scale", INFINITY)
KEY_CASE(rising_gate, set_f32, K "kda.gate_lower_bound", 5)
KEY_CASE(eps_as_integer, set_u32, K "attention.layer_norm_rms_epsilon", 1)
KEY_CASE(norm_as_integer, set_u32, K "expert_weights_norm", 1)
KEY_CASE(three_kinds, set_ints, K "attention.head_count_kv", (const int32_t[]){0, 1, 0}, 3)
KEY_CASE(kind_2, set_ints, K "attention.head_count_kv", (const int32_t[]){0, 1, 2, 1}, 4)
KEY_CASE(kind_minus_1, set_ints, K "attention.head_count_kv", (const int32_t[]){0, -1, 0, 1}, 4)
KEY_CASE(all_kda, set_ints, K "attention.head_count_kv", (const int32_t[]){0, 0, 0, 0}, 4)
KEY_CASE(all_mla, set_ints, K "attention.head_count_kv", (const int32_t[]){1, 1, 1, 1}, 4)
KEY_CASE(one_kind_for_all, set_u32, K "attention.head_count_kv", 1)
KEY_CASE(uneven_choice, set_ints, K "expert_used_count", (const int32_t[]){0, 2, 2, 3}, 4)
KEY_CASE(short_list_of_choices, set_ints, K "expert_used_count", (const int32_t[]){2, 2}, 2)
KEY_CASE(negative_choices, set_ints, K "expert_used_count", (const int32_t[]){0, -2, -2, -2}, 4)
KEY_CASE(numbers_for_tokens, set_ints, "tokenizer.ggml.tokens", (const int32_t[]){1, 2}, 2)
KEY_CASE(short_token_types, set_ints, "tokenizer.ggml.token_type", (const int32_t[]){1, 1, 1}, 3)

static void groups_of_experts(struct gb *gb)
{
    gb_add_u32(gb, K "expert_group_count", 8);
}
static void kinds_as_floats(struct gb *gb)
{
    gb_drop_key(gb, K "attention.head_count_kv");
    gb_add_array(gb, K "attention.head_count_kv", K3_GGUF_F32, (const float[]){0, 1, 0, 1}, 4, 4);
}

/* ---- tensors ---- */

static void set_type(struct gb *gb, const char *name, enum k3_type type)
{
    struct gb_tensor *t = gb_tensor(gb, name);
    gb_set_shape(t, type, t->n_dims, t->ne);
}
static void half_vector(struct gb *gb)
{
    set_type(gb, "blk.1.attn_norm.weight", K3_TYPE_F16);
}
static void half_convolution(struct gb *gb)
{
    set_type(gb, "blk.2.ssm_conv1d_k.weight", K3_TYPE_F16);
}
static void matrix_of_integers(struct gb *gb)
{
    set_type(gb, "blk.0.ffn_up.weight", K3_TYPE_I32);
}
static void experts_of_q8_1(struct gb *gb)
{
    set_type(gb, "blk.3.ffn_down_exps.weight", K3_TYPE_Q8_1);
}
static void fewer_heads_in_ssm_a(struct gb *gb)
{
    gb_set_shape(gb_tensor(gb, "blk.2.ssm_a"), K3_TYPE_F32, 1, (uint64_t[]){1});
}
static void turned_convolution(struct gb *gb)
{
    gb_set_shape(gb_tensor(gb, "blk.0.ssm_conv1d_v.weight"), K3_TYPE_F32, 2, (uint64_t[]){64, 4});
}
static void another_token_table(struct gb *gb)
{
    gb_set_shape(gb_tensor(gb, "output.weight"), K3_TYPE_F32, 2, (uint64_t[]){32, 17});
}
static void fewer_experts_in_one_layer(struct gb *gb)
{
    gb_set_shape(gb_tensor(gb, "blk.3.ffn_up_exps.weight"), K3_TYPE_MXFP4, 3, (uint64_t[]){32, 32, 3});
}
static void no_query_rank(struct gb *gb)
{
    gb_drop_key(gb, K "attention.q_lora_rank");
}
static void no_latent_width(struct gb *gb)
{
    gb_drop_key(gb, K "expert_latent_length");
}
static void no_block_size(struct gb *gb)
{
    gb_drop_key(gb, K "attn_res.block_size");
}
static void block_size_0(struct gb *gb)
{
    set_u32(gb, K "attn_res.block_size", 0);
}

/* ---- files of other converters ---- */

static void foreign_block_size(struct gb *gb)
{
    gb_rename_key(gb, K "attn_res.block_size", K "attn_res_block_size");
}
static void foreign_beta(struct gb *gb)
{
    gb_rename_key(gb, K "activation.situ_beta", K "situ_beta");
}
static void foreign_latent(struct gb *gb)
{
    gb_rename_key(gb, K "expert_latent_length", K "moe_latent_size");
}
static void synthetic_head_dim(struct gb *gb)
{
    gb_rename_key(gb, K "kda.head_dim", K "attention.kda_head_dim");
}
static void two_res_factors(struct gb *gb)
{
    gb_rename_tensor(gb, "blk.1.ffn_res_score.weight", "blk.1.ffn_res_norm.weight");
}
static void two_output_res_factors(struct gb *gb)
{
    gb_rename_tensor(gb, "output_res_score.weight", "output_res_proj.weight");
}
static void foreign_latent_tensor(struct gb *gb)
{
    gb_rename_tensor(gb, "blk.2.ffn_routed_up.weight", "blk.2.ffn_latent_up.weight");
}
static void foreign_kda_gate(struct gb *gb)
{
    gb_rename_tensor(gb, "blk.2.ssm_g.weight", "blk.2.attn_gate.weight");
}

static void too_many_banks(struct gb *gb)
{
    const int32_t kinds[66] = {1};
    set_u32(gb, K "block_count", 66);
    set_u32(gb, K "attn_res.block_size", 1);
    set_ints(gb, K "attention.head_count_kv", kinds, 66);
}

static const struct refused {
    const char *name;
    void (*spoil)(struct gb *gb);
    k3_status status;
    const char *message; /* a part of it */
} cases[] = {
#define FMT K3_ERR_FORMAT
#define UNS K3_ERR_UNSUPPORTED
    {"another_architecture", another_architecture, UNS,
     "m.gguf: is a model of architecture llama; only kimi-k3"},
    {"no_layers", no_layers, FMT, "key kimi-k3.block_count is 0; 1 to 1024 are allowed"},
    {"too_many_layers", too_many_layers, FMT, "key kimi-k3.block_count is 1025; 1 to 1024"},
    {"layers_as_text", layers_as_text, FMT, "key kimi-k3.block_count is of kind string; an integer"},
    {"huge_width", huge_width, FMT, "key kimi-k3.embedding_length is 4294967295; 1 to 1048576"},
    {"huge_heads", huge_heads, FMT, "key kimi-k3.attention.head_count: 1048576 heads of kda.head_dim 32"},
    {"no_heads", no_heads, FMT, "key kimi-k3.attention.head_count is 0; 1 to"},
    {"many_chosen", many_chosen, FMT, "key kimi-k3.expert_used_count is 65; 1 to 64"},
    {"more_chosen_than_there_are", more_chosen_than_there_are, FMT,
     "key kimi-k3.expert_used_count is 5, more than the 4 experts"},
    {"only_dense_layers", only_dense_layers, FMT,
     "leading_dense_block_count is 4, which leaves none of 4 layers"},
    {"no_shared_expert", no_shared_expert, FMT,
     "expert_shared_count is 0, which makes a shared expert of width 0"},
    {"many_shared_experts", many_shared_experts, FMT, "which makes a shared expert of width 137438953440"},
    {"softmax_router", softmax_router, UNS, "key kimi-k3.expert_gating_func is 1; only 2 (sigmoid)"},
    {"keys_all_shared", keys_all_shared, FMT,
     "key_length_mla is 32, not more than rope.dimension_count (32)"},
    {"other_key_length", other_key_length, FMT,
     "attention.key_length is 65, not kv_lora_rank + rope.dimension_count (64)"},
    {"other_vocabulary", other_vocabulary, FMT, "key kimi-k3.vocab_size is 17 but there are 16 tokens"},
    {"bos_outside", bos_outside, FMT, "key tokenizer.ggml.bos_token_id is 16 but there are 16 tokens"},
    {"eos_outside", eos_outside, FMT, "key tokenizer.ggml.eos_token_id is 17 but there are 16 tokens"},
    {"eps_of_nan", eps_of_nan, FMT, "layer_norm_rms_epsilon is nan; 1e-12 to 0.1"},
    {"eps_of_0", eps_of_0, FMT, "layer_norm_rms_epsilon is 0; 1e-12 to 0.1"},
    {"beta_of_0", beta_of_0, FMT, "key kimi-k3.activation.situ_beta is 0; 0.001 to"},
    {"negative_linear_beta", negative_linear_beta, FMT,
     "key kimi-k3.activation.situ_linear_beta is -1; 0 to"},
    {"infinite_scale", infinite_scale, FMT, "key kimi-k3.expert_weights_scale is inf; 0 to"},
    {"rising_gate", rising_gate, FMT, "key kimi-k3.kda.gate_lower_bound is 5; -80 to -0.001"},
    {"eps_as_integer", eps_as_integer, FMT, "layer_norm_rms_epsilon is of kind u32; f32"},
    {"norm_as_integer", norm_as_integer, FMT, "key kimi-k3.expert_weights_norm is of kind u32; bool"},
    {"three_kinds", three_kinds, FMT, "attention.head_count_kv has 3 values for 4 layers"},
    {"kind_2", kind_2, FMT, "attention.head_count_kv is 2 for layer 2; 0 (KDA) and 1 (MLA)"},
    {"kind_minus_1", kind_minus_1, FMT, "attention.head_count_kv is -1 for layer 1"},
    {"all_kda", all_kda, FMT, "attention.head_count_kv makes all layers KDA; a K3 has both kinds"},
    {"all_mla", all_mla, FMT, "attention.head_count_kv makes all layers MLA; a K3 has both kinds"},
    {"one_kind_for_all", one_kind_for_all, FMT, "attention.head_count_kv is u32; an array of integers"},
    {"kinds_as_floats", kinds_as_floats, FMT, "attention.head_count_kv is array; an array of integers"},
    {"uneven_choice", uneven_choice, UNS, "key kimi-k3.expert_used_count differs between layers 1 and 3"},
    {"wide_kda_heads", wide_kda_heads, FMT, "key kimi-k3.kda.head_dim is 257; 1 to 256 are allowed"},
    {"too_many_banks", too_many_banks, UNS,
     "key kimi-k3.attn_res.block_size is 1, which banks the stream more than 64 times in 66 layers"},
    {"short_list_of_choices", short_list_of_choices, FMT,
     "key kimi-k3.expert_used_count has 2 values for 4 layers"},
    {"negative_choices", negative_choices, FMT, "key kimi-k3.expert_used_count is -2 for layer 1"},
    {"numbers_for_tokens", numbers_for_tokens, FMT, "key tokenizer.ggml.tokens is no array of strings"},
    {"short_token_types", short_token_types, FMT, "key tokenizer.ggml.token_type has 3 values for 16 tokens"},
    {"groups_of_experts", groups_of_experts, UNS, "key kimi-k3.expert_group_count is 8"},
    {"half_vector", half_vector, UNS, "tensor blk.1.attn_norm.weight is of type f16; vectors must be f32"},
    {"half_convolution", half_convolution, UNS,
     "tensor blk.2.ssm_conv1d_k.weight is of type f16; vectors must be f32"},
    {"matrix_of_integers", matrix_of_integers, UNS,
     "tensor blk.0.ffn_up.weight is of type i32, which cannot be decoded"},
    {"experts_of_q8_1", experts_of_q8_1, UNS,
     "tensor blk.3.ffn_down_exps.weight is of type q8_1, which cannot"},
    {"fewer_heads_in_ssm_a", fewer_heads_in_ssm_a, FMT,
     "tensor blk.2.ssm_a has shape [1] but at least [2] is expected: head_count"},
    {"turned_convolution", turned_convolution, FMT,
     "tensor blk.0.ssm_conv1d_v.weight has shape [64, 4] but [4, 64] is expected: ssm.conv_kernel, "
     "head_count x"},
    {"another_token_table", another_token_table, FMT,
     "tensor output.weight has shape [32, 17] but [32, 16] is expected: embedding_length, number of tokens"},
    {"fewer_experts_in_one_layer", fewer_experts_in_one_layer, FMT,
     "tensor blk.3.ffn_up_exps.weight has shape [32, 32, 3] but [32, 32, 4] is expected"},
    {"no_query_rank", no_query_rank, FMT, "key kimi-k3.attention.q_lora_rank is missing or 0"},
    {"no_latent_width", no_latent_width, FMT, "key kimi-k3.expert_latent_length is missing or 0"},
    {"no_block_size", no_block_size, FMT,
     "tensor output_res_score.weight is there but key kimi-k3.attn_res.block_size is missing or 0"},
    {"block_size_0", block_size_0, FMT, "key kimi-k3.attn_res.block_size is missing or 0"},
    {"foreign_block_size", foreign_block_size, UNS,
     "key kimi-k3.attn_res_block_size is that of a file with a fork's names"},
    {"foreign_beta", foreign_beta, UNS, "key kimi-k3.situ_beta is that of a file with a fork's names"},
    {"foreign_latent", foreign_latent, UNS,
     "key kimi-k3.moe_latent_size is that of a file with a fork's names"},
    {"synthetic_head_dim", synthetic_head_dim, UNS,
     "key kimi-k3.attention.kda_head_dim is that of a file of a synthetic export"},
    {"two_res_factors", two_res_factors, UNS,
     "tensor blk.1.ffn_res_norm.weight is that of a file that keeps the two factors"},
    {"two_output_res_factors", two_output_res_factors, UNS,
     "tensor output_res_proj.weight is that of a file that keeps"},
    {"foreign_latent_tensor", foreign_latent_tensor, UNS,
     "tensor blk.2.ffn_latent_up.weight is that of a file with a fork's names of the latent projections"},
    {"foreign_kda_gate", foreign_kda_gate, UNS,
     "tensor blk.2.attn_gate.weight is that of a file with a fork's name of the gate of KDA layers"},
};

static void is_refused(void **state)
{
    const struct refused *refused = *state;
    struct gb gb;
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    refused->spoil(&gb);
    expect(&gb, refused->status, refused->message);
    gb_free(&gb);
}

/* ---- every key, every tensor, every shape ---- */

static void every_missing_key_is_named(void **state)
{
    (void)state;
    static const char *const required[] = {
        "general.architecture",
        K "block_count",
        K "embedding_length",
        K "feed_forward_length",
        K "attention.head_count",
        K "attention.head_count_kv",
        K "attention.layer_norm_rms_epsilon",
        K "attention.key_length_mla",
        K "attention.value_length_mla",
        K "attention.q_lora_rank",
        K "attention.kv_lora_rank",
        K "rope.dimension_count",
        K "ssm.conv_kernel",
        K "kda.head_dim",
        K "expert_count",
        K "expert_used_count",
        K "expert_shared_count",
        K "expert_feed_forward_length",
        K "expert_latent_length",
        K "expert_gating_func",
        K "expert_weights_norm",
        K "leading_dense_block_count",
        K "attn_res.block_size",
        K "activation.situ_beta",
        K "activation.situ_linear_beta",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        struct gb gb;
        char message[128];
        snprintf(message, sizeof message, "key %s is missing", required[i]);
        gb_init(&gb);
        gb_add_k3(&gb, &k3_tiny);
        gb_drop_key(&gb, required[i]);
        expect(&gb, K3_ERR_FORMAT, message);
        gb_free(&gb);
    }
}

static void every_missing_tensor_is_named(void **state)
{
    (void)state;
    size_t n = 1;
    for (size_t i = 0; i < n; i++) {
        struct gb gb;
        char name[64], message[128];
        gb_init(&gb);
        gb_add_k3(&gb, &k3_tiny);
        n = gb.n_tensors;
        strcpy(name, gb.tensors[i].name);
        snprintf(message, sizeof message, "tensor %s is missing", name);
        gb_drop_tensor(&gb, name);
        expect(&gb, K3_ERR_FORMAT, message);
        gb_free(&gb);
    }
}

static void every_tensor_of_another_shape_is_named(void **state)
{
    (void)state;
    size_t n = 1;
    for (size_t i = 0; i < n; i++) {
        struct gb gb;
        char message[128];
        gb_init(&gb);
        gb_add_k3(&gb, &k3_tiny);
        n = gb.n_tensors;
        struct gb_tensor *t = &gb.tensors[i];
        uint64_t ne[4] = {t->ne[0], t->ne[1], t->ne[2]};
        ne[t->n_dims - 1] = strstr(t->name, "ssm_a") ? 1 : ne[t->n_dims - 1] + 1;
        gb_set_shape(t, t->type, t->n_dims, ne);
        snprintf(message, sizeof message, "tensor %s has shape [", t->name);
        expect(&gb, K3_ERR_FORMAT, message);
        gb_free(&gb);
    }
}

/* ---- what only small models may be without ---- */

static void drop_everywhere(struct gb *gb, const char *name, uint32_t layers)
{
    char full[64];
    for (uint32_t i = 0; i < layers; i++) {
        snprintf(full, sizeof full, "blk.%" PRIu32 ".%s", i, name);
        if (gb_tensor(gb, full)) gb_drop_tensor(gb, full);
    }
}
static void drop_gates(struct gb *gb)
{
    drop_everywhere(gb, "attn_gate.weight", 93);
}
static void drop_latent_norms(struct gb *gb)
{
    drop_everywhere(gb, "ffn_routed_norm.weight", 93);
}
static void drop_gate_bound(struct gb *gb)
{
    gb_drop_key(gb, K "kda.gate_lower_bound");
}
static void weights_as_they_are(struct gb *gb)
{
    gb_drop_key(gb, K "expert_weights_norm");
    gb_add_bool(gb, K "expert_weights_norm", false);
}
static void no_linear_beta(struct gb *gb)
{
    set_f32(gb, K "activation.situ_linear_beta", 0);
}
static void drop_residual_attention(struct gb *gb)
{
    set_u32(gb, K "attn_res.block_size", 0);
    gb_drop_tensor(gb, "output_res_score.weight");
    drop_everywhere(gb, "attn_res_score.weight", 93);
    drop_everywhere(gb, "ffn_res_score.weight", 93);
}

static void a_small_model_may_lack_what_a_full_one_may_not(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(struct gb *gb);
        const char *message;
    } parts[] = {
        {drop_gates, "tensor attn_gate of MLA layers is missing or off"},
        {drop_latent_norms, "tensor ffn_routed_norm of MoE layers is missing or off"},
        {drop_gate_bound, "key kimi-k3.kda.gate_lower_bound is missing or off"},
        {weights_as_they_are, "key kimi-k3.expert_weights_norm is missing or off"},
        {no_linear_beta, "key kimi-k3.activation.situ_linear_beta is missing or off"},
        {drop_residual_attention, "key kimi-k3.attn_res.block_size is missing or off"},
    };
    struct k3_size full = k3_tiny;
    full.layers = 93;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        struct gb gb;
        gb_init(&gb);
        gb_add_k3(&gb, &k3_tiny);
        parts[i].spoil(&gb);
        expect(&gb, K3_OK, "");
        gb_free(&gb);

        gb_add_k3(&gb, &full);
        parts[i].spoil(&gb);
        expect(&gb, K3_ERR_FORMAT, parts[i].message);
        gb_free(&gb);
    }
}

#define N_CASES (sizeof cases / sizeof cases[0])

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(every_missing_key_is_named),
        cmocka_unit_test(every_missing_tensor_is_named),
        cmocka_unit_test(every_tensor_of_another_shape_is_named),
        cmocka_unit_test(a_small_model_may_lack_what_a_full_one_may_not),
    };
    struct CMUnitTest tests[N_CASES + 4] = {0};
    memcpy(tests + N_CASES, others, sizeof others);
    for (size_t i = 0; i < N_CASES; i++) {
        tests[i].name = cases[i].name;
        tests[i].test_func = is_refused;
        tests[i].initial_state = (void *)(uintptr_t)&cases[i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
