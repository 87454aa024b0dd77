/* Tokens: vocabularies that are no vocabulary, BPE, control names, the long-input rule, and the way back to
 * text. */
#include "random.h"
#include "small_vocab.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static struct k3_tokenizer *small;

static int set_up(void **state)
{
    (void)state;
    return !(small = small_tokenizer());
}

static int tear_down(void **state)
{
    (void)state;
    k3_tokenizer_close(small);
    return 0;
}

/* As code points, in the order of tokenizer.md section 2: what is printable in Latin-1, then U+0100 and on. */
static void the_byte_alphabet_is_the_release_s(void **state)
{
    (void)state;
    static const unsigned ranges[][2] = {{0x21, 0x7e}, {0xa1, 0xac}, {0xae, 0xff}, {0x100, 0x143}};
    char text[256][3];
    size_t n = 0;
    k3_byte_alphabet(text);
    for (size_t r = 0; r < 4; r++)
        for (unsigned code = ranges[r][0]; code <= ranges[r][1]; code++, n++) {
            char want[3] = {(char)code};
            if (code >= 0x80) want[0] = (char)(0xc0 | code >> 6), want[1] = (char)(0x80 | (code & 0x3f));
            assert_memory_equal(text[n], want, 3);
        }
    assert_int_equal(n, 256);
}

static struct k3_tokens tokens_of(const char *text, size_t n, bool special)
{
    struct k3_tokens tokens = {0};
    struct k3_error err;
    if (k3_tokenize(small, text, n, special, &tokens, &err)) fail_msg("%s", err.message);
    return tokens;
}

/* The texts of the tokens, with | between them. */
static void expect_pieces(const char *text, bool special, const char *want)
{
    struct k3_tokens tokens = tokens_of(text, strlen(text), special);
    char got[1024] = "";
    for (size_t i = 0; i < tokens.n; i++) {
        size_t n;
        if (i) strcat(got, "|");
        strcat(got, k3_token_text(small, tokens.ids[i], &n));
    }
    k3_tokens_free(&tokens);
    assert_string_equal(got, want);
}

/* ---- vocabularies ---- */

