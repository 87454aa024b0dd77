/* Models divided between the CPU and the emulated GPU: the CPU's bits at every place to divide, and what is planned. */
#include "gguf_builder.h"
#include "reference.h"
#include "runs.h"

#include "model/share.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_A FIXTURES "k3-tiny-a-q8_0-mxfp4.gguf" /* 5 layers: dense KDA, KDA, KDA, MLA, MLA; AttnRes */
#define MODEL_B FIXTURES "k3-tiny-b-q8_0-mxfp4.gguf" /* two dense layers, no latent space, no query rank */
#define MODEL_C FIXTURES "k3-tiny-c-f32.gguf"        /* 4 layers, no AttnRes */
#define TRAINED K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf" /* 6 layers */

/* ---- bits ---- */

/* Runs on the CPU, to compare with. */
struct reference {
    const char *path;
    struct run run;
    struct k3_model_options options;
    float *logits; /* owned */
    size_t n;
};

static struct reference make_reference(const char *path, struct run run)
{
    struct reference r = {path, run, {.threads = 1, .lookahead = K3_LOOKAHEAD_ON}, NULL, 0};
    r.options.context = (uint32_t)(run.n_prompt + run.n_decoded);
    struct k3_model *cpu = open_on(K3_GPU_OFF, NULL, path, r.options);
    r.logits = logits_of(cpu, &run, &r.n);
    k3_model_close(cpu);
    return r;
}

/* With these layers on the GPU; again: a second session of the same model. */
static void check_layers(const struct reference *r, const char *layers, bool again)
{
    char what[256];
    struct k3_memory_plan memory;
    size_t n;
    snprintf(what, sizeof what, "%s, %s on the GPU", strrchr(r->path, '/') + 1, layers);
    struct k3_model *model = open_on(K3_GPU(0), layers, r->path, r->options);
    k3_model_get_memory(model, &memory);
    assert_string_equal(memory.no_gpu, "");
    assert_int_equal(memory.gpu, strcmp(layers, "0") ? 0 : -1);
    for (int i = 0; i < 1 + again; i++) {
        float *got = logits_of(model, &r->run, &n);
        assert_int_equal(n, r->n);
        same_logits(what, got, r->logits, n);
        free(got);
    }
    k3_model_close(model);
}

static void check_share(const struct reference *r, const struct k3_share *share, uint32_t n_layers)
{
    char layers[256];
    k3_share_format(share, n_layers, layers, sizeof layers);
    if (*layers) check_layers(r, layers, false);
}

/* From either end, so that layer 0, the table and the head are on either side; each group alone, and all but each. */
static void check_every_split(const char *path, uint32_t n_layers)
{
    struct reference r = make_reference(path, (struct run){3, 1, 16});
    for (uint32_t n = 0; n <= n_layers; n++) {
        struct k3_error err;
        struct k3_share share;
        char last[16];
        snprintf(last, sizeof last, "%u", n);
        assert_int_equal(k3_share_parse(last, n_layers, &share, &err), K3_OK);
        check_layers(&r, last, false);
        share = k3_share_rest(&share, n_layers);
        check_share(&r, &share, n_layers);
    }
    for (uint32_t group = 0; group < k3_n_groups(n_layers); group++) {
        struct k3_share share = {0};
        share.has[group] = true;
        check_share(&r, &share, n_layers);
        share = k3_share_rest(&share, n_layers);
        check_share(&r, &share, n_layers);
    }
    free(r.logits);
}

static void every_split_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    check_every_split(MODEL_A, 5);
    check_every_split(MODEL_C, 4);
    check_every_split(TRAINED, 6);
}

static void batches_and_tokens_pass_between_the_devices(void **state)
{
    (void)state;
    const char *const layers[] = {"2", "embedding,0-2", "embedding,0-9.ffn", "0-9.attention,head", "1-1,3-3"};
    const char *const paths[] = {MODEL_A, MODEL_B, TRAINED};
    const uint32_t n_layers[] = {5, 6, 6};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct reference r = make_reference(paths[i], (struct run){6, 2, 4});
        for (size_t j = 0; j < sizeof layers / sizeof *layers; j++) {
            char text[64], *nine;
            snprintf(text, sizeof text, "%s", layers[j]);
            if ((nine = strchr(text, '9'))) *nine = (char)('0' + n_layers[i] - 1);
            check_layers(&r, text, j == 0);
        }
        free(r.logits);
    }
}

