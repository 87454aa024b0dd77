/* Pieces: the pattern against written cases and against a second form of the rules. */
#include "reference_split.h"
#include "random.h"
#include "text/text_internal.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static pcre2_code *code;
static struct char_class *classes;

static int set_up(void **state)
{
    (void)state;
    classes = load_classes(K3_TEST_DATA "/text/kimi_classes.txt");
    return k3_split_compile(&code, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    pcre2_code_free(code);
    free(classes);
    return 0;
}

static void pieces_of_the_written_cases(void **state)
{
    (void)state;
    FILE *file = fopen(K3_TEST_DATA "/text/pretokenize_cases.jsonl", "r");
    char line[4096];
    struct k3_splitter splitter;
    size_t n_cases = 0;
    assert_non_null(file);
    assert_int_equal(k3_splitter_init(&splitter, code, NULL), K3_OK);
    while (fgets(line, sizeof line, file)) {
        json_t *root = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(root);
        json_t *text = json_object_get(root, "text"), *pieces = json_object_get(root, "pieces");
        size_t at = 0, n = json_string_length(text), length, i = 0;
        for (; at < n; at += length, i++) {
            assert_int_equal(k3_split_next(&splitter, json_string_value(text) + at, n - at, &length, NULL),
                             K3_OK);
            json_t *piece = json_array_get(pieces, i);
            if (json_string_length(piece) != length ||
                memcmp(json_string_value(piece), json_string_value(text) + at, length))
                fail_msg("%s: piece %zu is \"%.*s\", expected \"%s\"", line, i, (int)length,
                         json_string_value(text) + at, json_string_value(piece));
        }
        assert_int_equal(i, json_array_size(pieces));
        json_decref(root);
        n_cases++;
    }
    assert_int_equal(n_cases, 49);
    k3_splitter_free(&splitter);
    fclose(file);
}

static size_t encode(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n) | c);
    return n;
}

static bool matches(const pcre2_code *class, uint32_t c)
{
    char text[4];
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    bool yes = pcre2_match(class, (PCRE2_SPTR)text, encode(c, text), 0, 0, match, NULL) > 0;
    pcre2_match_data_free(match);
    return yes;
}

static pcre2_code *compile(const char *pattern)
{
    int error;
    PCRE2_SIZE offset;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, NULL);
    assert_non_null(c);
    return c;
}

/* So only characters that the library does not know can be split otherwise than Unicode 17 says. */
static void the_library_and_the_table_agree_on_every_character_it_knows(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "\\p{Cn}", "\\p{sc:Han}", "[\\p{Lu}\\p{Lt}]", "\\p{Ll}", "[\\p{Lm}\\p{Lo}]", "\\p{M}", "\\p{N}"};
    static const char kinds[] = "??Ulomn";
    pcre2_code *c[7];
    for (int i = 0; i < 7; i++) c[i] = compile(patterns[i]);
    for (uint32_t code_point = 0; code_point < N_CODES; code_point++) {
        if (code_point >= 0xd800 && code_point < 0xe000) continue;
        if (code_point >= 0x40000 && code_point < 0xe0000) continue; /* nothing is assigned there */
        if (matches(c[0], code_point)) continue;
        char kind = 'p';
        for (int i = 2; i < 7; i++)
            if (matches(c[i], code_point)) kind = kinds[i];
        struct char_class want = classes[code_point];
        if (want.kind == 'w') want.kind = 'p';     /* spelled out in the pattern */
        if (code_point == 0x295) want.kind = kind; /* Ll before Unicode 17, Lo since */
        if (want.kind != kind || want.han != matches(c[1], code_point))
            fail_msg("U+%04X is %c%s in the library, %c%s in the table", code_point, kind,
                     matches(c[1], code_point) ? "H" : "", want.kind, want.han ? "H" : "");
    }
    for (int i = 0; i < 7; i++) pcre2_code_free(c[i]);
}

