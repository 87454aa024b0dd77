/* Reading GGUF files that are as they should be. */
#include "gguf_builder.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODELS K3_TEST_DATA "/fixtures/models/"

static struct k3_gguf *open_or_fail(const char *path)
{
    struct k3_gguf *gguf = NULL;
    struct k3_error err;
    if (k3_gguf_open(path, &gguf, &err) != K3_OK) fail_msg("%s", err.message);
    return gguf;
}

static void every_fixture_opens(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        uint32_t n_shards;
        size_t n_values, n_tensors;
    } files[] = {
        {MODELS "k3-tiny-a-f32.gguf", 1, 44, 131},
        {MODELS "k3-tiny-a-q8_0-mxfp4.gguf", 1, 44, 131},
        {MODELS "k3-tiny-b-q8_0-mxfp4.gguf", 1, 43, 144},
        {MODELS "k3-tiny-c-f32.gguf", 1, 42, 82},
        {MODELS "k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf", 1, 48, 107},
        {MODELS "split/k3-tiny-a-q8_0-mxfp4-00001-of-00002.gguf", 2, 47, 131},
        {MODELS "split/k3-tiny-a-q8_0-mxfp4-00002-of-00002.gguf", 2, 47, 131},
        {MODELS "split/k3-tiny-c-q8_0-mxfp4-00002-of-00003.gguf", 3, 45, 82},
        {K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf", 1, 47, 160},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct k3_gguf *gguf = open_or_fail(files[i].path);
        assert_int_equal(gguf->n_shards, files[i].n_shards);
        assert_int_equal(gguf->n_values, files[i].n_values);
        assert_int_equal(gguf->n_tensors, files[i].n_tensors);
        assert_string_equal(gguf->path, files[i].path);
        k3_gguf_close(gguf);
    }
    k3_gguf_close(NULL);
}

static void keys_are_found_and_converted(void **state)
{
    (void)state;
    struct k3_gguf *gguf = open_or_fail(MODELS "k3-tiny-a-f32.gguf");
    struct k3_error err;
    struct k3_gguf_string s;
    uint32_t u = 0;
    float f = 0;
    bool b = false;
    assert_int_equal(k3_gguf_get_u32(gguf, "kimi-k3.block_count", &u, &err), K3_OK);
    assert_int_equal(u, 5);
    assert_int_equal(k3_gguf_get_f32(gguf, "kimi-k3.kda.gate_lower_bound", &f, &err), K3_OK);
    assert_true(f == -5.0f);
    assert_int_equal(k3_gguf_get_bool(gguf, "kimi-k3.expert_weights_norm", &b, &err), K3_OK);
    assert_true(b);
    assert_int_equal(k3_gguf_get_string(gguf, "general.name", &s, &err), K3_OK);
    assert_string_equal(s.text, "k3-tiny-a");
    assert_int_equal(s.n, 9);

    const struct k3_gguf_value *kinds = k3_gguf_find(gguf, "kimi-k3.attention.head_count_kv");
    assert_non_null(kinds);
    assert_int_equal(kinds->array.n, 5);
    for (uint64_t i = 0; i < 5; i++) assert_int_equal(k3_gguf_array_int(kinds, i), i >= 3);
    const struct k3_gguf_value *tokens = k3_gguf_find(gguf, "tokenizer.ggml.tokens");
    assert_string_equal(((const struct k3_gguf_string *)tokens->array.items)[503].text, "<|end_of_msg|>");

    assert_null(k3_gguf_find(gguf, "no.such.key"));
    assert_int_equal(k3_gguf_get_u32(gguf, "no.such.key", &u, &err), K3_ERR_FORMAT);
    assert_string_equal(err.message, "k3-tiny-a-f32.gguf: key no.such.key is missing");
    assert_int_equal(k3_gguf_get_f32(gguf, "general.name", &f, &err), K3_ERR_FORMAT);
    assert_string_equal(err.message,
                        "k3-tiny-a-f32.gguf: key general.name is of kind string; f32 is expected");
    assert_int_equal(k3_gguf_get_bool(gguf, "kimi-k3.block_count", &b, &err), K3_ERR_FORMAT);
    assert_int_equal(k3_gguf_get_string(gguf, "kimi-k3.block_count", &s, &err), K3_ERR_FORMAT);
    k3_gguf_close(gguf);
}