/* What lookahead names for the first token of a model, whose experts are not in memory yet. */
static void guess_first(const char *layers, uint64_t *guessed, uint64_t *right)
{
    const struct k3_model_options options = {.threads = 1, .context = 16, .lookahead = K3_LOOKAHEAD_ON};
    struct k3_model *model = open_on(layers ? K3_GPU(0) : K3_GPU_OFF, layers, MODEL_A, options);
    free(logits_of(model, &(struct run){1, 0, 16}, &(size_t){0}));
    for (uint32_t layer = 0; layer < 5; layer++) {
        struct k3_expert_stats stats;
        k3_model_get_expert_stats(model, layer, &stats);
        guessed[layer] = stats.guessed;
        right[layer] = stats.guessed_right;
    }
    k3_model_close(model);
}

static void a_router_of_the_other_device_guesses_the_same(void **state)
{
    (void)state;
    const char *const layers[] = {
        "1", "2", "3", "0-1,embedding", "0-2", "0-4.attention,3.ffn", "1.ffn,3.ffn,head"};
    uint64_t guessed[2][5], right[2][5], sum = 0;
    guess_first(NULL, guessed[0], right[0]);
    for (uint32_t layer = 0; layer < 5; layer++) sum += right[0][layer];
    assert_true(sum > 0 && guessed[0][2] > 0);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        guess_first(layers[i], guessed[1], right[1]);
        assert_memory_equal(guessed[1], guessed[0], sizeof guessed[0]);
        assert_memory_equal(right[1], right[0], sizeof right[0]);
    }
}

static void a_divided_session_goes_back_as_on_the_cpu(void **state)
{
    (void)state;
    const struct k3_model_options options = {.threads = 1, .context = 64};
    const char *const layers[] = {NULL, "2", "embedding,0-1,3.ffn,4.attention"};
    float *logits[3];
    size_t n;
    for (int i = 0; i < 3; i++) {
        struct k3_model *model = open_on(i ? K3_GPU(0) : K3_GPU_OFF, layers[i], MODEL_A, options);
        logits[i] = logits_of_going_back(model, &n);
        k3_model_close(model);
    }
    for (int i = 1; i < 3; i++) {
        same_logits(layers[i], logits[i], logits[0], n);
        free(logits[i]);
    }
    free(logits[0]);
}

/* ---- models that are made for it ---- */

static void read_model(struct gb *gb, const char *path)
{
    struct k3_error err;
    struct k3_gguf *gguf;
    if (k3_gguf_open(path, &gguf, &err) != K3_OK) fail_msg("%s", err.message);
    gb_init(gb);
    gb_add_gguf(gb, gguf);
    k3_gguf_close(gguf);
}

static char *layer_name(char out[64], uint32_t layer, const char *name)
{
    snprintf(out, 64, "blk.%u.%s.weight", layer, name);
    return out;
}

/* f32: what attn_kv_b would be; other types: a mixture of the same bytes, which is as good for a comparison. */
static unsigned char *join(const struct gb_tensor *k, const struct gb_tensor *v)
{
    size_t heads = k->ne[2], nope = k->ne[0], rank = k->ne[1];
    size_t k_bytes = k->bytes / heads, v_bytes = v->bytes / heads;
    unsigned char *joint = malloc(k->bytes + v->bytes);
    assert_non_null(joint);
    for (size_t h = 0; h < heads; h++) {
        unsigned char *to = joint + h * (k_bytes + v_bytes);
        const unsigned char *from = k->data + h * k_bytes;
        memcpy(to, from, k_bytes);
        for (size_t n = 0; n < nope && k->type == K3_TYPE_F32; n++)
            for (size_t r = 0; r < rank; r++)
                memcpy(to + (n * rank + r) * sizeof(float), from + (r * nope + n) * sizeof(float),
                       sizeof(float));
        memcpy(to + k_bytes, v->data + h * v_bytes, v_bytes);
    }
    return joint;
}

