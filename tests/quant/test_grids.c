/* The code books. */
#include "quant/grids.h"

#include "data.h"

#include <string.h>

static const struct book {
    const char *file;
    const uint16_t *codes;
    unsigned n, group, bits; /* entries; weights in an entry; bits of a digit */
    int8_t weights[8];       /* by digit */
    unsigned n_digits;
} books[] = {
    {"iq1s_grid.bin", k3_grid_iq1s, 2048, 8, 2, {-1, 0, 1}, 3},
    {"iq2xxs_grid.bin", k3_grid_iq2xxs, 256, 8, 2, {8, 25, 43}, 3},
    {"iq2xs_grid.bin", k3_grid_iq2xs, 512, 8, 2, {8, 25, 43}, 3},
    {"iq2s_grid.bin", k3_grid_iq2s, 1024, 8, 2, {8, 25, 43}, 3},
    {"iq3xxs_grid.bin", k3_grid_iq3xxs, 256, 4, 3, {4, 12, 20, 28, 36, 44, 52, 62}, 8},
    {"iq3s_grid.bin", k3_grid_iq3s, 512, 4, 3, {1, 3, 5, 7, 9, 11, 13, 15}, 8},
};
#define N_BOOKS (sizeof books / sizeof *books)

static void codes_ascend_and_use_only_their_digits(void **state)
{
    (void)state;
    for (const struct book *book = books; book < books + N_BOOKS; book++) {
        for (unsigned i = 0; i < book->n; i++) {
            if (i > 0 && book->codes[i] <= book->codes[i - 1]) fail_msg("%s: entry %u", book->file, i);
            assert_int_equal(book->codes[i] >> book->group * book->bits, 0);
            for (unsigned j = 0; j < book->group; j++)
                assert_in_range(book->codes[i] >> book->bits * j & ((1u << book->bits) - 1), 0,
                                book->n_digits - 1);
        }
    }
}

static void codes_stand_for_the_bytes_of_the_tables(void **state)
{
    (void)state;
    for (const struct book *book = books; book < books + N_BOOKS; book++) {
        int8_t *table = read_data(book->file, book->n * book->group);
        for (unsigned i = 0; i < book->n * book->group; i++) {
            unsigned digit =
                book->codes[i / book->group] >> i % book->group * book->bits & ((1u << book->bits) - 1);
            if (book->weights[digit] != table[i])
                fail_msg("%s: byte %u is %d, its code says %d", book->file, i, table[i],
                         book->weights[digit]);
        }
        free(table);
    }
}

static void iq1_weights_are_spread_to_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2048; i++) {
        for (int delta = -1; delta <= 1; delta += 2) {
            uint64_t bytes = k3_grid_iq1(k3_grid_iq1s[i], delta);
            int8_t w[8];
            memcpy(w, &bytes, 8);
            for (int j = 0; j < 8; j++)
                assert_int_equal(w[j], 8 * ((k3_grid_iq1s[i] >> 2 * j & 3) - 1) + delta);
        }
    }
}

static void iq2_weights_are_spread_to_bytes_and_signed(void **state)
{
    (void)state;
    const int weights[] = {8, 25, 43};
    for (unsigned i = 0; i < 1024; i++) {
        for (unsigned signs = 0; signs < 256; signs++) {
            uint64_t bytes = k3_grid_iq2(k3_grid_iq2s[i], (uint8_t)signs);
            int8_t w[8];
            memcpy(w, &bytes, 8);
            for (int j = 0; j < 8; j++) {
                int weight = weights[k3_grid_iq2s[i] >> 2 * j & 3];
                assert_int_equal(w[j], signs >> j & 1 ? -weight : weight);
            }
        }
    }
}

static void iq3_digits_have_their_weights(void **state)
{
    (void)state;
    for (unsigned digit = 0; digit < 8; digit++) {
        assert_int_equal(k3_grid_iq3xxs_weight(digit), books[4].weights[digit]);
        assert_int_equal(k3_grid_iq3s_weight(digit), books[5].weights[digit]);
    }
}

static void the_eighth_sign_makes_their_number_even(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 128; i++) {
        unsigned signs = k3_grid_signs(i), n = 0;
        for (unsigned j = 0; j < 8; j++) n += signs >> j & 1;
        assert_int_equal(signs & 127, i);
        assert_int_equal(n % 2, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_ascend_and_use_only_their_digits),
        cmocka_unit_test(codes_stand_for_the_bytes_of_the_tables),
        cmocka_unit_test(iq1_weights_are_spread_to_bytes),
        cmocka_unit_test(iq2_weights_are_spread_to_bytes_and_signed),
        cmocka_unit_test(iq3_digits_have_their_weights),
        cmocka_unit_test(the_eighth_sign_makes_their_number_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
