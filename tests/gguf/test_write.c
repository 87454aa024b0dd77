/* Writing GGUF files, and reading them back. */
#include "gguf_builder.h"

#include "gguf/write.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FIXTURE K3_TEST_DATA "/fixtures/models/k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf"

static char folder[64];
static struct k3_error err;

static void check(k3_status status)
{
    if (status != K3_OK) fail_msg("%s", err.message);
}

static void refused(k3_status status, const char *text)
{
    assert_int_equal(status, K3_ERR_ARGUMENT);
    if (!strstr(err.message, text)) fail_msg("'%s' lacks '%s'", err.message, text);
}

static struct k3_gguf_writer *create(const char *name)
{
    struct k3_gguf_writer *w = NULL;
    check(k3_gguf_writer_create(test_path(folder, name), &w, &err));
    return w;
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));) n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
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

/* ---- what is read back ---- */

static void assert_same_value(const struct k3_gguf_value *a, const struct k3_gguf_value *b)
{
    static const size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    assert_string_equal(a->key, b->key);
    assert_int_equal(a->kind, b->kind);
    if (a->kind == K3_GGUF_STRING) {
        assert_int_equal(a->s.n, b->s.n);
        assert_memory_equal(a->s.text, b->s.text, a->s.n);
    } else if (a->kind != K3_GGUF_ARRAY) {
        assert_memory_equal(&a->u, &b->u, sizeof a->u);
    } else {
        assert_int_equal(a->array.kind, b->array.kind);
        assert_int_equal(a->array.n, b->array.n);
        const struct k3_gguf_string *x = a->array.items, *y = b->array.items;
        for (uint64_t i = 0; a->array.kind == K3_GGUF_STRING && i < a->array.n; i++) {
            assert_int_equal(x[i].n, y[i].n);
            assert_memory_equal(x[i].text, y[i].text, x[i].n);
        }
        if (a->array.kind != K3_GGUF_STRING && a->array.n)
            assert_memory_equal(a->array.items, b->array.items, a->array.n * sizes[a->array.kind]);
    }
}

static void every_kind_of_key_comes_back(void **state)
{
    (void)state;
    static const uint8_t raw[48] = {1, 0, 1, 0, 0, 0, 1, 1, 0, 1};
    static const struct k3_gguf_string strings[] = {{"a", 1}, {"", 0}, {"zero\0inside", 11}};
    const struct k3_gguf_value values[] = {
        {.key = "u8", .kind = K3_GGUF_U8, .u = 200},
        {.key = "i8", .kind = K3_GGUF_I8, .i = -7},
        {.key = "u16", .kind = K3_GGUF_U16, .u = 65535},
        {.key = "i16", .kind = K3_GGUF_I16, .i = -30000},
        {.key = "u32", .kind = K3_GGUF_U32, .u = 4000000000u},
        {.key = "i32", .kind = K3_GGUF_I32, .i = INT32_MIN},
        {.key = "u64", .kind = K3_GGUF_U64, .u = UINT64_MAX},
        {.key = "i64", .kind = K3_GGUF_I64, .i = INT64_MIN},
        {.key = "f32", .kind = K3_GGUF_F32, .f = (double)0.1f},
        {.key = "f64", .kind = K3_GGUF_F64, .f = 0.1},
        {.key = "bool", .kind = K3_GGUF_BOOL, .u = 1},
        {.key = "string", .kind = K3_GGUF_STRING, .s = {"K3 \xe2\x98\x83", 6}},
        {.key = "strings", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_STRING, 3, strings}},
        {.key = "none", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_U32, 0, raw}},
        {.key = "array.u8", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_U8, 6, raw}},
        {.key = "array.i8", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_I8, 6, raw}},
        {.key = "array.u16", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_U16, 6, raw}},
        {.key = "array.i16", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_I16, 6, raw}},
        {.key = "array.u32", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_U32, 6, raw}},
        {.key = "array.i32", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_I32, 6, raw}},
        {.key = "array.u64", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_U64, 6, raw}},
        {.key = "array.i64", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_I64, 6, raw}},
        {.key = "array.f32", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_F32, 6, raw}},
        {.key = "array.f64", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_F64, 6, raw}},
        {.key = "array.bool", .kind = K3_GGUF_ARRAY, .array = {K3_GGUF_BOOL, 10, raw}},
    };
    const size_t n = sizeof values / sizeof *values;
    struct k3_gguf_writer *w = create("kinds");
    for (size_t i = 0; i < n; i++) check(k3_gguf_put(w, &values[i], &err));
    check(k3_gguf_writer_commit(w, &err));
    k3_gguf_writer_free(w);

    struct k3_gguf *gguf = NULL;
    check(k3_gguf_open(test_path(folder, "kinds"), &gguf, &err));
    assert_int_equal(gguf->version, 3);
    assert_int_equal(gguf->n_values, n);
    for (size_t i = 0; i < n; i++) assert_same_value(&gguf->values[i], &values[i]);
    k3_gguf_close(gguf);
}

