/* The calculator: costs against what is published of K3, predictions against values that were computed by hand from
 * docs/performance-model.md. */
#include "predict.h"
#include "synth.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

static void check_near(const char *what, double value, double want)
{
    if (!(fabs(value - want) <= 1e-3 * fabs(want))) fail_msg("%s is %.9g, not %.9g", what, value, want);
}

static double sum(const double weights[K3_TYPE_COUNT])
{
    double total = 0;
    for (int t = 0; t < K3_TYPE_COUNT; t++) total += weights[t];
    return total;
}

static struct k3_cost cost_of_k3(void)
{
    struct k3_cost cost;
    struct k3_hparams hp = k3_synth_real_sizes(93);
    k3_cost_of_sizes(&hp, &cost);
    return cost;
}

/* The workstation of docs/performance-model.md. */
static struct k3_machine workstation(void)
{
    struct k3_machine m = {.cores = 16,
                           .ram_bytes = 125 * 0x1p30,
                           .reserve_bytes = 15 * 0x1p30,
                           .vram_bytes = 96 * 0x1p30,
                           .ram_rate = 60e9,
                           .vram_rate = 1600e9,
                           .pcie_rate = 50e9,
                           .drive_rate = 22e9,
                           .gpu_rate = 125e12,
                           .layer_s = 60e-6,
                           .launch_s = 1.6e-6,
                           .transfer_s = 2e-6,
                           .wait_s = 5e-6,
                           .op_rate = 25e12,
                           .hits = -1};
    for (int t = 0; t < K3_TYPE_COUNT; t++) {
        m.one[t] = t == K3_TYPE_F32 ? 10e9 : 18.75e9;
        m.many[t] = t == K3_TYPE_F32 ? 10e9 : 125e9;
    }
    return m;
}

static double term(const struct k3_prediction *p, const char *name)
{
    for (uint32_t i = 0; i < p->n_terms; i++)
        if (strcmp(p->terms[i].name, name) == 0) return p->terms[i].seconds;
    fail_msg("there is no term %s", name);
    return 0;
}

/* architecture.md section 1: 1,271,924,468,768 parameters with 400 experts a layer. */
static void the_parameters_of_k3_are_those_published(void **state)
{
    (void)state;
    struct k3_cost cost = cost_of_k3();
    double embedding = cost.embedding_bytes / 34 * 32;
    double all = sum(cost.dense_weights) + embedding + cost.n_experts * sum(cost.expert_weights);
    if (all != 1271924468768.0) fail_msg("%.0f parameters, not 1271924468768", all);
    check_near("an expert", cost.expert_bytes, 92 * 7655424.0);
    check_near("the KDA state", cost.state_bytes, 69 * 96 * 128 * 128 * 4.0);
    check_near("a token's cache", cost.cache_bytes, 24 * 576 * 2.0);
    check_near("a pair's attention", cost.attention_madds, 24 * 96 * (512 + 64 + 512.0));
    assert_int_equal(cost.n_moe_layers, 92);
}

