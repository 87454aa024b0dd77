/* Models with random weights: that they are what they say, stay in range and route as docs/synthetic.md promises. */
#include "gguf_builder.h"
#include "random.h"

#include "engine/engine_internal.h"
#include "model/census.h"
#include "ops/cpu_device.h"
#include "routing.h"
#include "synth.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[64];
static struct k3_error err;

static void check(k3_status status)
{
    if (status != K3_OK) fail_msg("%s", err.message);
}

static int make_folder(void **state)
{
    (void)state;
    test_folder_make(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    test_folder_remove(folder);
    return 0;
}

static const char *make_model(const char *name, const struct k3_synth_options *options)
{
    const char *path = test_path(folder, name);
    check(k3_synth_write(path, options, &err));
    return path;
}

/* ---- the file ---- */

static unsigned char *read_all(const char *path, size_t *n)
{
    struct k3_file file;
    check(k3_file_open(path, &file, &err));
    unsigned char *bytes = malloc(file.size);
    check(k3_file_read(&file, 0, bytes, file.size, &err));
    *n = file.size;
    k3_file_close(&file);
    return bytes;
}

static void the_same_seed_gives_the_same_bytes(void **state)
{
    (void)state;
    struct k3_synth_options o = {.tiny = true, .seed = 7, .skew = 1, .threads = 1};
    size_t n, n_two, n_other;
    unsigned char *one = read_all(make_model("one", &o), &n);
    o.threads = 2;
    unsigned char *two = read_all(make_model("two", &o), &n_two);
    o.seed = 8;
    unsigned char *other = read_all(make_model("other", &o), &n_other);
    assert_int_equal(n, n_two);
    assert_memory_equal(one, two, n);
    assert_int_equal(n, n_other);
    size_t differ = 0;
    for (size_t i = 0; i < n; i++) differ += one[i] != other[i];
    assert_true(differ > n / 2);
    free(one);
    free(two);
    free(other);
}

static void a_model_has_no_problems_and_its_sizes(void **state)
{
    (void)state;
    const struct k3_synth_options o = {.tiny = true, .layers = 13, .experts = 9, .vocab = 600, .skew = 1};
    const char *path = make_model("m.gguf", &o);
    struct k3_plan *plan = NULL;
    struct k3_census census;
    check(k3_plan_open(path, &plan, &err));
    check(k3_census_take(plan->gguf, &census, &err));
    assert_int_equal(census.n_problems, 0);
    assert_int_equal(census.n_slots, 12 * 9);
    assert_int_equal(plan->hp.n_vocab, 600);
    for (uint32_t i = 0; i < 13; i++) assert_int_equal(plan->hp.is_mla[i], i % 4 == 3 || i == 12);
    k3_census_free(&census);
    k3_plan_close(plan);
}

/* Half of the bits of two random streams agree. */
static void no_two_experts_are_alike(void **state)
{
    (void)state;
    const struct k3_synth_options o = {.tiny = true, .experts = 6, .skew = 1};
    struct k3_gguf *gguf = NULL;
    check(k3_gguf_open(make_model("m.gguf", &o), &gguf, &err));
    const char *const names[] = {"blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight",
                                 "blk.2.ffn_gate_exps.weight", "blk.2.ffn_up_exps.weight"};
    size_t n = gguf->n_tensors ? k3_gguf_find_tensor(gguf, names[0])->bytes / 6 : 0, count = 6 * 4;
    unsigned char *experts = malloc(count * n);
    for (size_t i = 0; i < 4; i++)
        check(k3_gguf_read(gguf, k3_gguf_find_tensor(gguf, names[i]), 0, experts + i * 6 * n, 6 * n, &err));
    for (size_t a = 0; a < count; a++)
        for (size_t b = 0; b < a; b++) {
            size_t same = 0;
            for (size_t i = 0; i < n; i++) same += experts[a * n + i] == experts[b * n + i];
            if (same > n / 10) fail_msg("%zu of %zu bytes of experts %zu and %zu agree", same, n, a, b);
        }
    free(experts);
    k3_gguf_close(gguf);
}

static void sizes_that_make_no_model_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct k3_synth_options options;
        const char *text;
    } cases[] = {
        {{.tiny = true, .layers = 1}, "1 layers cannot be: 2 to 1024"},
        {{.tiny = true, .experts = 3}, "3 experts in a layer cannot be: 4 to"},
        {{.experts = 15}, "15 experts in a layer cannot be: 16 to"},
        {{.tiny = true, .vocab = 511}, "511 tokens cannot be: 512 to"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(k3_synth_write(test_path(folder, "m"), &cases[i].options, &err), K3_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].text)) fail_msg("'%s' lacks '%s'", err.message, cases[i].text);
    }
    struct k3_file file;
    assert_int_equal(k3_file_open(test_path(folder, "m"), &file, &err), K3_ERR_IO);
}

