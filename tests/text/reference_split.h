/* reference_split.h - the pieces of a text without any regular expression: a second form of what
 * src/text/split.c does, from a table of character classes (Unicode 17) and rules over them. Slow and plain
 * on purpose. */
#ifndef K3_TESTS_REFERENCE_SPLIT_H
#define K3_TESTS_REFERENCE_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* First letter of the class: U Lu Lt, l Ll, o Lm Lo, m M, n N, w White_Space, p the rest. */
struct char_class {
    char kind;
    bool han; /* Script=Han */
};

#define N_CODES 0x110000

static inline struct char_class *load_classes(const char *path)
{
    struct char_class *table = malloc(N_CODES * sizeof *table);
    FILE *file = fopen(path, "r");
    unsigned first, last;
    char kind[4];
    if (!table || !file) abort();
    for (size_t i = 0; i < N_CODES; i++) table[i] = (struct char_class){'p', false};
    while (fscanf(file, "%x %x %3s", &first, &last, kind) == 3)
        for (unsigned c = first; c <= last; c++) table[c] = (struct char_class){kind[0], kind[1] == 'H'};
    fclose(file);
    return table;
}

struct reference {
    const struct char_class *table;
    const uint32_t *c;
    size_t n; /* the end of the segment */
};

static inline char kind_at(const struct reference *r, size_t i)
{
    return i < r->n ? r->table[r->c[i]].kind : 0;
}

static inline bool is_at(const struct reference *r, size_t i, uint32_t c)
{
    return i < r->n && r->c[i] == c;
}

static inline bool han(const struct reference *r, size_t i)
{
    return i < r->n && r->table[r->c[i]].han;
}

static inline bool up(const struct reference *r, size_t i)
{
    char k = kind_at(r, i);
    return (k == 'U' || k == 'o' || k == 'm') && !han(r, i);
}

static inline bool lo(const struct reference *r, size_t i)
{
    char k = kind_at(r, i);
    return (k == 'l' || k == 'o' || k == 'm') && !han(r, i);
}

static inline bool letter(const struct reference *r, size_t i)
{
    char k = kind_at(r, i);
    return k == 'U' || k == 'l' || k == 'o';
}

static inline bool line_end(const struct reference *r, size_t i)
{
    return is_at(r, i, '\r') || is_at(r, i, '\n');
}

/* Both return the end, or 0 for no match. */
static inline size_t word2(const struct reference *r, size_t q)
{
    size_t i = q;
    while (up(r, i)) i++;
    if (lo(r, i)) {
        while (lo(r, i)) i++;
        return i;
    }
    for (; i > q; i--)
        if (lo(r, i - 1)) return i;
    return 0;
}

static inline size_t word3(const struct reference *r, size_t q)
{
    size_t i = q;
    while (up(r, i)) i++;
    if (i == q) return 0;
    while (lo(r, i)) i++;
    return i;
}

static inline bool is_letter(const struct reference *r, size_t i, char lower)
{
    return is_at(r, i, (uint32_t)lower) || is_at(r, i, (uint32_t)(lower - 32)) ||
           (lower == 's' && is_at(r, i, 0x17f));
}

static inline size_t contraction(const struct reference *r, size_t end)
{
    static const char pairs[3][2] = {{'r', 'e'}, {'v', 'e'}, {'l', 'l'}};
    if (!is_at(r, end, '\'')) return end;
    for (int i = 0; i < 3; i++)
        if (is_letter(r, end + 1, pairs[i][0]) && is_letter(r, end + 2, pairs[i][1])) return end + 3;
    for (const char *s = "stmd"; *s; s++)
        if (is_letter(r, end + 1, *s)) return end + 2;
    return end;
}

static inline size_t white_end(const struct reference *r, size_t p)
{
    size_t e = p, after_line = 0;
    for (; kind_at(r, e) == 'w'; e++)
        if (line_end(r, e)) after_line = e + 1;
    if (after_line) return after_line;
    return e == r->n || e == p + 1 ? e : e - 1;
}

/* The end of the piece that begins at p < n. */
static inline size_t reference_piece(const struct reference *r, size_t p)
{
    if (han(r, p)) {
        while (han(r, p)) p++;
        return p;
    }
    bool pre = !line_end(r, p) && !letter(r, p) && kind_at(r, p) != 'n';
    size_t end = pre ? word2(r, p + 1) : 0;
    if (!end) end = word2(r, p);
    if (!end && pre) end = word3(r, p + 1);
    if (!end) end = word3(r, p);
    if (end) return contraction(r, end);

    if (kind_at(r, p) == 'n') {
        end = p + 1;
        while (end < p + 3 && kind_at(r, end) == 'n') end++;
        return end;
    }
    size_t q = is_at(r, p, ' ') ? p + 1 : p;
    for (end = q; end < r->n && kind_at(r, end) != 'w' && !letter(r, end) && kind_at(r, end) != 'n';) end++;
    if (end > q) {
        while (line_end(r, end)) end++;
        return end;
    }
    return white_end(r, p);
}

#endif