static void a_broken_vocabulary_is_refused_with_the_token_and_the_reason(void **state)
{
    (void)state;
    static char huge[K3_TOKEN_MAX_BYTES + 1];
    memset(huge, 'a', sizeof huge);
    const struct {
        size_t id;
        struct k3_gguf_string text; /* replaces the token's, if any */
        int32_t type;
        k3_status status;
        const char *message;
    } cases[] = {
        {290, {"", 0}, 3, K3_ERR_FORMAT, "token 290 is empty"},
        {260, {"a b", 3}, 1, K3_ERR_FORMAT, "token 260 has U+0020 in it"},
        {260, {"a\xc5\x84", 3}, 1, K3_ERR_FORMAT, "token 260 has U+0144 in it"},
        {260, {"a\xc2\xad", 3}, 1, K3_ERR_FORMAT, "token 260 has U+00AD in it"},
        {260, {"a\xff", 2}, 1, K3_ERR_FORMAT, "token 260 is not UTF-8 at its byte 1"},
        {260, {"a\xc4", 2}, 1, K3_ERR_FORMAT, "token 260 is not UTF-8 at its byte 1"},
        {260, {"ab\0", 3}, 1, K3_ERR_FORMAT, "token 260 has U+0000 in it"},
        {260, {"ab", 2}, 1, K3_ERR_FORMAT, "tokens 257 and 260 stand for the same 2 bytes"},
        {7, {"zz", 2}, 1, K3_ERR_FORMAT, "no token stands for the single byte 0x28"},
        {7, {0}, 5, K3_ERR_FORMAT, "no token stands for the single byte 0x28"},
        {260, {huge, sizeof huge}, 1, K3_ERR_FORMAT, "token 260 has 4097 bytes"},
        {290, {"[BOS]", 5}, 3, K3_ERR_FORMAT, "both have the name [BOS]"},
        {290, {"\xc3(", 2}, 3, K3_ERR_FORMAT, "the name of token 290 is not UTF-8"},
        {260, {0}, 0, K3_ERR_FORMAT, "token 260 is of type 0"},
        {260, {0}, 7, K3_ERR_FORMAT, "token 260 is of type 7"},
        {260, {0}, -1, K3_ERR_FORMAT, "token 260 is of type -1"},
        {260, {0}, 2, K3_ERR_UNSUPPORTED, "token 260 is of type 2"},
        {260, {0}, 4, K3_ERR_UNSUPPORTED, "token 260 is of type 4"},
        {260, {0}, 6, K3_ERR_UNSUPPORTED, "token 260 is of type 6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct small_vocab v;
        struct k3_error err;
        struct k3_tokenizer *t = NULL;
        small_vocab_fill(&v);
        if (cases[i].text.text) v.tokens[cases[i].id] = cases[i].text;
        v.types[cases[i].id] = cases[i].type;
        assert_int_equal(k3_tokenizer_create(&v.source, &t, &err), cases[i].status);
        assert_null(t);
        if (!strstr(err.message, cases[i].message))
            fail_msg("\"%s\" is not in: %s", cases[i].message, err.message);
    }
}

static void counts_and_eos_out_of_range_are_refused(void **state)
{
    (void)state;
    struct small_vocab v;
    struct k3_error err;
    struct k3_tokenizer *t = NULL;
    small_vocab_fill(&v);
    v.source.eos = (int32_t)v.source.n;
    assert_int_equal(k3_tokenizer_create(&v.source, &t, &err), K3_ERR_FORMAT);
    assert_non_null(strstr(err.message, "the eos token is"));
    v.source.eos = -1;
    v.source.n = 0;
    assert_int_equal(k3_tokenizer_create(&v.source, &t, &err), K3_ERR_FORMAT);
    v.source.n = (size_t)1 << 25;
    assert_int_equal(k3_tokenizer_create(&v.source, &t, &err), K3_ERR_FORMAT);
    assert_non_null(strstr(err.message, "33554432 tokens"));
    k3_tokenizer_close(NULL);
}

static void generation_stops_at_the_named_tokens_and_at_eos(void **state)
{
    (void)state;
    struct small_vocab v;
    struct k3_tokenizer *t;
    small_vocab_fill(&v);
    v.source.eos = 65;
    assert_int_equal(k3_tokenizer_create(&v.source, &t, NULL), K3_OK);
    int n_stops = 0;
    for (int32_t id = -2; id < (int32_t)v.source.n + 2; id++) n_stops += k3_token_is_stop(t, id);
    assert_int_equal(n_stops, 4);
    assert_true(k3_token_is_stop(t, k3_token_find(t, "[EOS]")));
    assert_true(k3_token_is_stop(t, k3_token_find(t, "[EOT]")));
    assert_true(k3_token_is_stop(t, k3_token_find(t, "<|end_of_msg|>")));
    assert_true(k3_token_is_stop(t, 65));
    k3_tokenizer_close(t);
}

static void questions_about_ids_have_answers(void **state)
{
    (void)state;
    size_t n;
    assert_int_equal(k3_tokenizer_size(small), SMALL_VOCAB_SIZE);
    assert_null(k3_token_text(small, -1, &n));
    assert_int_equal(n, 0);
    assert_null(k3_token_text(small, SMALL_VOCAB_SIZE, &n));
    assert_string_equal(k3_token_text(small, 64, &n), "a");
    assert_string_equal(k3_token_text(small, 198, &n), "\n");
    assert_string_equal(k3_token_text(small, 220, &n), " ");
    assert_int_equal(k3_token_find(small, "<|open|>"), 256 + SMALL_VOCAB_N_MERGES + 3);
    assert_int_equal(k3_token_find(small, "<|open|"), -1);
    assert_int_equal(k3_token_find(small, "hello"), -1);
    assert_true(k3_token_is_control(small, k3_token_find(small, "[PAD]")));
    assert_true(k3_token_is_control(small, SMALL_VOCAB_SIZE - 1)); /* an unused id */
    assert_false(k3_token_is_control(small, 64));
    assert_false(k3_token_is_control(small, -1));
}

/* ---- text to tokens ---- */

static void pairs_are_joined_by_rank_and_leftmost_first(void **state)
{
    (void)state;
    expect_pieces("aaaaa", false, "aa|aaa");
    expect_pieces("aabab", false, "aa|b|ab");
    expect_pieces("ababa", false, "abab|a");
    expect_pieces("hello", false, "hello"); /* though he + ll + o has no such derivation: hell + o has */
    expect_pieces("1234", false, "123|4");
    expect_pieces("", false, "");
}

static void control_names_are_text_unless_asked_for(void **state)
{
    (void)state;
    expect_pieces("a<|open|>b", true, "a|<|open|>|b");
    expect_pieces("a<|sep|>", false, "a|<|||s|e|p|||>");
    expect_pieces("<|open<|open|>|>", true, "<|||o|p|e|n|<|open|>|||>");
    expect_pieces("[BOS][EOS]<osagent_mode>[PAD", true, "[BOS]|[EOS]|<osagent_mode>|[|P|A|D");
    expect_pieces("[PAD296]", true, "[|P|A|D|2|9|6|]"); /* an unused id has no spelling */
    expect_pieces("<|reserved_token_7|>", true, "<|reserved_token_7|>");
    /* The text between is its own segment: the space is at its end, so it does not wait for a word. */
    expect_pieces("the  <|open|>  the", true, "the|  |<|open|>| | the");
}

static void of_names_that_begin_alike_the_longest_is_taken(void **state)
{
    (void)state;
    struct small_vocab v;
    struct k3_tokenizer *t;
    small_vocab_fill(&v);
    size_t at = 256 + SMALL_VOCAB_N_MERGES;
    v.tokens[at] = (struct k3_gguf_string){"<x", 2};
    v.tokens[at + 1] = (struct k3_gguf_string){"<xyz", 4};
    v.tokens[at + 2] = (struct k3_gguf_string){"<xyy>", 5};
    assert_int_equal(k3_tokenizer_create(&v.source, &t, NULL), K3_OK);
    const struct {
        const char *text;
        size_t where;
        int32_t id;
    } cases[] = {{"a<xyz", 1, 1}, {"<xy", 0, 0}, {"<x", 0, 0},  {"<<xyy>", 1, 2},
                 {"<xyy", 0, 0},  {"<", 1, -1},  {"<yx", 3, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t id = -1;
        assert_int_equal(k3_controls_search(t, cases[i].text, strlen(cases[i].text), &id), cases[i].where);
        assert_int_equal(id, cases[i].id < 0 ? -1 : cases[i].id + (int32_t)at);
    }
    k3_tokenizer_close(t);
}

/* The rule as it is written: look at all pairs, join the best one, begin again. */
static size_t encode_slowly(const struct k3_tokenizer *t, const char *piece, size_t n, int32_t *ids)
{
    size_t start[512], n_parts = n;
    for (size_t i = 0; i <= n; i++) start[i] = i;
    for (;;) {
        size_t best = n_parts;
        int32_t best_id = INT32_MAX;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            int32_t id = k3_vocab_find(t, piece + start[i], start[i + 2] - start[i]);
            if (id >= 0 && id < best_id) best = i, best_id = id;
        }
        if (best == n_parts) break;
        n_parts--;
        for (size_t i = best + 1; i <= n_parts; i++) start[i] = start[i + 1];
    }
    for (size_t i = 0; i < n_parts; i++) ids[i] = k3_vocab_find(t, piece + start[i], start[i + 1] - start[i]);
    return n_parts;
}

/* A vocabulary of random strings over two letters: tokens with derivations of every shape, and with none. */
static struct k3_tokenizer *random_vocabulary(struct test_random *random)
{
    struct small_vocab v;
    struct k3_tokenizer *t;
    char words[SMALL_VOCAB_N_MERGES][12];
    small_vocab_fill(&v);
    for (size_t i = 0; i < SMALL_VOCAB_N_MERGES; i++) {
        size_t n = 2 + i / 5;
        for (size_t j = 0; j < n; j++) words[i][j] = "ab"[test_random_below(random, 2)];
        words[i][n] = 0;
        v.tokens[256 + i] = (struct k3_gguf_string){words[i], n};
        for (size_t k = 0; k < i; k++) /* of twins, one becomes unused */
            if (strcmp(words[k], words[i]) == 0) v.types[256 + i] = 5;
    }
    assert_int_equal(k3_tokenizer_create(&v.source, &t, NULL), K3_OK);
    return t;
}

static void the_heap_gives_the_tokens_of_the_written_rule(void **state)
{
    (void)state;
    struct test_random random = {3};
    struct k3_bpe bpe = {0};
    for (int round = 0; round < 30; round++) {
        struct k3_tokenizer *t = random_vocabulary(&random);
        for (int text = 0; text < 200; text++) {
            char piece[256];
            int32_t got[256], want[256];
            size_t n = 1 + test_random_below(&random, text < 150 ? 30 : 256), n_got;
            for (size_t i = 0; i < n; i++) piece[i] = "aaabbbc"[test_random_below(&random, 7)];
            size_t n_want = encode_slowly(t, piece, n, want);
            assert_int_equal(k3_bpe_encode(&bpe, t, piece, n, got, &n_got, NULL), K3_OK);
            assert_int_equal(n_got, n_want);
            assert_memory_equal(got, want, n_got * sizeof *got);
        }
        k3_tokenizer_close(t);
    }
    k3_bpe_free(&bpe);
}

static void input_is_cut_by_the_long_input_rule(void **state)
{
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(N);
    const struct {
        const char *fill; /* repeated: characters of one byte */
        size_t cuts[4];   /* the first parts; 0: not looked at */
    } cases[] = {
        {"a", {25000, 25000, 25000, 25000}},
        {" ", {25000, 25000, 25000, 25000}},
        {"\x1f", {25000, 25000, 25000, 25000}},
        {"a ", {400000, 400000, 200000}},
        {" \x1c\x1d\t\n", {25000, 25000, 25000, 25000}},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (size_t i = 0; i < N; i++) text[i] = cases[c].fill[i % strlen(cases[c].fill)];
        struct k3_chunk_walk walk = {0};
        for (size_t k = 0, at = 0; k < 4 && cases[c].cuts[k]; k++) {
            size_t length = k3_chunk_next(&walk, text + at, N - at);
            assert_int_equal(length, cases[c].cuts[k]);
            at += length;
        }
    }
    /* 10 letters, a space, 25,001 letters: the run begins after the space. A cut at 400,000 begins a new run.
     */
    memset(text, 'a', N);
    text[10] = ' ';
    struct k3_chunk_walk walk = {0};
    size_t at = k3_chunk_next(&walk, text, N);
    assert_int_equal(at, 25011);
    for (int i = 0; i < 14; i++) at += k3_chunk_next(&walk, text + at, N - at);
    assert_int_equal(at, 375011);
    at += k3_chunk_next(&walk, text + at, N - at);
    assert_int_equal(at, 400000);
    assert_int_equal(k3_chunk_next(&walk, text + at, N - at), 25000);
    /* Characters count, not bytes; an ideographic space is white. */
    for (size_t i = 0; i + 3 <= N; i += 3) memcpy(text + i, i ? "\xe3\x81\x82" : "\xe3\x80\x80", 3);
    walk = (struct k3_chunk_walk){0};
    assert_int_equal(k3_chunk_next(&walk, text, N / 3 * 3), 3 * 25001);

    /* And tokens do not cross it: 25,000 = 4 * 6,250 letters, so 25,002 give one token more than 4 * 6,251
     * would. */
    memset(text, 'a', N);
    struct k3_tokens tokens = tokens_of(text, 25002, false);
    assert_int_equal(tokens.n, 6251);
    size_t n;
    assert_string_equal(k3_token_text(small, tokens.ids[6250], &n), "aa");
    k3_tokens_free(&tokens);
    free(text);
}

static void tokens_are_appended_and_broken_bytes_become_replacements(void **state)
{
    (void)state;
    struct k3_tokens tokens = {0};
    assert_int_equal(k3_tokenize(small, "a", 1, false, &tokens, NULL), K3_OK);
    assert_int_equal(k3_tokenize(small, "\xe3\x81", 2, false, &tokens, NULL), K3_OK);
    struct k3_tokens want = tokens_of("\xef\xbf\xbd", 3, false);
    assert_int_equal(tokens.n, 1 + want.n);
    assert_memory_equal(tokens.ids + 1, want.ids, want.n * sizeof *want.ids);
    k3_tokens_free(&want);
    k3_tokens_free(&tokens);
    k3_tokens_free(&tokens);
    assert_int_equal(k3_tokenize(small, NULL, 0, true, &tokens, NULL), K3_OK);
    assert_int_equal(tokens.n, 0);
}

/* A pattern that cannot begin with b stands for what a splitter may fail at. */
static void a_text_that_cannot_be_split_is_an_error_and_leaves_the_list(void **state)
{
    (void)state;
    struct small_vocab v;
    struct k3_tokenizer *t;
    struct k3_error err;
    struct k3_tokens tokens = {0};
    int code;
    PCRE2_SIZE at;
    small_vocab_fill(&v);
    assert_int_equal(k3_tokenizer_create(&v.source, &t, NULL), K3_OK);
    pcre2_code_free(t->split);
    t->split = pcre2_compile((PCRE2_SPTR) "[^b]+", PCRE2_ZERO_TERMINATED, PCRE2_ANCHORED, &code, &at, NULL);
    assert_int_equal(k3_tokenize(t, "aa", 2, false, &tokens, &err), K3_OK);
    assert_int_equal(k3_tokenize(t, "aab", 3, false, &tokens, &err), K3_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "the text cannot be split: no match"));
    assert_int_equal(tokens.n, 1);
    k3_tokens_free(&tokens);
    k3_tokenizer_close(t);
}