static bool stop(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)ctx, (void)what;
    return done < total / 2;
}

static void stopped_halfway_it_leaves_nothing(void **state)
{
    (void)state;
    const struct k3_synth_options o = {.tiny = true, .progress = stop};
    assert_int_equal(k3_synth_write(test_path(folder, "m"), &o, &err), K3_ERR_CANCELLED);
    /* The teardown removes what is left; an empty folder is one that was removed at once. */
    assert_int_equal(remove(folder), 0);
    test_folder_make(folder);
}

/* ---- text ---- */

static void every_token_of_text_is_reached(void **state)
{
    (void)state;
    const struct k3_synth_options o = {.tiny = true, .vocab = 3000};
    const char *path = make_model("m.gguf", &o);
    struct k3_tokenizer *t = NULL;
    check(k3_tokenizer_open(path, &t, &err));
    for (int32_t id = 256; id < 3000 - 256; id++) {
        struct k3_tokens ids = {0};
        size_t n;
        const char *text = k3_token_text(t, id, &n);
        check(k3_tokenize(t, text, n, false, &ids, &err));
        if (ids.n != 1 || ids.ids[0] != id)
            fail_msg("the text of token %d, '%.*s', is another", id, (int)n, text);
        k3_tokens_free(&ids);
    }
    assert_int_equal(k3_token_find(t, "[BOS]"), 3000 - 256);
    assert_int_equal(k3_token_find(t, "<|sep|>"), 3000 - 256 + 5);
    assert_int_equal(k3_token_find(t, "[PAD]"), 2999);
    k3_tokenizer_close(t);
}

/* Other programs read the merge list, we read the ids: both must lead to the same tokens. */
static void the_merge_list_joins_what_the_ids_join(void **state)
{
    (void)state;
    struct k3_synth_vocab v;
    check(k3_synth_vocab_make(&v, 40000, &err));
    assert_int_equal(v.n_text, 256 + v.n_merges);
    for (uint32_t i = 0; i < v.n_merges; i++) {
        const char *space = memchr(v.merges[i].text, ' ', v.merges[i].n);
        size_t left = (size_t)(space - v.merges[i].text), right = v.merges[i].n - left - 1;
        const struct k3_gguf_string *token = &v.tokens[256 + i];
        assert_int_equal(token->n, left + right);
        assert_memory_equal(token->text, v.merges[i].text, left);
        assert_memory_equal(token->text + left, space + 1, right);
    }
    k3_synth_vocab_free(&v);
}

/* ---- running it ---- */

#define MAX_TOKENS 300

struct run {
    uint32_t n_dense;
    struct k3_trace trace;
    double sum[K3_MAX_LAYERS]; /* of squares of the stream after each layer */
    float logits[MAX_TOKENS][1024];
    double largest; /* value of the stream */
};

static void watch(void *ctx, const char *name, int layer, size_t row, const float *values, size_t n_rows,
                  size_t width)
{
    struct run *run = ctx;
    if (!strcmp(name, "ffn_moe_topk"))
        for (size_t i = 0; i < width; i++)
            run->trace.ids[(row * run->trace.n_layers + (size_t)layer - run->n_dense) * width + i] =
                (uint16_t)values[i];
    if (strcmp(name, "l_out")) return;
    for (size_t i = 0; i < n_rows * width; i++) {
        double x = (double)values[i];
        run->sum[layer] += x * x / (double)(n_rows * width);
        run->largest = fmax(run->largest, fabs(x));
    }
}