static void integers_of_every_kind_are_kept(void **state)
{
    (void)state;
    static const struct {
        uint32_t kind;
        const char *bytes;
        size_t n;
        int64_t value;
        bool fits;
    } ints[] = {
        {K3_GGUF_U8, "\xff", 1, 255, true},
        {K3_GGUF_I8, "\xff", 1, -1, false},
        {K3_GGUF_U16, "\xfe\xff", 2, 65534, true},
        {K3_GGUF_I16, "\xfe\xff", 2, -2, false},
        {K3_GGUF_U32, "\xff\xff\xff\xff", 4, 4294967295, true},
        {K3_GGUF_I32, "\xff\xff\xff\x7f", 4, 2147483647, true},
        {K3_GGUF_I32, "\x00\x00\x00\x80", 4, -2147483648LL, false},
        {K3_GGUF_U64, "\x00\x00\x00\x00\x01\x00\x00\x00", 8, 4294967296, false},
        {K3_GGUF_I64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, -1, false},
        {K3_GGUF_I64, "\x07\x00\x00\x00\x00\x00\x00\x00", 8, 7, true},
    };
    const size_t n = sizeof ints / sizeof ints[0];
    char folder[64], key[16] = "k0";
    struct gb gb;
    gb_init(&gb);
    for (size_t i = 0; i < n; i++, key[1]++) {
        gb_add_raw(&gb, key, ints[i].kind, ints[i].bytes, ints[i].n);
        key[0] = 'a';
        gb_add_array(&gb, key, ints[i].kind, ints[i].bytes, 1, ints[i].n);
        key[0] = 'k';
    }
    test_folder_make(folder);
    gb_write(&gb, test_path(folder, "m.gguf"));
    struct k3_gguf *gguf = open_or_fail(test_path(folder, "m.gguf"));
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        key[0] = 'k';
        key[1] = (char)('0' + i);
        assert_int_equal(k3_gguf_find(gguf, key)->i, ints[i].value);
        assert_int_equal(k3_gguf_get_u32(gguf, key, &u, NULL), ints[i].fits ? K3_OK : K3_ERR_FORMAT);
        if (ints[i].fits) assert_int_equal(u, ints[i].value);
        key[0] = 'a';
        assert_int_equal(k3_gguf_array_int(k3_gguf_find(gguf, key), 0), ints[i].value);
    }
    k3_gguf_close(gguf);
    test_folder_remove(folder);
    gb_free(&gb);
}

static void assert_same_tensors(const struct k3_gguf *one, const struct k3_gguf *set)
{
    assert_int_equal(one->n_tensors, set->n_tensors);
    for (size_t i = 0; i < one->n_tensors; i++) {
        const struct k3_gguf_tensor *a = &one->tensors[i], *b = k3_gguf_find_tensor(set, a->name);
        assert_non_null(b);
        assert_int_equal(a->bytes, b->bytes);
        assert_int_equal(a->type, b->type);
        assert_memory_equal(a->ne, b->ne, sizeof a->ne);
        char *x = malloc(a->bytes), *y = malloc(a->bytes);
        assert_int_equal(k3_gguf_read(one, a, 0, x, a->bytes, NULL), K3_OK);
        assert_int_equal(k3_gguf_read(set, b, 0, y, a->bytes, NULL), K3_OK);
        assert_memory_equal(x, y, a->bytes);
        free(x);
        free(y);
    }
}

static void shards_hold_the_same_bytes_as_one_file(void **state)
{
    (void)state;
    struct k3_gguf *one = open_or_fail(MODELS "k3-tiny-a-q8_0-mxfp4.gguf");
    struct k3_gguf *set = open_or_fail(MODELS "split/k3-tiny-a-q8_0-mxfp4-00002-of-00002.gguf");
    assert_same_tensors(one, set);
    assert_int_equal(set->tensors[0].shard, 0);
    assert_int_equal(set->tensors[set->n_tensors - 1].shard, 1);
    assert_null(k3_gguf_find_tensor(set, "no.such.tensor"));
    k3_gguf_close(one);
    k3_gguf_close(set);
}

/* The first shard has keys only; any shard opens the set. */
static void a_file_split_anew_is_the_same_from_every_shard(void **state)
{
    (void)state;
    char folder[64], name[32];
    struct gb gb;
    struct k3_gguf *one = open_or_fail(MODELS "k3-tiny-b-q8_0-mxfp4.gguf");
    test_folder_make(folder);
    gb_init(&gb);
    gb_add_gguf(&gb, one);
    gb_write_split(&gb, test_path(folder, "b"), 5, 0);
    gb_free(&gb);
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "b-0000%d-of-00005.gguf", i);
        struct k3_gguf *set = open_or_fail(test_path(folder, name));
        assert_int_equal(set->n_shards, 5);
        assert_int_equal(set->n_values, one->n_values + 3);
        assert_int_equal(set->tensors[0].shard, 1);
        assert_same_tensors(one, set);
        k3_gguf_close(set);
    }
    k3_gguf_close(one);
    test_folder_remove(folder);
}

static void reading_outside_a_tensor_is_refused(void **state)
{
    (void)state;
    struct k3_gguf *gguf = open_or_fail(MODELS "k3-tiny-a-f32.gguf");
    const struct k3_gguf_tensor *norm = k3_gguf_find_tensor(gguf, "output_norm.weight");
    struct k3_error err;
    char bytes[8];
    assert_int_equal(norm->bytes, 512);
    assert_int_equal(k3_gguf_read(gguf, norm, 504, bytes, 8, &err), K3_OK);
    assert_int_equal(k3_gguf_read(gguf, norm, 505, bytes, 8, &err), K3_ERR_ARGUMENT);
    assert_string_equal(err.message, "tensor output_norm.weight has 512 bytes; 8 at byte 505 are not in it");
    assert_int_equal(k3_gguf_read(gguf, norm, UINT64_MAX, bytes, 8, &err), K3_ERR_ARGUMENT);
    k3_gguf_close(gguf);
}