static void join_kv_b(struct gb *gb, uint32_t layer)
{
    char k_name[64], v_name[64], name[64];
    struct gb_tensor *k = gb_tensor(gb, layer_name(k_name, layer, "attn_k_b"));
    struct gb_tensor *v = gb_tensor(gb, layer_name(v_name, layer, "attn_v_b"));
    assert_true(k && v && k->type == v->type);
    unsigned char *joint = join(k, v);
    const uint64_t ne[] = {k->ne[1], k->ne[2] * (k->ne[0] + v->ne[1])};
    enum k3_type type = (enum k3_type)k->type;
    gb_add_tensor(gb, layer_name(name, layer, "attn_kv_b"), type, 2, ne)->data = joint;
    gb_drop_tensor(gb, k_name);
    gb_drop_tensor(gb, v_name);
}

static void keys_and_values_stored_as_one_are_divided_on_the_gpu_too(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    test_folder_make(folder);
    const struct run run = {9, 2, 16};
    const char *const joint = test_path(folder, "joint.gguf");

    read_model(&gb, MODEL_C);
    join_kv_b(&gb, 1);
    join_kv_b(&gb, 3);
    gb_write(&gb, joint);
    gb_free(&gb);
    struct reference apart = make_reference(MODEL_C, run), r = make_reference(joint, run);
    same_logits("attn_kv_b", r.logits, apart.logits, r.n);
    check_layers(&r, "all", false);
    check_layers(&r, "3.attention", false);
    free(apart.logits);
    free(r.logits);

    read_model(&gb, MODEL_A);
    join_kv_b(&gb, 3);
    gb_write(&gb, test_path(folder, "q8_0.gguf"));
    gb_free(&gb);
    r = make_reference(test_path(folder, "q8_0.gguf"), run);
    check_layers(&r, "all", false);
    check_layers(&r, "embedding,0-3", false);
    free(r.logits);
    test_folder_remove(folder);
}

static void a_group_without_kernels_is_left_to_the_cpu(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    struct k3_error err;
    struct k3_memory_plan m;
    read_model(&gb, MODEL_A);
    struct gb_tensor *t = gb_tensor(&gb, "blk.2.ffn_up_shexp.weight");
    const uint64_t ne[] = {t->ne[0], t->ne[1]};
    gb_drop_tensor(&gb, "blk.2.ffn_up_shexp.weight");
    gb_add_tensor(&gb, "blk.2.ffn_up_shexp.weight", K3_TYPE_Q4_0, 2, ne); /* zeros */
    test_folder_make(folder);
    const char *path = test_path(folder, "q4_0.gguf");
    gb_write(&gb, path);
    gb_free(&gb);

    struct reference r = make_reference(path, (struct run){5, 1, 16});
    struct k3_model *model = open_on(K3_GPU(0), NULL, path, r.options);
    k3_model_get_memory(model, &m);
    assert_string_equal(m.on_gpu, "embedding,0-1,2.attention,3-4,head");
    assert_string_equal(m.on_host, "2.ffn");
    assert_string_equal(m.no_gpu,
                        "tensor blk.2.ffn_up_shexp.weight is q4_0, for which the GPU has no kernels, "
                        "only for q8_0, f32, f16 and bf16");
    size_t n;
    float *got = logits_of(model, &r.run, &n);
    same_logits("the rest on the GPU", got, r.logits, n);
    k3_model_close(model);
    free(got);
    free(r.logits);

    struct k3_model_options options = {.gpu = K3_GPU(0), .gpu_layers = "2-4"};
    assert_int_equal(k3_memory_plan(path, &options, &m, &err), K3_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "blk.2.ffn_up_shexp.weight is q4_0"));
    options.gpu_layers = "3-4";
    assert_int_equal(k3_memory_plan(path, &options, &m, &err), K3_OK);
    test_folder_remove(folder);
}

/* ---- plans ---- */