/* Feeds n random tokens to a model. */
static void feed(const char *path, size_t n, struct run *run)
{
    struct k3_model_options options = {.threads = 2, .gpu = K3_GPU_OFF}; /* the tap is the CPU's */
    struct k3_model *model = NULL;
    struct k3_session *session = NULL;
    struct test_random random = {3};
    int32_t ids[MAX_TOKENS];
    check(k3_model_open(path, &options, &model, &err));
    check(k3_session_create(model, NULL, &session, &err));
    const struct k3_hparams *hp = &model->plan->hp;
    memset(run, 0, sizeof *run);
    run->n_dense = hp->n_dense_layers;
    run->trace = (struct k3_trace){
        .n_tokens = (uint32_t)n, .n_layers = hp->n_layers - run->n_dense, .n_experts = hp->n_experts};
    size_t n_lists = n * run->trace.n_layers;
    run->trace.ids = calloc(n_lists * hp->top_k, sizeof *run->trace.ids);
    run->trace.begin = calloc(n_lists + 1, sizeof *run->trace.begin);
    assert_true(run->trace.ids && run->trace.begin);
    for (size_t i = 0; i <= n_lists; i++) run->trace.begin[i] = i * hp->top_k;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)test_random_below(&random, hp->n_vocab);

    struct k3_tap tap = {watch, run};
    k3_cpu_device_set_tap(model->device, &tap);
    assert_int_equal(hp->n_vocab, 1024);
    check(k3_session_feed(session, ids, n, NULL, n, run->logits[0], &err));
    k3_session_free(session);
    k3_model_close(model);
}

static void activations_stay_in_range_in_any_depth(void **state)
{
    (void)state;
    static const uint32_t depths[] = {2, 4, 93};
    enum { N = 40 };
    struct run *run = malloc(sizeof *run);
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        const struct k3_synth_options o = {.tiny = true, .layers = depths[d], .experts = 8, .skew = 1};
        feed(make_model(d == 0 ? "2" : d == 1 ? "4" : "93", &o), N, run);
        for (uint32_t layer = 0; layer < depths[d]; layer++) {
            double rms = sqrt(run->sum[layer]);
            if (!(rms > 0.2 && rms < 5)) fail_msg("rms after layer %u of %u is %g", layer, depths[d], rms);
        }
        double sum = 0, count = 0;
        for (size_t t = 0; t < N; t++)
            for (size_t i = 0; i < 768; i++, count++)
                sum += (double)run->logits[t][i] * (double)run->logits[t][i];
        print_message("%u layers: rms of logits %.2f, largest value of the stream %.1f\n", depths[d],
                      sqrt(sum / count), run->largest);
        assert_true(sqrt(sum / count) > 1 && sqrt(sum / count) < 4);
        assert_true(run->largest < 30);
        for (size_t t = 0; t < N; t++) /* control tokens are never the best */
            for (size_t i = 768; i < 1024; i++) assert_true(run->logits[t][i] == 0);
        k3_trace_free(&run->trace);
    }
    free(run);
}

static struct k3_routing_stats mean_routing(const struct k3_synth_options *o, const char *name)
{
    struct run *run = malloc(sizeof *run);
    struct k3_routing_stats one, all = {0};
    feed(make_model(name, o), MAX_TOKENS, run);
    uint32_t n = run->trace.n_layers;
    for (uint32_t layer = 0; layer < n; layer++) {
        check(k3_routing_measure(&run->trace, layer, o->experts, &one, &err));
        all.overlap += one.overlap / n;
        all.top_tenth += one.top_tenth / n;
        for (int i = 0; i < K3_ROUTING_SPANS; i++) all.distinct[i] += one.distinct[i] / n;
    }
    print_message("skew %g: overlap %.3f, distinct %.2f %.2f %.2f %.2f %.2f, top tenth %.3f\n",
                  (double)o->skew, all.overlap, all.distinct[0], all.distinct[1], all.distinct[2],
                  all.distinct[3], all.distinct[4], all.top_tenth);
    k3_trace_free(&run->trace);
    free(run);
    return all;
}