static void white_space_is_that_of_the_table_and_four_separators(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < N_CODES; c++)
        if (k3_is_space(c) != (classes[c].kind == 'w' || (c >= 0x1c && c <= 0x1f))) fail_msg("U+%04X", c);
}

/* What is awkward: both sides of every distinction the pattern makes. */
static const uint32_t hostile[] = {
    ' ',     ' ',    '\n',   '\r',    '\t',    0x0b,     0x0c,   0x1c,    0x1f,    0x85,    0xa0,
    0x1680,  0x180e, 0x2003, 0x200b,  0x2028,  0x202f,   0x3000, 0xfeff,  '\'',    '\'',    's',
    'S',     0x17f,  't',    'T',     'r',     'e',      'E',    'v',     'm',     'l',     'L',
    'd',     'D',    'R',    'a',     'B',     'x',      0xe9,   0xc9,    0x1c5,   0x2b0,   0x5d0,
    0x301,   0x93f,  0x20dd, '0',     '7',     '9',      0x661,  0x2167,  0xbd,    0xb2,    '.',
    '-',     '_',    '$',    '"',     '/',     '{',      0x2019, 0x4e00,  0x6f22,  0x3005,  0x3007,
    0x3021,  0x303b, 0x2e80, 0x2f00,  0x3042,  0x30ab,   0x30fb, 0x30fc,  0xac00,  0xe01,   0x1f44d,
    0x1f3fd, 0x200d, 0xfe0f, 0x20000, 0x2a700, 0xff0c,   0x3001, 0x16ff0, 0x212a,  0x131,   0x130,
    0x1d7d8, 0xe000, 0,      0x7f,    0xfffd,  0x10ffff, 0x302a, 0xa7f2,  0x1e900, 0x10400,
};
#define N_HOSTILE (sizeof hostile / sizeof *hostile)

/* Half of a text comes from a handful of the characters, so that runs and mixtures of few kinds occur. */
static size_t random_text(struct test_random *random, uint32_t *codes, char *text, size_t *offsets,
                          size_t most)
{
    size_t n = 1 + test_random_below(random, (uint32_t)most), bytes = 0;
    uint32_t few[4];
    for (int i = 0; i < 4; i++) few[i] = hostile[test_random_below(random, N_HOSTILE)];
    bool narrow = test_random_below(random, 2);
    for (size_t i = 0; i < n; i++) {
        codes[i] = narrow ? few[test_random_below(random, 4)] : hostile[test_random_below(random, N_HOSTILE)];
        offsets[i] = bytes;
        bytes += encode(codes[i], text + bytes);
    }
    offsets[n] = bytes;
    return n;
}

static void compare_random_texts(struct k3_splitter *splitter, uint64_t seed, int count)
{
    struct test_random random = {seed};
    uint32_t codes[40];
    size_t offsets[41];
    char text[160];
    for (int round = 0; round < count; round++) {
        struct reference r = {.table = classes, .c = codes};
        r.n = random_text(&random, codes, text, offsets, 40);
        for (size_t p = 0, length; p < r.n;) {
            size_t end = reference_piece(&r, p), want = offsets[end] - offsets[p];
            assert_int_equal(
                k3_split_next(splitter, text + offsets[p], offsets[r.n] - offsets[p], &length, NULL), K3_OK);
            if (length != want) {
                for (size_t i = 0; i < r.n; i++) print_error("%sU+%04X", i == p ? " [" : " ", codes[i]);
                fail_msg("text %d: the piece at character %zu has %zu bytes, the reference %zu", round, p,
                         length, want);
            }
            p = end;
        }
    }
}

static void pieces_are_those_of_the_reference_on_random_texts(void **state)
{
    (void)state;
    const char *count = getenv("K3_TEST_SPLIT_TEXTS"); /* for a longer run by hand */
    struct k3_splitter splitter;
    pcre2_code *unknown = compile("\\p{Cn}");
    for (size_t i = 0; i < N_HOSTILE; i++)
        if (hostile[i] != 0x10ffff) assert_false(matches(unknown, hostile[i]));
    pcre2_code_free(unknown);

    assert_int_equal(k3_splitter_init(&splitter, code, NULL), K3_OK);
    compare_random_texts(&splitter, 1, count ? atoi(count) : 20000);
    splitter.options |= PCRE2_NO_JIT;
    compare_random_texts(&splitter, 2, 4000);
    k3_splitter_free(&splitter);
}