static void give_tensor(struct k3_gguf_writer *w, const struct k3_gguf *from, const struct k3_gguf_tensor *t,
                        size_t piece)
{
    unsigned char *bytes = malloc(t->bytes);
    check(k3_gguf_read(from, t, 0, bytes, t->bytes, &err));
    for (size_t at = 0; at < t->bytes; at += piece)
        check(k3_gguf_put_data(w, bytes + at, t->bytes - at < piece ? t->bytes - at : piece, &err));
    free(bytes);
}

static void assert_same_tensor(const struct k3_gguf *a, const struct k3_gguf_tensor *x,
                               const struct k3_gguf *b, const struct k3_gguf_tensor *y)
{
    assert_string_equal(x->name, y->name);
    assert_int_equal(x->type, y->type);
    assert_int_equal(x->n_dims, y->n_dims);
    assert_memory_equal(x->ne, y->ne, sizeof x->ne);
    assert_int_equal(x->bytes, y->bytes);
    unsigned char *p = malloc(x->bytes), *q = malloc(x->bytes);
    check(k3_gguf_read(a, x, 0, p, x->bytes, &err));
    check(k3_gguf_read(b, y, 0, q, y->bytes, &err));
    assert_memory_equal(p, q, x->bytes);
    free(p);
    free(q);
}

static void a_copy_of_a_model_holds_the_same(void **state)
{
    (void)state;
    struct k3_gguf *from = NULL, *copy = NULL;
    check(k3_gguf_open(FIXTURE, &from, &err));
    struct k3_gguf_writer *w = create("copy.gguf");
    uint64_t bytes = 0;
    for (size_t i = 0; i < from->n_values; i++) check(k3_gguf_put(w, &from->values[i], &err));
    for (size_t i = 0; i < from->n_tensors; i++) {
        const struct k3_gguf_tensor *t = &from->tensors[i];
        check(k3_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne, &err));
        bytes += t->bytes;
    }
    assert_int_equal(k3_gguf_writer_bytes(w), bytes);
    /* In pieces of a prime size: none falls on a boundary by chance. */
    for (size_t i = 0; i < from->n_tensors; i++) give_tensor(w, from, &from->tensors[i], 1009);
    check(k3_gguf_writer_commit(w, &err));
    k3_gguf_writer_free(w);

    check(k3_gguf_open(test_path(folder, "copy.gguf"), &copy, &err));
    assert_int_equal(copy->n_values, from->n_values);
    assert_int_equal(copy->n_tensors, from->n_tensors);
    for (size_t i = 0; i < from->n_values; i++) assert_same_value(&copy->values[i], &from->values[i]);
    uint64_t end = copy->tensors[0].offset;
    for (size_t i = 0; i < from->n_tensors; i++) {
        const struct k3_gguf_tensor *t = &copy->tensors[i];
        assert_same_tensor(copy, t, from, &from->tensors[i]);
        assert_int_equal(t->offset, end); /* no gap but for alignment, as other readers demand */
        end = (t->offset + t->bytes + 31) / 32 * 32;
    }
    assert_int_equal(copy->bytes, end);
    k3_gguf_close(copy);
    k3_gguf_close(from);
}

static void one_piece_may_hold_several_tensors(void **state)
{
    (void)state;
    float data[10];
    for (int i = 0; i < 10; i++) data[i] = (float)i;
    struct k3_gguf_writer *w = create("three.gguf");
    check(k3_gguf_put_tensor(w, "a", K3_TYPE_F32, 1, (uint64_t[]){3}, &err));
    check(k3_gguf_put_tensor(w, "b", K3_TYPE_F32, 2, (uint64_t[]){2, 3}, &err));
    check(k3_gguf_put_tensor(w, "c", K3_TYPE_F32, 1, (uint64_t[]){1}, &err));
    check(k3_gguf_put_data(w, data, sizeof data, &err));
    check(k3_gguf_writer_commit(w, &err));
    k3_gguf_writer_free(w);

    struct k3_gguf *gguf = NULL;
    float back[10];
    check(k3_gguf_open(test_path(folder, "three.gguf"), &gguf, &err));
    check(k3_gguf_read(gguf, &gguf->tensors[0], 0, back, 12, &err));
    check(k3_gguf_read(gguf, &gguf->tensors[1], 0, back + 3, 24, &err));
    check(k3_gguf_read(gguf, &gguf->tensors[2], 0, back + 9, 4, &err));
    assert_memory_equal(back, data, sizeof data);
    k3_gguf_close(gguf);
}

/* ---- what is refused ---- */

static void a_model_is_never_overwritten(void **state)
{
    (void)state;
    struct k3_gguf_writer *w = create("model.gguf");
    check(k3_gguf_writer_commit(w, &err));
    k3_gguf_writer_free(w);
    refused(k3_gguf_writer_create(test_path(folder, "model.gguf"), &w, &err), "is not overwritten");
    assert_int_equal(k3_gguf_writer_create("/dev/full", &w, &err), K3_ERR_IO);
    assert_int_equal(k3_gguf_writer_create("/nowhere/model.gguf", &w, &err), K3_ERR_IO);
    assert_int_equal(files_in_folder(), 1);
}