static struct k3_memory_plan plan_of(struct k3_model_options options)
{
    struct k3_error err;
    struct k3_memory_plan m;
    if (k3_memory_plan(TRAINED, &options, &m, &err) != K3_OK) fail_msg("%s", err.message);
    return m;
}

static uint64_t vram_sum(const struct k3_memory_plan *m)
{
    return m->vram_dense + m->vram_scratch + m->vram_sessions;
}

/* Never more than there is room for, the head first, and the table of tokens only with everything. */
static void memory_is_filled_from_the_last_layer_on(void **state)
{
    (void)state;
    struct k3_model_options options = {.gpu = K3_GPU(0)};
    struct k3_memory_plan all = plan_of(options), m = {0};
    struct k3_error err;
    assert_string_equal(all.on_gpu, "all");
    assert_string_equal(all.on_host, "");
    assert_string_equal(all.no_gpu, "");
    assert_int_equal(all.dense, 0);

    size_t n_without = 0, n_split = 0;
    const uint64_t least = (uint64_t)16 << 20, step = (uint64_t)1 << 17;
    for (options.vram = least; strcmp(m.on_gpu, "all"); options.vram += step) {
        k3_status status = k3_memory_plan(TRAINED, &options, &m, &err);
        n_without += status == K3_ERR_MEMORY;
        if (status == K3_ERR_MEMORY && n_split == 0) continue;
        if (status != K3_OK) fail_msg("%s", err.message);
        assert_true(vram_sum(&m) <= m.vram_limit && m.vram_limit == options.vram);
        if (!strcmp(m.on_gpu, "all") || m.vram_dense < (uint64_t)1 << 19) continue;
        n_split++;
        assert_string_equal(m.on_gpu + strlen(m.on_gpu) - 4, "head");
        assert_non_null(strstr(m.on_host, "embedding"));
        assert_non_null(strstr(m.no_gpu, "for the whole dense model"));
    }
    assert_true(n_without > 0 && n_split > 10 && options.vram <= vram_sum(&all));

    options = (struct k3_model_options){.gpu = K3_GPU(0), .context = 1000000, .vram_percent = 90};
    m = plan_of(options); /* a cache that has no room stays with the host, and what comes before goes on */
    assert_string_equal(m.on_gpu, "0-2,3.ffn,4-4,5.ffn,head");
    assert_true(m.sessions > 0 && m.vram_sessions > 0);
}

static void layers_that_are_asked_for_are_planned(void **state)
{
    (void)state;
    struct k3_memory_plan m =
        plan_of((struct k3_model_options){.gpu_layers = "embedding,2-3,4.ffn"}); /* asks for a GPU, too */
    assert_int_equal(m.gpu, 0);
    assert_string_equal(m.on_gpu, "embedding,2-3,4.ffn");
    assert_string_equal(m.on_host, "0-1,4.attention,5-5,head");
    assert_true(m.dense > 0 && m.vram_dense > 0);
    m = plan_of((struct k3_model_options){.gpu = K3_GPU(0), .gpu_layers = "0"});
    assert_int_equal(m.gpu, -1);
    assert_string_equal(m.on_host, "all");
    assert_int_equal(vram_sum(&m), 0);
}