/* Things that are unusual but right. */
static void odd_but_valid_files_open(void **state)
{
    (void)state;
    char folder[64];
    struct gb gb;
    struct k3_gguf *gguf;
    test_folder_make(folder);

    gb_init(&gb); /* nothing at all */
    gb_write(&gb, test_path(folder, "empty.gguf"));
    gguf = open_or_fail(test_path(folder, "empty.gguf"));
    assert_null(k3_gguf_find(gguf, "x"));
    assert_null(k3_gguf_find_tensor(gguf, "x"));
    k3_gguf_close(gguf);

    gb.version =
        2; /* the older version, a large alignment, empty strings and arrays, bytes behind the data */
    gb.alignment = 4096;
    gb.extra_bytes = 1000;
    gb_add_u32(&gb, "general.alignment", 4096);
    gb_add_string(&gb, "empty.string", "");
    gb_add_array(&gb, "empty.array", K3_GGUF_STRING, NULL, 0, 0);
    gb_add_tensor(&gb, "a", K3_TYPE_F32, 1, (uint64_t[]){1});
    gb_add_tensor(&gb, "b", K3_TYPE_F32, 4, (uint64_t[]){1, 1, 1, 1});
    gb_add_u32(&gb, "split.count", 1);
    gb_write(&gb, test_path(folder, "v2.gguf"));
    gguf = open_or_fail(test_path(folder, "v2.gguf"));
    assert_int_equal(gguf->version, 2);
    assert_int_equal(gguf->tensors[1].offset, 8192);
    assert_int_equal(gguf->tensors[1].n_dims, 4);
    assert_int_equal(k3_gguf_find(gguf, "empty.array")->array.n, 0);
    assert_string_equal(k3_gguf_find(gguf, "empty.string")->s.text, "");
    k3_gguf_close(gguf);

    struct gb_tensor *b = gb_tensor(&gb, "b"); /* another order and a gap */
    b->fixed_offset = true;
    b->offset = 0;
    gb_tensor(&gb, "a")->fixed_offset = true;
    gb_tensor(&gb, "a")->offset = 4096;
    gb_write(&gb, test_path(folder, "order.gguf"));
    k3_gguf_close(open_or_fail(test_path(folder, "order.gguf")));
    gb_free(&gb);
    test_folder_remove(folder);
}

/* split.no and split.count are u16 by the book; u32 is seen too. */
static void split_keys_of_32_bits_are_accepted(void **state)
{
    (void)state;
    char folder[64];
    test_folder_make(folder);
    for (uint32_t i = 0; i < 2; i++) {
        struct gb gb;
        gb_init(&gb);
        gb_add_u32(&gb, "split.no", i);
        gb_add_u32(&gb, "split.count", 2);
        gb_add_u32(&gb, "split.tensors.count", 2);
        gb_add_tensor(&gb, i ? "b" : "a", K3_TYPE_F32, 1, (uint64_t[]){8});
        gb_write(&gb, test_path(folder, i ? "-00002-of-00002.gguf" : "-00001-of-00002.gguf"));
        gb_free(&gb);
    }
    struct k3_gguf *gguf = open_or_fail(test_path(folder, "-00002-of-00002.gguf"));
    assert_int_equal(gguf->n_tensors, 2);
    k3_gguf_close(gguf);
    test_folder_remove(folder);
}

/* A quadratic search for duplicates or overlaps would take minutes here. */
static void a_hundred_thousand_tensors_open_at_once(void **state)
{
    (void)state;
    char folder[64], name[16];
    struct gb gb;
    gb_init(&gb);
    for (int i = 0; i < 100000; i++) {
        snprintf(name, sizeof name, "t%d", i);
        gb_add_tensor(&gb, name, K3_TYPE_F32, 1, (uint64_t[]){8});
        gb_add_bool(&gb, name, i & 1);
    }
    test_folder_make(folder);
    gb_write(&gb, test_path(folder, "m.gguf"));
    struct k3_gguf *gguf = open_or_fail(test_path(folder, "m.gguf"));
    assert_string_equal(k3_gguf_find_tensor(gguf, "t77777")->name, "t77777");
    assert_int_equal(k3_gguf_find(gguf, "t77777")->u, 1);
    k3_gguf_close(gguf);
    test_folder_remove(folder);
    gb_free(&gb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_opens),
        cmocka_unit_test(keys_are_found_and_converted),
        cmocka_unit_test(integers_of_every_kind_are_kept),
        cmocka_unit_test(shards_hold_the_same_bytes_as_one_file),
        cmocka_unit_test(a_file_split_anew_is_the_same_from_every_shard),
        cmocka_unit_test(reading_outside_a_tensor_is_refused),
        cmocka_unit_test(odd_but_valid_files_open),
        cmocka_unit_test(split_keys_of_32_bits_are_accepted),
        cmocka_unit_test(a_hundred_thousand_tensors_open_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