static void what_is_not_committed_leaves_nothing(void **state)
{
    (void)state;
    struct k3_gguf_writer *w = create("gone.gguf");
    check(k3_gguf_put_tensor(w, "a", K3_TYPE_F32, 1, (uint64_t[]){2}, &err));
    check(k3_gguf_put_data(w, (float[]){1}, 4, &err));
    refused(k3_gguf_writer_commit(w, &err), "0 of 1 tensors have all their bytes");
    k3_gguf_writer_free(w);
    assert_int_equal(files_in_folder(), 0);
    k3_gguf_writer_free(NULL);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    struct k3_gguf_writer *w = create("wrong.gguf");
    const uint64_t one[] = {1}, row[] = {33}, none[] = {4, 0}, huge[] = {UINT64_MAX / 8, 16};
    char long_name[80];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[79] = 0;
    refused(k3_gguf_put_u32(w, "", 1, &err), "1 to 65535 are allowed");
    refused(k3_gguf_put_u32(w, "tab\there", 1, &err), "byte 0x09");
    refused(k3_gguf_put_u32(w, "general.alignment", 64, &err), "cannot be set");
    refused(k3_gguf_put_tensor(w, long_name, K3_TYPE_F32, 1, one, &err), "79 bytes; 1 to 63");
    refused(k3_gguf_put_tensor(w, "a", K3_TYPE_F32, 5, one, &err), "has 5 dimensions");
    refused(k3_gguf_put_tensor(w, "a", K3_TYPE_F32, 2, none, &err), "dimension 1 of size 0");
    assert_int_equal(k3_gguf_put_tensor(w, "a", K3_TYPE_Q8_0, 1, row, &err), K3_ERR_FORMAT);
    assert_int_equal(k3_gguf_put_tensor(w, "a", K3_TYPE_F32, 2, huge, &err), K3_ERR_FORMAT);
    k3_gguf_writer_free(w);

    w = create("wrong.gguf");
    check(k3_gguf_put_u32(w, "same", 1, &err));
    check(k3_gguf_put_u32(w, "between", 1, &err));
    check(k3_gguf_put_bool(w, "same", true, &err));
    refused(k3_gguf_writer_commit(w, &err), "key same is added twice");
    k3_gguf_writer_free(w);

    w = create("wrong.gguf");
    check(k3_gguf_put_tensor(w, "t", K3_TYPE_F32, 1, one, &err));
    refused(k3_gguf_put_u32(w, "late", 1, &err), "after a tensor");
    check(k3_gguf_put_tensor(w, "t", K3_TYPE_F16, 1, one, &err));
    refused(k3_gguf_put_data(w, "1234", 4, &err), "tensor t is added twice");
    k3_gguf_writer_free(w);

    w = create("wrong.gguf");
    check(k3_gguf_put_tensor(w, "t", K3_TYPE_F32, 1, one, &err));
    refused(k3_gguf_put_data(w, "12345", 5, &err), "1 bytes more than the tensors have");
    refused(k3_gguf_put_tensor(w, "u", K3_TYPE_F32, 1, one, &err), "after data was written");
    k3_gguf_writer_free(w);
    assert_int_equal(files_in_folder(), 0);
}

/* A limit on the size of files fails a write as a full disk does. */
static void a_full_disk_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    struct rlimit before, limit;
    static const unsigned char data[64 * 1024];
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 40000;

    struct k3_gguf_writer *w = create("full.gguf");
    check(k3_gguf_put_tensor(w, "t", K3_TYPE_F32, 1, (uint64_t[]){sizeof data / 4}, &err));
    setrlimit(RLIMIT_FSIZE, &limit);
    k3_status status = k3_gguf_put_data(w, data, sizeof data, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, K3_ERR_IO);
    assert_non_null(strstr(err.message, "full.gguf: cannot be written: File too large"));
    k3_gguf_writer_free(w);
    assert_int_equal(files_in_folder(), 0);
}

static void a_model_that_the_drive_has_no_room_for_is_refused_at_once(void **state)
{
    (void)state;
    static const unsigned char data[32];
    struct k3_gguf_writer *w = create("huge.gguf");
    check(k3_gguf_put_tensor(w, "t", K3_TYPE_F32, 1, (uint64_t[]){(uint64_t)1 << 58}, &err));
    assert_int_equal(k3_gguf_put_data(w, data, sizeof data, &err), K3_ERR_IO);
    assert_non_null(strstr(err.message, "huge.gguf: needs 1152921504606.8 MB, but its file system has only"));
    k3_gguf_writer_free(w);
    assert_int_equal(files_in_folder(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_kind_of_key_comes_back),
        TEST(a_copy_of_a_model_holds_the_same),
        TEST(one_piece_may_hold_several_tensors),
        TEST(a_model_is_never_overwritten),
        TEST(what_is_not_committed_leaves_nothing),
        TEST(mistakes_are_told),
        TEST(a_full_disk_is_told_and_leaves_nothing),
        TEST(a_model_that_the_drive_has_no_room_for_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