/* ---- tokens to text ---- */

/* Beginnings of characters, found by writing all characters, not by rules. Index: the bytes, big endian. */
static uint8_t *known[5]; /* [k]: 1 a proper beginning of k bytes, 2 a whole character */

static void write_all_characters(void)
{
    for (int k = 1; k <= 3; k++) known[k] = calloc((size_t)1 << 8 * k, 1);
    known[4] = calloc((size_t)1 << 24, 1); /* first bytes F0 .. FF are cut off to their low 3 bits */
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xd800 && c < 0xe000) continue;
        int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        uint32_t bytes = c;
        if (n == 2) bytes = 0xc080 | c >> 6 << 8 | (c & 63);
        if (n == 3) bytes = 0xe08080 | c >> 12 << 16 | (c >> 6 & 63) << 8 | (c & 63);
        if (n == 4)
            bytes = 0xf0808080u | c >> 18 << 24 | (c >> 12 & 63) << 16 | (c >> 6 & 63) << 8 | (c & 63);
        for (int k = 1; k < n; k++) known[k][bytes >> 8 * (n - k)] = 1;
        if (n < 4) known[n][bytes] = 2;
    }
}

/* 0: no beginning of a character, 1: a proper one, 2: a whole one. Any three good bytes and a continuation
 * are whole. */