static void what_cannot_be_is_refused_in_a_sentence(void **state)
{
    static const struct {
        struct k3_model_options options;
        k3_status status;
        const char *says;
    } cases[] = {
        {{.gpu_layers = "5-2"}, K3_ERR_ARGUMENT, "layers for the GPU: 5-2 ends before it begins"},
        {{.gpu = K3_GPU_OFF, .gpu_layers = "x"}, K3_ERR_ARGUMENT, "'x' is none of all"},
        {{.gpu_layers = "7"}, K3_ERR_ARGUMENT, "the model has 6, not 7; 'all' is everything"},
        {{.vram = 1024},
         K3_ERR_MEMORY,
         "0.00 GiB of its memory may be used, but 0.02 GiB are needed for the least part"},
        {{.vram = (uint64_t)20 << 20, .gpu_layers = "all"},
         K3_ERR_MEMORY,
         "are needed for the layers asked for"},
        {{.vram = (uint64_t)1 << 30},
         K3_ERR_ARGUMENT,
         "1.00 GiB of memory were allowed on GPU 0 (emulated), but it has only 0.25 GiB free"},
        {{.vram_percent = 101},
         K3_ERR_ARGUMENT,
         "101 % of the GPU's memory were allowed; 0 to 100 are possible"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct k3_error err;
        struct k3_memory_plan m;
        assert_int_equal(k3_memory_plan(TRAINED, &cases[i].options, &m, &err), cases[i].status);
        if (!strstr(err.message, cases[i].says)) fail_msg("%s lacks: %s", err.message, cases[i].says);
    }
}

/* ---- accounts and progress ---- */

/* As many sessions as fit. */
static size_t fill_with_sessions(struct k3_model *model, struct k3_error *err)
{
    struct k3_session *sessions[64];
    struct k3_session_options options = {.context = 64};
    size_t n = 0;
    while (n < 64 && k3_session_create(model, &options, &sessions[n], err) == K3_OK) n++;
    for (size_t i = 0; i < n; i++) k3_session_free(sessions[i]);
    return n;
}

static void sessions_take_their_part_of_both_memories(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model_info info, all;
    struct k3_model_options options = {.threads = 1, .context = 64, .gpu = K3_GPU(0), .gpu_layers = "3"};
    struct k3_memory_plan m = plan_of(options);
    options.vram = vram_sum(&m); /* room for what is planned and no more, and a little more on the host */
    options.slots = m.n_slots;
    options.ram = m.dense + m.scratch + 3 * m.sessions + m.slots + m.reserve;
    struct k3_model *model = open_on(K3_GPU(0), "3", TRAINED, options);
    k3_model_get_info(model, &info);
    struct k3_model *cpu = open_on(K3_GPU_OFF, NULL, TRAINED, (struct k3_model_options){.threads = 1});
    k3_model_get_info(cpu, &all);
    k3_model_close(cpu);
    assert_int_equal(info.session_bytes, all.session_bytes);
    assert_int_equal(m.sessions + m.vram_sessions, 3 * info.session_bytes + 64 * info.token_bytes);
    for (int i = 0; i < 20; i++) { /* each time all is given back, to both */
        size_t n = fill_with_sessions(model, &err);
        assert_true(n >= 1 && n <= 3);
        assert_non_null(strstr(err.message, "a session takes 0.01 GiB, but the GPU's memory limit of"));
    }
    k3_model_close(model);
}

struct progress {
    uint64_t done, total;
};

static bool watch(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    (void)what;
    assert_true(done > p->done && done <= total && (p->total == 0 || p->total == total));
    *p = (struct progress){done, total};
    return true;
}

static void both_shares_are_one_progress(void **state)
{
    (void)state;
    struct progress p = {0};
    struct k3_model_info info;
    struct k3_model_options options = {.threads = 1, .progress = watch, .progress_ctx = &p};
    struct k3_model *model = open_on(K3_GPU(0), "2", MODEL_A, options);
    k3_model_get_info(model, &info);
    assert_int_equal(p.done, info.dense_bytes);
    assert_int_equal(p.total, info.dense_bytes);
    k3_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_has_the_bits_of_the_cpu),
        cmocka_unit_test(batches_and_tokens_pass_between_the_devices),
        cmocka_unit_test(a_router_of_the_other_device_guesses_the_same),
        cmocka_unit_test(a_divided_session_goes_back_as_on_the_cpu),
        cmocka_unit_test(keys_and_values_stored_as_one_are_divided_on_the_gpu_too),
        cmocka_unit_test(a_group_without_kernels_is_left_to_the_cpu),
        cmocka_unit_test(memory_is_filled_from_the_last_layer_on),
        cmocka_unit_test(layers_that_are_asked_for_are_planned),
        cmocka_unit_test(what_cannot_be_is_refused_in_a_sentence),
        cmocka_unit_test(sessions_take_their_part_of_both_memories),
        cmocka_unit_test(both_shares_are_one_progress),
    };
    return cmocka_run_group_tests_name("models on CPU and GPU", tests, NULL, NULL);
}
