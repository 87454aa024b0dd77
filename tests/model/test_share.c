/* Shares of a model in words, and which tensors they have. */
#include "k3_builder.h"

#include "model/share.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

enum { LAYERS = 12 };

static struct k3_share parse(const char *text)
{
    struct k3_error err;
    struct k3_share share;
    if (k3_share_parse(text, LAYERS, &share, &err) != K3_OK) fail_msg("'%s': %s", text, err.message);
    return share;
}

static void words_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *normal;
        uint32_t n;
    } cases[] = {
        {"all", "all", 2 * LAYERS + 2},
        {"0", "", 0},
        {"1", "11-11,head", 3},
        {"3", "9-11,head", 7},
        {"12", "0-11,head", 2 * LAYERS + 1},
        {"0-0", "0-0", 2},
        {"4,2", "2-2,4-4", 4},
        {"2-5,4-7", "2-7", 12},
        {"3.ffn", "3.ffn", 1},
        {"3-5.attention,4.ffn", "3.attention,4-4,5.attention", 4},
        {"head,embedding,11.ffn", "embedding,11.ffn,head", 3},
        {"embedding,head,0-11", "all", 2 * LAYERS + 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        struct k3_share share = parse(cases[i].text);
        assert_int_equal(k3_share_count(&share, LAYERS), cases[i].n);
        k3_share_format(&share, LAYERS, text, sizeof text);
        assert_string_equal(text, cases[i].normal);
    }
}

static void what_is_no_share_is_refused_in_a_sentence(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "'' is none of all, N, A-B"},
        {"x", "'x' is none of"},
        {"4,", "'' is none of"},
        {"-1", "'-1' is none of"},
        {"1-", "'1-' is none of"},
        {"1-2-3", "'1-2-3' is none of"},
        {"1.ff", "'1.ff' is none of"},
        {"1.", "'1.' is none of"},
        {" 1", "' 1' is none of"},
        {"Head", "'Head' is none of"},
        {"5-2", "5-2 ends before it begins"},
        {"13", "the model has 12, not 13"},
        {"999999999999999999999999", "the model has 12, not 999999999999999999999999"},
        {"3-12", "3-12 is not there, the model's layers are 0-11"},
        {"99999999999999999999-99999999999999999999", "is not there"},
        {"4294967296-4294967297", "is not there"},
        {"0,12.ffn", "12.ffn is not there"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct k3_error err;
        struct k3_share share = {.has = {true}};
        assert_int_equal(k3_share_parse(cases[i].text, LAYERS, &share, &err), K3_ERR_ARGUMENT);
        if (!strstr(err.message, cases[i].says)) fail_msg("'%s' says: %s", cases[i].text, err.message);
        assert_true(share.has[0] && !share.has[1]); /* untouched */
    }
}

static void words_that_do_not_fit_end_in_dots(void **state)
{
    (void)state;
    char text[24];
    struct k3_share share = parse("embedding,1.ffn,3.ffn,5.ffn,7.ffn,head");
    k3_share_format(&share, LAYERS, text, sizeof text);
    assert_string_equal(text, "embedding,1.ffn,...");
}

/* Every dense tensor is in one group, and a group's rest has all others. */
static void a_share_and_its_rest_have_every_tensor_once(void **state)
{
    (void)state;
    struct gb gb;
    struct k3_error err;
    struct k3_plan *plan;
    char folder[64];
    gb_init(&gb);
    gb_add_k3(&gb, &k3_tiny);
    test_folder_make(folder);
    gb_write(&gb, test_path(folder, "k3.gguf"));
    if (k3_plan_open(test_path(folder, "k3.gguf"), &plan, &err) != K3_OK) fail_msg("%s", err.message);
    for (uint32_t group = 0; group < k3_n_groups(4); group++) {
        struct k3_share one = {0};
        one.has[group] = true;
        struct k3_share rest = k3_share_rest(&one, 4);
        assert_int_equal(k3_share_count(&one, 4) + k3_share_count(&rest, 4), k3_n_groups(4));
        for (uint32_t layer = 0; layer < 4; layer++)
            for (int role = 0; role < K3_FIRST_EXPERT_ROLE; role++) {
                const struct k3_gguf_tensor *t = k3_share_tensor(plan, NULL, layer, role);
                const struct k3_gguf_tensor *a = k3_share_tensor(plan, &one, layer, role);
                const struct k3_gguf_tensor *b = k3_share_tensor(plan, &rest, layer, role);
                assert_true(!a || !b);
                assert_ptr_equal(t, a ? a : b);
            }
    }
    struct k3_share ffn = {0}, attention = {0}, head = {0};
    ffn.has[k3_ffn_group(1)] = attention.has[k3_attention_group(1)] = head.has[k3_head_group(4)] = true;
    assert_non_null(k3_share_tensor(plan, &ffn, 1, K3_FFN_NORM));
    assert_non_null(k3_share_tensor(plan, &ffn, 1, K3_SHARED_DOWN));
    assert_non_null(k3_share_tensor(plan, &attention, 1, K3_ATTN_RES_SCORE));
    assert_non_null(k3_share_tensor(plan, &attention, 1, K3_MLA_GATE));
    assert_null(k3_share_tensor(plan, &attention, 3, K3_MLA_GATE));
    assert_non_null(k3_share_tensor(plan, &head, 0, K3_OUTPUT_RES_SCORE));
    k3_plan_close(plan);
    gb_free(&gb);
    test_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_read_and_written),
        cmocka_unit_test(what_is_no_share_is_refused_in_a_sentence),
        cmocka_unit_test(words_that_do_not_fit_end_in_dots),
        cmocka_unit_test(a_share_and_its_rest_have_every_tensor_once),
    };
    return cmocka_run_group_tests_name("shares", tests, NULL, NULL);
}