static void a_file_costs_what_its_tensors_hold(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_plan *plan;
    struct k3_cost cost;
    if (k3_plan_open(K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf", &plan, &err) != K3_OK) fail_msg("%s", err.message);
    k3_cost_of_plan(plan, &cost);
    double bytes = 0;
    for (size_t i = 0; i < plan->gguf->n_tensors; i++) bytes += (double)plan->gguf->tensors[i].bytes;
    check_near("all tensors", cost.dense_bytes + cost.embedding_bytes + cost.n_experts * cost.expert_bytes,
               bytes);
    assert_int_equal(cost.n_experts, plan->hp.n_experts);
    k3_plan_close(plan);
}

/* 1472 experts of 7,655,424 bytes are 11.2688 GB and 48.6204 G multiply-adds; a fifth of the bytes, 2.25376 GB, is missing. */
static void a_token_of_k3_is_predicted(void **state)
{
    (void)state;
    struct k3_cost cost = cost_of_k3();
    struct k3_machine m = workstation();
    struct k3_prediction p;
    m.hits = 0.8;
    k3_predict_decode(&m, &cost, 0, &p);
    check_near("cached", p.cached, 110 * 0x1p30 / 281719603200.0);
    check_near("drive", term(&p, "drive"), 0.102443);
    check_near("ram", term(&p, "ram"), 0.225376);
    check_near("experts", term(&p, "experts"), 0.162068);
    double steps = k3_predict_gpu_kernels(&m, &cost, 1) + 0.000905099;
    check_near("kernels", term(&p, "dense") + term(&p, "state") + term(&p, "attention") + 0.000905099, steps);
    check_near("host", term(&p, "host"), 0.000905099);
    check_near("overlapped", p.overlapped_s, steps + 0.225376);
    check_near("sequential", p.sequential_s, steps + 0.102443 + 0.225376);
    assert_string_equal(p.bound, "ram");

    m.drive_rate = 5e9;
    k3_predict_decode(&m, &cost, 0, &p);
    assert_string_equal(p.bound, "drive");
    m.cores = 4;
    k3_predict_decode(&m, &cost, 0, &p);
    assert_string_equal(p.bound, "experts");
    m.vram_bytes = 0; /* 59.5 GB of RAM at 60 GB/s */
    m.cores = 16;
    k3_predict_decode(&m, &cost, 0, &p);
    check_near("dense in RAM", term(&p, "dense"), 0.991810);
    check_near("layers", term(&p, "layers"), 0.00558);
    check_near("state", term(&p, "state"), 0.0144704);
    assert_string_equal(p.bound, "dense");
    k3_predict_decode(&m, &cost, 1e6, &p);
    check_near("attention", term(&p, "attention"), 1e6 * 2506752.0 / 160e9);
}

static const struct k3_gpu_work *work(const struct k3_cost *cost, const char *name)
{
    for (uint32_t i = 0; i < cost->gpu.n_works; i++)
        if (strcmp(cost->gpu.works[i].name, name) == 0) return &cost->gpu.works[i];
    fail_msg("nothing is called %s", name);
    return NULL;
}

/* 69 layers of KDA, 24 of MLA, 92 with experts; widths 7168, 12288 and 3584, 96 heads of 128, 400 experts. */
static void launches_and_bytes_of_k3_are_counted(void **state)
{
    (void)state;
    struct k3_cost cost = cost_of_k3();
    double calls = 0;
    for (uint32_t i = 0; i < cost.gpu.n_works; i++)
        if (cost.gpu.works[i].kind == K3_GPU_KERNEL) calls += cost.gpu.works[i].calls;
    /* Beside the mixes, in a layer of KDA 5, of MLA 13, with experts 8, in the dense one 3; and rows, mix, head. */
    check_near("launches", calls, 2 * 93 + 69 * 5 + 24 * 13 + 92 * 8 + 3 + 3);
    check_near("mix", work(&cost, "mix")->calls, 2 * 93 + 1);
    check_near("multiply", work(&cost, "multiply")->calls, 2 * 69 + 5 * 24 + 4 * 92 + 2 + 1);
    check_near("the router", work(&cost, "multiply_row")->bytes, 92 * 4 * (400 * 7168 + 7168 + 400));
    check_near("KDA", work(&cost, "recur")->bytes, 69 * 4 * (2 * 12288 * 128 + 5 * 12288 + 96));
    check_near("scores", work(&cost, "scores")->key_bytes, 24 * (2 * 576 + 4 * 96 * (1 + 1 / 64.0)));
    check_near("from the host", work(&cost, "put")->bytes, 92 * 4 * 3584 + 4 + 4);
    check_near("to the host", work(&cost, "get")->bytes, 92 * 4 * (3584 + 32) + 4 * 163840);
    /* All weights but the table of tokens, the f32 ones and F_B, 34 bytes for 32. */
    double weights = (cost.dense_weights[K3_TYPE_Q8_0] - 69.0 * 12288 * 128) * 34 / 32;
    assert_true(work(&cost, "multiply")->bytes > weights && work(&cost, "multiply")->bytes < 1.002 * weights);
}

static void a_gpu_takes_little_more_than_its_memory(void **state)
{
    (void)state;
    struct k3_cost cost = cost_of_k3();
    struct k3_machine m = workstation();
    check_near("memory", k3_predict_gpu_floor(&m, &cost, 1), (59.5086e9 + 2 * 0.434e9) / 1600e9);
    for (m.vram_rate = 1600e9; m.vram_rate <= 1800e9; m.vram_rate += 100e9) {
        double times = k3_predict_gpu_kernels(&m, &cost, 1) / k3_predict_gpu_floor(&m, &cost, 1);
        if (times > 1.15)
            fail_msg("%g GB/s: the kernels take %g times what memory does", m.vram_rate / 1e9, times);
    }
    /* One kernel by hand: SiTU of 33792 and 92 x 6144 values, 13.125 bytes and 60 instructions each. */
    const struct k3_gpu_work *situ = work(&cost, "situ");
    double values = 33792 + 92 * 6144;
    check_near("situ", k3_predict_gpu_work(&m, situ, 1), 93 * 1.6e-6 + values * 13.125 / m.vram_rate);
    check_near("situ's instructions", situ->ops, 60 * values);
}

/* A model of round numbers: 4 experts of 1e6 bytes and 1e6 weights in the one layer, 2 a token; 1e7 dense. */
static struct k3_cost round_numbers(void)
{
    struct k3_cost cost = {.n_layers = 1,
                           .n_moe_layers = 1,
                           .n_experts = 4,
                           .top_k = 2,
                           .dense_bytes = 1e7,
                           .expert_bytes = 1e6,
                           .cache_bytes = 100,
                           .attention_madds = 1000};
    cost.dense_weights[K3_TYPE_Q8_0] = 1e7;
    cost.expert_weights[K3_TYPE_IQ1_M] = 1e6;
    return cost;
}

static void a_prefill_of_round_numbers_is_predicted(void **state)
{
    (void)state;
    struct k3_cost cost = round_numbers();
    struct k3_machine m = {.cores = 2,
                           .ram_bytes = 1.2e7, /* 1e7 dense, half of the 4e6 of experts */
                           .ram_rate = 1e9,
                           .drive_rate = 1e8,
                           .layer_s = 0.5,
                           .hits = -1};
    struct k3_prediction p;
    m.many[K3_TYPE_Q8_0] = 1e9;
    m.many[K3_TYPE_IQ1_M] = 5e8;
    m.many[K3_TYPE_F32] = 1e8;
    k3_predict_prefill(&m, &cost, 10, 100, 50, &p); /* two batches of 50, each of which touches all */
    check_near("cached", p.cached, 0.5);
    check_near("dense", term(&p, "dense"), 2 * 50 * 1e7 / 2e9);
    check_near("attention", term(&p, "attention"), (50 * 10 + 1275 + 50 * 60 + 1275) * 1000 / 2e8);
    check_near("experts", term(&p, "experts"), 2 * 50 * 2 * 1e6 / 1e9);
    check_near("layers", term(&p, "layers"), 1);
    check_near("drive", term(&p, "drive"), 2 * 2e6 / 1e8);
    check_near("ram", term(&p, "ram"), 2 * 6e6 / 1e9);
    check_near("overlapped", p.overlapped_s, 0.5 + 0.03025 + 0.2 + 1);
    check_near("sequential", p.sequential_s, 0.5 + 0.03025 + 0.2 + 1 + 0.04);
    assert_string_equal(p.bound, "layers");
    m.drive_rate = 1e6;
    k3_predict_prefill(&m, &cost, 10, 100, 50, &p);
    check_near("overlapped", p.overlapped_s, 4);
    assert_string_equal(p.bound, "drive");
}

static void curves_rise_from_nothing_to_all(void **state)
{
    (void)state;
    double before = -1;
    for (double x = 0; x <= 1; x += 0.01) {
        assert_true(k3_predict_hits(x) > before && k3_predict_hits(x) >= x * 0.99);
        before = k3_predict_hits(x);
    }
    check_near("hits at 42 %", k3_predict_hits(0.42), 0.872);
    check_near("hits with all", k3_predict_hits(1), 1);
    before = 0;
    for (double n = 1; n < 10000; n *= 1.3) {
        double touched = k3_predict_touched(n, 0.04);
        if (touched < before || touched > 1) fail_msg("%g tokens touch %g, fewer %g", n, touched, before);
        before = touched;
    }
    check_near("touched by one", k3_predict_touched(1, 0.04), 0.04);
    check_near("touched by 32", k3_predict_touched(32, 0.04), 0.4392);
    check_near("touched by many", k3_predict_touched(8192, 0.04), 1);
    check_near("touched when all are chosen", k3_predict_touched(4, 0.5), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parameters_of_k3_are_those_published),
        cmocka_unit_test(a_file_costs_what_its_tensors_hold),
        cmocka_unit_test(a_token_of_k3_is_predicted),
        cmocka_unit_test(launches_and_bytes_of_k3_are_counted),
        cmocka_unit_test(a_gpu_takes_little_more_than_its_memory),
        cmocka_unit_test(a_prefill_of_round_numbers_is_predicted),
        cmocka_unit_test(curves_rise_from_nothing_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