static int look(const unsigned char *s, size_t k)
{
    uint32_t bytes = 0;
    for (size_t i = 0; i < k && i < 3; i++) bytes = bytes << 8 | s[i];
    if (k < 4) return known[k][bytes];
    return known[3][bytes] == 1 && s[3] >= 0x80 && s[3] < 0xc0 ? 2 : 0;
}

static size_t repair_slowly(const unsigned char *s, size_t n, char *out)
{
    size_t n_out = 0;
    for (size_t at = 0; at < n;) {
        size_t best = 1;
        bool whole = false;
        for (size_t k = 1; k <= 4 && at + k <= n; k++) {
            int kind = look(s + at, k);
            if (kind) best = k;
            if (kind == 2) whole = true;
            if (kind != 1) break;
        }
        memcpy(out + n_out, whole ? (const char *)s + at : "\xef\xbf\xbd", whole ? best : 3);
        n_out += whole ? best : 3;
        at += best;
    }
    return n_out;
}

/* All strings of up to four of the bytes at which the rules of UTF-8 change, cut everywhere. */
static void a_stream_is_repaired_alike_however_it_is_cut(void **state)
{
    (void)state;
    static const unsigned char nasty[] = {'a',  0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xdf,
                                          0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf3, 0xf4, 0xf5, 0xff, 0x00};
    const size_t n_nasty = sizeof nasty;
    write_all_characters();
    for (size_t n = 1; n <= 4; n++) {
        size_t n_strings = 1;
        for (size_t i = 0; i < n; i++) n_strings *= n_nasty;
        for (size_t index = 0; index < n_strings; index++) {
            unsigned char s[4];
            char want[16], got[64];
            for (size_t i = 0, rest = index; i < n; i++, rest /= n_nasty) s[i] = nasty[rest % n_nasty];
            size_t n_want = repair_slowly(s, n, want);
            for (size_t cut = 0; cut <= n; cut++) {
                struct k3_utf8_stream stream = {0};
                size_t n_got = k3_utf8_feed(&stream, (char *)s, cut, got);
                assert_int_equal(k3_utf8_valid(got, n_got), n_got);
                n_got += k3_utf8_feed(&stream, (char *)s + cut, n - cut, got + n_got);
                n_got += k3_utf8_end(&stream, got + n_got);
                assert_int_equal(n_got, n_want);
                assert_memory_equal(got, want, n_want);
            }
        }
    }
    for (int k = 1; k <= 4; k++) free(known[k]);
}