/* Characters of every class in runs as long as the long-input rule leaves them, alone and before another. */
static void long_runs_are_split_as_by_the_reference(void **state)
{
    (void)state;
    enum { N = 25000 };
    static const uint32_t kinds[] = {'a', 'A',  0x5d0,  0x301, 0x4e00,  '1', '.',
                                     ' ', '\n', 0x3000, 0x1c5, 0x16ff0, '\''};
    uint32_t *codes = malloc((N + 2) * sizeof *codes);
    char *text = malloc(4 * (N + 2));
    size_t *offsets = malloc((N + 3) * sizeof *offsets);
    const size_t n_kinds = sizeof kinds / sizeof *kinds;
    for (int jit = 0; jit < 2; jit++) {
        struct k3_splitter splitter;
        assert_int_equal(k3_splitter_init(&splitter, code, NULL), K3_OK);
        if (!jit) splitter.options |= PCRE2_NO_JIT;
        for (size_t k = 0; k < n_kinds * n_kinds; k++) {
            struct reference r = {.table = classes, .c = codes, .n = N + 2};
            size_t bytes = 0;
            for (size_t i = 0; i < r.n; i++) {
                codes[i] = i < N ? kinds[k / n_kinds] : kinds[k % n_kinds];
                offsets[i] = bytes;
                bytes += encode(codes[i], text + bytes);
            }
            offsets[r.n] = bytes;
            for (size_t p = 0, length; p < r.n;) {
                size_t end = reference_piece(&r, p);
                assert_int_equal(
                    k3_split_next(&splitter, text + offsets[p], bytes - offsets[p], &length, NULL), K3_OK);
                assert_int_equal(length, offsets[end] - offsets[p]);
                p = end;
            }
        }
        k3_splitter_free(&splitter);
    }
    free(codes);
    free(text);
    free(offsets);
}

/* The pattern itself needs no stack for its runs; this one needs some for each letter. */
static void a_jit_without_stack_is_helped_and_a_limit_is_an_error(void **state)
{
    (void)state;
    enum { N = 20000 };
    static char text[N];
    memset(text, 'a', N);
    struct k3_error err;
    struct k3_splitter splitter;
    pcre2_code *deep = compile("(?:(a)|(b))+");
    pcre2_jit_compile(deep, PCRE2_JIT_COMPLETE);
    assert_int_equal(k3_splitter_init(&splitter, deep, NULL), K3_OK);
    pcre2_jit_stack_free(splitter.stack);
    splitter.stack = pcre2_jit_stack_create(4096, 4096, NULL);
    pcre2_jit_stack_assign(splitter.context, NULL, splitter.stack);

    size_t length = 0;
    int rc = pcre2_match(deep, (PCRE2_SPTR)text, N, 0, 0, splitter.match, splitter.context);
    assert_true(rc == PCRE2_ERROR_JIT_STACKLIMIT || !splitter.stack);
    assert_int_equal(k3_split_next(&splitter, text, N, &length, &err), K3_OK);
    assert_int_equal(length, N);

    pcre2_set_match_limit(splitter.context, 10);
    assert_int_equal(k3_split_next(&splitter, text, N, &length, &err), K3_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "match limit"));
    k3_splitter_free(&splitter);
    pcre2_code_free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_the_written_cases),
        cmocka_unit_test(the_library_and_the_table_agree_on_every_character_it_knows),
        cmocka_unit_test(white_space_is_that_of_the_table_and_four_separators),
        cmocka_unit_test(pieces_are_those_of_the_reference_on_random_texts),
        cmocka_unit_test(long_runs_are_split_as_by_the_reference),
        cmocka_unit_test(a_jit_without_stack_is_helped_and_a_limit_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
