/* split.c - cut a text into the pieces that BPE works on.
 *
 * The pieces are the matches of the release's pattern (one alternative a line):
 *
 *     [\p{Han}]+
 *     [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|..)?
 *     [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|..)?
 *     \p{N}{1,3}
 *      ?[^\s\p{L}\p{N}]+[\r\n]*
 *     \s*[\r\n]+
 *     \s+(?!\S)
 *     \s+
 *
 * Every text begins with a match, so the pattern is anchored and pieces are taken one after the other.
 *
 * Said in PCRE2 it differs in three places:
 * - There is no &&. Categories partition all code points, so "Lu, Lt, Lm, Lo or M but not Han" is "not Ll, N,
 * P, S, Z, C or Han": one negated class.
 * - \p{Han} means Script_Extensions=Han there; the release means Script=Han.
 * - \s has U+180E in it, which is no White_Space since Unicode 6.3. White_Space is spelled out.
 *
 * Which Unicode version applies is the library's matter: PCRE2 10.42 knows version 14. A character assigned
 * later is to it category Cn and script Unknown, so a letter of a new script or a new ideograph is split like
 * punctuation; and U+0295 is lower case to it (it is Lo from version 17 on). Nothing else differs:
 * tests/text/test_split.c compares the class of every code point that the library knows with the table of
 * version 17. */
#include "text/text_internal.h"

#define SPACE                                                                                                \
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}"   \
    "\\x{3000}"
#define HAN         "\\p{sc:Han}"
#define UPPER       "[^\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define LOWER       "[^\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}" HAN "]"
#define BEFORE      "[^\\r\\n\\p{L}\\p{N}]?"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const char PATTERN[] = "[" HAN "]+"
                              "|" BEFORE UPPER "*" LOWER "+" CONTRACTION /* Word, word */
                              "|" BEFORE UPPER "+" LOWER "*" CONTRACTION /* WORD */
                              "|\\p{N}{1,3}"                             /* 123 */
                              "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"    /* punctuation */
                              "|[" SPACE "]*[\\r\\n]+"                   /* line ends */
                              "|[" SPACE "]+(?![^" SPACE "])" /* blanks but the one before a word */
                              "|[" SPACE "]+";

/* A piece has at most 25,000 characters (the long-input rule) and backtracks over each a few times at most.
 * These are far above that: they stop a pattern that has gone wrong, not a text. */
#define MATCH_LIMIT     100000000
#define JIT_STACK_FIRST ((size_t)32 * 1024)
#define JIT_STACK_MOST  ((size_t)4 * 1024 * 1024)

static k3_status fail_pcre2(struct k3_error *err, k3_status status, const char *what, int code)
{
    PCRE2_UCHAR reason[128] = "unknown error";
    pcre2_get_error_message(code, reason, sizeof reason);
    return k3_fail(err, status, "%s: %s (PCRE2 error %d)", what, (const char *)reason, code);
}

k3_status k3_split_compile(pcre2_code **out, struct k3_error *err)
{
    int code;
    PCRE2_SIZE offset;
    pcre2_code *split = pcre2_compile((PCRE2_SPTR)PATTERN, PCRE2_ZERO_TERMINATED,
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &offset, NULL);
    if (!split)
        return fail_pcre2(err, K3_ERR_UNSUPPORTED, "the pattern that splits text does not compile", code);
    /* Without a JIT the interpreter does the same, slower. */
    pcre2_jit_compile(split, PCRE2_JIT_COMPLETE);
    *out = split;
    return K3_OK;
}

k3_status k3_splitter_init(struct k3_splitter *splitter, const pcre2_code *code, struct k3_error *err)
{
    *splitter = (struct k3_splitter){.code = code, .options = PCRE2_NO_UTF_CHECK};
    splitter->match = pcre2_match_data_create(1, NULL);
    splitter->context = pcre2_match_context_create(NULL);
    if (!splitter->match || !splitter->context) return k3_fail_memory(err, "splitting text", 0);
    pcre2_set_match_limit(splitter->context, MATCH_LIMIT);
    pcre2_set_depth_limit(splitter->context, MATCH_LIMIT);

    /* NULL where there is no JIT or no memory for the stack: then the JIT has 32 KiB of the machine's stack.
     */
    splitter->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_MOST, NULL);
    pcre2_jit_stack_assign(splitter->context, NULL, splitter->stack);
    return K3_OK;
}

void k3_splitter_free(struct k3_splitter *splitter)
{
    pcre2_match_data_free(splitter->match);
    pcre2_match_context_free(splitter->context);
    pcre2_jit_stack_free(splitter->stack);
    *splitter = (struct k3_splitter){0};
}

k3_status k3_split_next(struct k3_splitter *splitter, const char *text, size_t n, size_t *length,
                        struct k3_error *err)
{
    int rc = pcre2_match(splitter->code, (PCRE2_SPTR)text, n, 0, splitter->options, splitter->match,
                         splitter->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(splitter->code, (PCRE2_SPTR)text, n, 0, splitter->options | PCRE2_NO_JIT,
                         splitter->match, splitter->context);
    if (rc == PCRE2_ERROR_NOMEMORY) return k3_fail_memory(err, "splitting text", n);
    if (rc < 0) return fail_pcre2(err, K3_ERR_UNSUPPORTED, "the text cannot be split", rc);
    *length = pcre2_get_ovector_pointer(splitter->match)[1];
    return K3_OK;
}