static void a_character_over_several_tokens_comes_out_whole(void **state)
{
    (void)state;
    struct k3_detokenizer *d;
    assert_int_equal(k3_detokenizer_create(small, false, &d, NULL), K3_OK);
    struct k3_tokens tokens = tokens_of("a\xf0\x9f\x91\x8d b\xf0\x9f", 8, false);
    char got[64] = "";
    size_t n;
    for (size_t i = 0; i < tokens.n; i++) {
        const char *text = k3_detokenize(d, tokens.ids[i], &n);
        assert_int_equal(k3_utf8_valid(text, n), n);
        strncat(got, text, n);
    }
    assert_string_equal(got, "a\xf0\x9f\x91\x8d b\xef\xbf\xbd");
    k3_detokenize_end(d, &n);
    assert_int_equal(n, 0);

    /* F0 9F is a token: held until its character is whole, or until something proves that it never will be.
     */
    k3_detokenize(d, k3_vocab_find(small, "\xf0\x9f", 2), &n);
    assert_int_equal(n, 0);
    assert_memory_equal(k3_detokenize(d, 64, &n),
                        "\xef\xbf\xbd"
                        "a",
                        4);
    assert_int_equal(n, 4);
    k3_detokenize(d, k3_vocab_find(small, "\xf0\x9f", 2), &n);
    assert_memory_equal(k3_detokenize_end(d, &n), "\xef\xbf\xbd", 3);
    assert_int_equal(n, 3);
    k3_detokenize(d, 100000, &n);
    assert_int_equal(n, 0);
    k3_tokens_free(&tokens);
    k3_detokenizer_free(d);
}