static void between(const char *what, double value, double low, double high)
{
    if (!(value >= low && value <= high))
        fail_msg("%s is %.3f, not between %.3f and %.3f", what, value, low, high);
}

/* The bands are around the trace of Kimi-Linear (docs/synthetic.md); 25 times as many experts as a token uses, as in a
 * model of 400. */
static void the_router_behaves_like_a_trained_one(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        char name[] = {'0' + (char)seed, 0};
        const struct k3_synth_options o = {.tiny = true, .experts = 100, .seed = seed, .skew = 1};
        struct k3_routing_stats s = mean_routing(&o, name);
        between("the overlap", s.overlap, 0.28, 0.40);
        between("distinct in 2", s.distinct[0], 1.60, 1.72);
        between("distinct in 8", s.distinct[2], 4.0, 5.0);
        between("distinct in 32", s.distinct[4], 9.0, 12.0);
        between("the share of the top tenth", s.top_tenth, 0.3, 0.55);
    }
}

/* Of 100 experts, 4 at random: overlap 0.04, and 32 tokens miss each with probability 0.96^32. */
static void without_skew_all_experts_are_alike(void **state)
{
    (void)state;
    const struct k3_synth_options o = {.tiny = true, .experts = 100, .skew = 0};
    struct k3_routing_stats s = mean_routing(&o, "m");
    between("the overlap", s.overlap, 0.03, 0.06);
    between("distinct in 32", s.distinct[4], 17, 18.5);
    between("the share of the top tenth", s.top_tenth, 0.1, 0.2);
}

/* ---- traces ---- */

static const char *write_text(const char *name, const char *text)
{
    const char *path = test_path(folder, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    return path;
}

static void a_trace_is_counted(void **state)
{
    (void)state;
    struct k3_trace trace;
    struct k3_routing_stats s;
    check(k3_trace_read(write_text("t", "{\"tok\": 0, \"layers\": [[0, 1], [5, 6]]}\n"
                                        "{\"tok\": 1, \"layers\": [[1, 2], [5, 6]]}\n"
                                        "{\"tok\": 2, \"layers\": [[3, 4], [5, 6]]}\n"
                                        "{\"tok\": 3, \"layers\": [[4, 9], [5, 6]]}\n"),
                        &trace, &err));
    assert_int_equal(trace.n_tokens, 4);
    assert_int_equal(trace.n_layers, 2);
    assert_int_equal(trace.n_experts, 10);
    check(k3_routing_measure(&trace, 0, 10, &s, &err));
    between("the overlap", s.overlap, 1 / 3.0 - 1e-9, 1 / 3.0 + 1e-9); /* 1, 0 and 1 of 2 in three steps */
    between("distinct in 4", s.distinct[1], 3, 3);
    between("distinct in 8", s.distinct[2], 0, 0);
    between("the top tenth", s.top_tenth, 0.25, 0.25);
    check(k3_routing_measure(&trace, 1, 10, &s, &err));
    between("the overlap", s.overlap, 1, 1);
    k3_trace_free(&trace);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_seed_gives_the_same_bytes),
        TEST(a_model_has_no_problems_and_its_sizes),
        TEST(no_two_experts_are_alike),
        TEST(sizes_that_make_no_model_are_refused),
        TEST(stopped_halfway_it_leaves_nothing),
        TEST(every_token_of_text_is_reached),
        TEST(the_merge_list_joins_what_the_ids_join),
        TEST(activations_stay_in_range_in_any_depth),
        TEST(the_router_behaves_like_a_trained_one),
        TEST(without_skew_all_experts_are_alike),
        TEST(a_trace_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