static void every_id_comes_back(void **state)
{
    (void)state;
    for (int32_t id = 0; id < (int32_t)SMALL_VOCAB_SIZE; id++) {
        struct k3_detokenizer *silent, *loud;
        size_t n, n_name;
        const char *name = k3_token_text(small, id, &n_name);
        assert_int_equal(k3_detokenizer_create(small, false, &silent, NULL), K3_OK);
        assert_int_equal(k3_detokenizer_create(small, true, &loud, NULL), K3_OK);
        if (k3_token_is_control(small, id)) {
            k3_detokenize(silent, id, &n);
            assert_int_equal(n, 0);
            assert_memory_equal(k3_detokenize(loud, id, &n), name, n_name);
            assert_int_equal(n, n_name);
        }
        if (k3_utf8_valid(name, n_name) == n_name && id != (int32_t)SMALL_VOCAB_SIZE - 1) {
            struct k3_tokens tokens = tokens_of(name, n_name, k3_token_is_control(small, id));
            assert_int_equal(tokens.n, 1);
            assert_int_equal(tokens.ids[0], id);
            k3_tokens_free(&tokens);
        }
        k3_detokenizer_free(silent);
        k3_detokenizer_free(loud);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_byte_alphabet_is_the_release_s),
        cmocka_unit_test(a_broken_vocabulary_is_refused_with_the_token_and_the_reason),
        cmocka_unit_test(counts_and_eos_out_of_range_are_refused),
        cmocka_unit_test(generation_stops_at_the_named_tokens_and_at_eos),
        cmocka_unit_test(questions_about_ids_have_answers),
        cmocka_unit_test(pairs_are_joined_by_rank_and_leftmost_first),
        cmocka_unit_test(control_names_are_text_unless_asked_for),
        cmocka_unit_test(of_names_that_begin_alike_the_longest_is_taken),
        cmocka_unit_test(the_heap_gives_the_tokens_of_the_written_rule),
        cmocka_unit_test(input_is_cut_by_the_long_input_rule),
        cmocka_unit_test(tokens_are_appended_and_broken_bytes_become_replacements),
        cmocka_unit_test(a_text_that_cannot_be_split_is_an_error_and_leaves_the_list),
        cmocka_unit_test(a_stream_is_repaired_alike_however_it_is_cut),
        cmocka_unit_test(a_character_over_several_tokens_comes_out_whole),
        cmocka_unit_test(every_id_comes_back),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
