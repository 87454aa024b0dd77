/* Broken and hostile GGUF files: each is refused with its own sentence. */
#include "gguf_builder.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What every case starts from: a few keys of different kinds and three tensors. */
static void describe(struct gb *gb)
{
    static const int32_t ints[] = {1, 2, 3};
    static const uint8_t bools[] = {1, 0, 1};
    static const char *const words[] = {"alpha", "beta"};
    gb_init(gb);
    gb_add_string(gb, "general.architecture", "test");
    gb_add_u32(gb, "general.alignment", 32);
    gb_add_bool(gb, "a.bool", true);
    gb_add_array(gb, "an.array", K3_GGUF_I32, ints, 3, sizeof *ints);
    gb_add_array(gb, "some.bools", K3_GGUF_BOOL, bools, 3, 1);
    gb_add_strings(gb, "some.words", words, 2);
    gb_add_tensor(gb, "first", K3_TYPE_F32, 2, (uint64_t[]){30, 2});
    gb_add_tensor(gb, "second", K3_TYPE_Q8_0, 3, (uint64_t[]){64, 2, 3});
    gb_add_tensor(gb, "third", K3_TYPE_F16, 1, (uint64_t[]){8});
}

struct broken {
    const char *name;
    void (*spoil)(struct gb *gb);            /* the description; may be NULL */
    void (*spoil_files)(const char *folder); /* what was written; may be NULL */
    const char *open;                        /* the name to open */
    k3_status status;
    const char *message; /* a part of it */
};

static void set_value(struct gb *gb, const char *key, const void *value, size_t n)
{
    memcpy(gb_key(gb, key)->value, value, n);
}

static void add_to_value(struct gb *gb, const char *key, size_t at, uint64_t n)
{
    uint64_t x;
    memcpy(&x, gb_key(gb, key)->value + at, sizeof x);
    x += n;
    memcpy(gb_key(gb, key)->value + at, &x, sizeof x);
}

/* ---- the first bytes ---- */

static void big_endian_magic(struct gb *gb)
{
    memcpy(gb->magic, "FUGG", 4);
}
static void other_magic(struct gb *gb)
{
    memcpy(gb->magic, "PK\x03\x04", 4);
}
static void big_endian_version(struct gb *gb)
{
    gb->version = 0x03000000;
}
static void version_1(struct gb *gb)
{
    gb->version = 1;
}
static void version_4(struct gb *gb)
{
    gb->version = 4;
}
static void version_0(struct gb *gb)
{
    gb->version = 0;
}
static void many_tensors(struct gb *gb)
{
    gb->extra_tensors = INT64_C(1) << 40;
}
static void negative_tensors(struct gb *gb)
{
    gb->extra_tensors = -4;
}
static void many_keys(struct gb *gb)
{
    gb->extra_keys = INT64_C(1) << 62;
}
static void one_more_tensor(struct gb *gb)
{
    gb->extra_tensors = 1;
}
static void one_less_key(struct gb *gb)
{
    gb->extra_keys = -1; /* then the table of tensors begins with the last key */
}

/* ---- keys ---- */

static void long_key_length(struct gb *gb)
{
    gb_add_raw(gb, "", 0, "\xff\xff\xff\xff\xff\xff\xff\x7f", 8)->key_bytes = 0;
    struct gb_key *key = &gb->keys[gb->n_keys - 2];
    key->kind = K3_GGUF_U64; /* the words' bytes become one u64, then a length made of text */
}
static void empty_key(struct gb *gb)
{
    gb_rename_key(gb, "a.bool", "");
}
static void endless_key(struct gb *gb)
{
    char key[65537];
    memset(key, 'k', sizeof key);
    key[65536] = 0;
    gb_rename_key(gb, "a.bool", key);
}
static void accented_key(struct gb *gb)
{
    gb_rename_key(gb, "a.bool", "a.b\xc3\xb6l");
}
static void key_with_newline(struct gb *gb)
{
    gb_rename_key(gb, "a.bool", "a.\nbool");
}
static void key_twice(struct gb *gb)
{
    gb_add_u32(gb, "a.bool", 7);
}
static void unknown_kind(struct gb *gb)
{
    gb_key(gb, "a.bool")->kind = 13;
}
static void unknown_element_kind(struct gb *gb)
{
    set_value(gb, "an.array", "\x63\x00\x00\x00", 4);
}
static void nested_array(struct gb *gb)
{
    set_value(gb, "an.array", "\x09\x00\x00\x00", 4);
}
static void long_string(struct gb *gb)
{
    add_to_value(gb, "general.architecture", 0, 1000000);
}
static void longest_string(struct gb *gb)
{
    set_value(gb, "general.architecture", "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
}
static void long_array(struct gb *gb)
{
    add_to_value(gb, "an.array", 4, 1000000);
}
static void overflowing_array(struct gb *gb)
{
    add_to_value(gb, "an.array", 4, (UINT64_C(1) << 62) - 3); /* times 4 is 2^64 */
}
static void long_string_array(struct gb *gb)
{
    add_to_value(gb, "some.words", 4, UINT64_C(1) << 60);
}
static void long_string_in_array(struct gb *gb)
{
    add_to_value(gb, "some.words", 12, 1000000);
}
static void bool_of_2(struct gb *gb)
{
    set_value(gb, "a.bool", "\x02", 1);
}
static void bool_of_255_in_array(struct gb *gb)
{
    gb_key(gb, "some.bools")->value[14] = 255;
}

/* ---- alignment ---- */

static void alignment_24(struct gb *gb)
{
    gb_key(gb, "general.alignment")->value[0] = 24;
}
static void alignment_0(struct gb *gb)
{
    gb_key(gb, "general.alignment")->value[0] = 0;
}
static void alignment_of_a_gib(struct gb *gb)
{
    set_value(gb, "general.alignment", "\x00\x00\x00\x40", 4);
}
static void alignment_is_text(struct gb *gb)
{
    gb_drop_key(gb, "general.alignment");
    gb_add_string(gb, "general.alignment", "32");
}
static void alignment_is_negative(struct gb *gb)
{
    gb_drop_key(gb, "general.alignment");
    gb_add_i32(gb, "general.alignment", -32);
}
static void alignment_is_large(struct gb *gb)
{
    static const uint64_t large = UINT64_C(1) << 40;
    gb_drop_key(gb, "general.alignment");
    gb_add_raw(gb, "general.alignment", K3_GGUF_U64, &large, sizeof large);
}

/* ---- tensors ---- */

static void nameless_tensor(struct gb *gb)
{
    gb_rename_tensor(gb, "second", "");
}
static void tensor_name_of_64(struct gb *gb)
{
    gb_rename_tensor(gb, "second", "0123456789012345678901234567890123456789012345678901234567890123");
}
static void tensor_name_with_zero(struct gb *gb)
{
    gb_tensor(gb, "second")->name[3] = 0;
}
static void tensor_twice(struct gb *gb)
{
    gb_rename_tensor(gb, "third", "first");
}
static void no_dimensions(struct gb *gb)
{
    gb_tensor(gb, "second")->n_dims = 0;
}
static void five_dimensions(struct gb *gb)
{
    gb_tensor(gb, "second")->n_dims = 5;
}
static void dimension_of_0(struct gb *gb)
{
    gb_tensor(gb, "second")->ne[1] = 0;
}
static void too_many_weights(struct gb *gb)
{
    struct gb_tensor *t = gb_tensor(gb, "second");
    t->ne[1] = t->ne[2] = UINT64_C(1) << 30;
}
static void too_many_bytes(struct gb *gb)
{
    gb_tensor(gb, "third")->type = K3_TYPE_F64;
    gb_tensor(gb, "third")->ne[0] = UINT64_C(1) << 61;
}
static void cut_block(struct gb *gb)
{
    gb_tensor(gb, "second")->ne[0] = 48;
}
static void withdrawn_type(struct gb *gb)
{
    gb_tensor(gb, "second")->type = 4;
}
static void unknown_type(struct gb *gb)
{
    gb_tensor(gb, "second")->type = 0x80000000;
}
static void set_offset(struct gb *gb, const char *name, uint64_t offset)
{
    gb_tensor(gb, name)->offset = offset;
    gb_tensor(gb, name)->fixed_offset = true;
}
static void odd_offset(struct gb *gb)
{
    set_offset(gb, "second", 16);
}
static void far_offset(struct gb *gb)
{
    set_offset(gb, "second", 1024 * 1024);
}
static void farthest_offset(struct gb *gb)
{
    set_offset(gb, "second", UINT64_MAX - 31);
}
static void overlapping(struct gb *gb)
{
    set_offset(gb, "second", 224); /* "first" has 240 bytes */
}
static void same_place(struct gb *gb)
{
    set_offset(gb, "third", 0);
}
static void one_byte_short(struct gb *gb)
{
    gb->extra_bytes = -1;
}

/* ---- files, after they were written ---- */

static void make_empty(const char *folder)
{
    test_resize(test_path(folder, "m.gguf"), 0);
}
static void keep_3_bytes(const char *folder)
{
    test_resize(test_path(folder, "m.gguf"), 3);
}
static void keep_14_bytes(const char *folder)
{
    test_resize(test_path(folder, "m.gguf"), 14);
}
static void cut_the_third_key(const char *folder)
{
    test_resize(test_path(folder, "m.gguf"), 119);
}
static void keep_half_the_table(const char *folder)
{
    test_resize(test_path(folder, "m.gguf"), 380);
}
static void join_to_itself(const char *folder)
{
    test_append(test_path(folder, "m.gguf"), test_path(folder, "s-00002-of-00003.gguf"));
}

/* A hole of 3 GiB costs nothing to make, and must cost nothing to refuse. */
static void claim_2_gib(const char *folder)
{
    test_patch(test_path(folder, "m.gguf"), 24 + 8 + 20 + 4, "\x00\x00\x00\x80\x00\x00\x00\x00", 8);
    test_resize(test_path(folder, "m.gguf"), UINT64_C(3) << 30);
}
static void remove_the_second(const char *folder)
{
    unlink(test_path(folder, "s-00002-of-00003.gguf"));
}
static void move(const char *folder, const char *from, const char *to)
{
    if (rename(test_path(folder, from), test_path(folder, to)) != 0) abort();
}
static void swap_shards(const char *folder)
{
    move(folder, "s-00002-of-00003.gguf", "x");
    move(folder, "s-00003-of-00003.gguf", "s-00002-of-00003.gguf");
    move(folder, "x", "s-00003-of-00003.gguf");
}
static void claim_2_shards(const char *folder)
{
    move(folder, "s-00001-of-00003.gguf", "s-00001-of-00002.gguf");
    move(folder, "s-00002-of-00003.gguf", "s-00002-of-00002.gguf");
}
static void rename_the_first(const char *folder)
{
    move(folder, "s-00001-of-00003.gguf", "model.gguf");
}
static void join_shards(const char *folder)
{
    test_append(test_path(folder, "s-00001-of-00003.gguf"), test_path(folder, "s-00002-of-00003.gguf"));
    test_append(test_path(folder, "s-00001-of-00003.gguf"), test_path(folder, "s-00003-of-00003.gguf"));
    rename_the_first(folder);
}
static void cut_the_last(const char *folder)
{
    struct gb gb;
    describe(&gb);
    gb.extra_bytes = -32;
    gb_write_split(&gb, test_path(folder, "t"), 3, 1);
    move(folder, "t-00003-of-00003.gguf", "s-00003-of-00003.gguf");
    gb_free(&gb);
}
static void rewrite_the_second(const char *folder, const char *drop, void (*change)(struct gb *gb))
{
    struct gb gb;
    gb_init(&gb);
    gb_add_u16(&gb, "split.no", 1);
    gb_add_u16(&gb, "split.count", 3);
    gb_add_i32(&gb, "split.tensors.count", 3);
    gb_add_tensor(&gb, "second", K3_TYPE_Q8_0, 3, (uint64_t[]){64, 2, 3});
    if (drop) gb_drop_key(&gb, drop);
    if (change) change(&gb);
    gb_write(&gb, test_path(folder, "s-00002-of-00003.gguf"));
    gb_free(&gb);
}
static void drop_split_no(const char *folder)
{
    rewrite_the_second(folder, "split.no", NULL);
}
static void drop_split_count(const char *folder)
{
    rewrite_the_second(folder, "split.count", NULL);
}
static void drop_split_tensors(const char *folder)
{
    rewrite_the_second(folder, "split.tensors.count", NULL);
}
static void split_count_as_text(struct gb *gb)
{
    gb_add_string(gb, "split.count", "3");
}
static void say_split_count_in_words(const char *folder)
{
    rewrite_the_second(folder, "split.count", split_count_as_text);
}
static void split_count_of_4(struct gb *gb)
{
    gb_add_u16(gb, "split.count", 4);
}
static void disagree_on_the_count(const char *folder)
{
    rewrite_the_second(folder, "split.count", split_count_of_4);
}
static void four_tensors(struct gb *gb)
{
    gb_add_i32(gb, "split.tensors.count", 4);
}
static void disagree_on_the_tensors(const char *folder)
{
    rewrite_the_second(folder, "split.tensors.count", four_tensors);
}
static void negative_split_no(struct gb *gb)
{
    gb_add_i32(gb, "split.no", -1);
}
static void number_a_shard_minus_1(const char *folder)
{
    rewrite_the_second(folder, "split.no", negative_split_no);
}
static void one_more(struct gb *gb)
{
    gb_add_tensor(gb, "fourth", K3_TYPE_F32, 1, (uint64_t[]){1});
}
static void add_a_tensor(const char *folder)
{
    rewrite_the_second(folder, NULL, one_more);
}
static void call_it_first(struct gb *gb)
{
    gb_rename_tensor(gb, "second", "first");
}
static void repeat_a_tensor(const char *folder)
{
    rewrite_the_second(folder, NULL, call_it_first);
}
static void give_a_shard_name(const char *folder)
{
    move(folder, "m.gguf", "m-00001-of-00001.gguf");
    move(folder, "m-00001-of-00001.gguf", "s-00001-of-00003.gguf");
}
static void number_9_of_8(const char *folder)
{
    move(folder, "m.gguf", "m-00009-of-00008.gguf");
}
static void number_0_of_0(const char *folder)
{
    move(folder, "m.gguf", "m-00000-of-00000.gguf");
}

#define ONE "m.gguf"
#define SET "s-00001-of-00003.gguf"
#define FMT K3_ERR_FORMAT
#define UNS K3_ERR_UNSUPPORTED

static const struct broken cases[] = {
    {"an_empty_file", NULL, make_empty, ONE, FMT, "m.gguf: the file is empty"},
    {"a_file_of_three_bytes", NULL, keep_3_bytes, ONE, FMT, "is not a GGUF file: it has only 3 bytes"},
    {"another_kind_of_file", other_magic, NULL, ONE, FMT, "is not a GGUF file: it begins with 50 4b 03 04"},
    {"a_reversed_magic", big_endian_magic, NULL, ONE, UNS, "big-endian"},
    {"a_reversed_version", big_endian_version, NULL, ONE, UNS, "big-endian"},
    {"version_0", version_0, NULL, ONE, UNS, "version 0; only 2 and 3"},
    {"version_1", version_1, NULL, ONE, UNS, "version 1, which is too old"},
    {"version_4", version_4, NULL, ONE, UNS, "version 4; only 2 and 3"},
    {"a_cut_preamble", NULL, keep_14_bytes, ONE, FMT,
     "header is cut off: 8 bytes are needed at byte 8 but only 6"},
    {"a_billion_tensors", many_tensors, NULL, ONE, FMT, "header claims 1099511627779 tensors, but only"},
    {"minus_one_tensors", negative_tensors, NULL, ONE, FMT, "header claims 18446744073709551615 tensors"},
    {"a_billion_keys", many_keys, NULL, ONE, FMT, "header claims 4611686018427387910 keys"},
    {"one_tensor_too_many", one_more_tensor, NULL, ONE, FMT, "tensor 4 has a name of 0 bytes; 1 to 63"},
    {"one_key_too_few", one_less_key, NULL, ONE, FMT, "tensor some.words has 9 dimensions"},
    {"keys_that_are_cut_off", NULL, cut_the_third_key, ONE, FMT, "key a.bool is cut off"},
    {"a_key_length_of_text", long_key_length, NULL, ONE, FMT, "key 7 claims"},
    {"a_key_without_name", empty_key, NULL, ONE, FMT, "key 3 has a name of 0 bytes; 1 to 65535"},
    {"a_key_of_64_kib", endless_key, NULL, ONE, FMT, "key 3 has a name of 65536 bytes"},
    {"a_key_that_is_not_ascii", accented_key, NULL, ONE, FMT, "key 3 has byte 0xc3 in its name"},
    {"a_key_with_a_newline", key_with_newline, NULL, ONE, FMT, "key 3 has byte 0x0a in its name"},
    {"a_key_that_appears_twice", key_twice, NULL, ONE, FMT, "key a.bool appears twice"},
    {"a_value_of_unknown_kind", unknown_kind, NULL, ONE, FMT, "key a.bool has a value of unknown kind 13"},
    {"elements_of_unknown_kind", unknown_element_kind, NULL, ONE, FMT,
     "key an.array has elements of unknown kind 99"},
    {"an_array_of_arrays", nested_array, NULL, ONE, FMT, "key an.array is an array of arrays"},
    {"a_string_beyond_the_end", long_string, NULL, ONE, FMT,
     "key general.architecture claims 1000004 bytes of text, but only"},
    {"a_string_of_2_to_64", longest_string, NULL, ONE, FMT, "claims 18446744073709551615 bytes of text"},
    {"an_array_beyond_the_end", long_array, NULL, ONE, FMT, "key an.array claims 1000003 elements, but only"},
    {"an_array_whose_size_overflows", overflowing_array, NULL, ONE, FMT,
     "claims 4611686018427387904 elements"},
    {"strings_beyond_the_end", long_string_array, NULL, ONE, FMT,
     "key some.words claims 1152921504606846978 elements"},
    {"a_string_in_an_array_beyond_the_end", long_string_in_array, NULL, ONE, FMT,
     "key some.words claims 1000005 bytes of text"},
    {"a_header_of_2_gib", NULL, claim_2_gib, ONE, FMT, "of the largest header allowed (1 GiB)"},
    {"a_bool_of_2", bool_of_2, NULL, ONE, FMT, "key a.bool has a bool of value 2"},
    {"a_bool_of_255_in_an_array", bool_of_255_in_array, NULL, ONE, FMT,
     "key some.bools has a bool of value 255"},
    {"alignment_24", alignment_24, NULL, ONE, FMT, "general.alignment is 24; a power of two"},
    {"alignment_0", alignment_0, NULL, ONE, FMT, "general.alignment is 0; a power of two"},
    {"alignment_of_a_gib", alignment_of_a_gib, NULL, ONE, FMT,
     "general.alignment is 1073741824; a power of two up to"},
    {"alignment_as_text", alignment_is_text, NULL, ONE, FMT,
     "general.alignment is of kind string; an integer"},
    {"alignment_below_0", alignment_is_negative, NULL, ONE, FMT, "general.alignment is -32; 0 to 2^32-1"},
    {"alignment_of_a_tib", alignment_is_large, NULL, ONE, FMT,
     "general.alignment is 1099511627776, too large"},
    {"a_tensor_without_name", nameless_tensor, NULL, ONE, FMT, "tensor 2 has a name of 0 bytes"},
    {"a_tensor_name_of_64_bytes", tensor_name_of_64, NULL, ONE, FMT,
     "tensor 2 has a name of 64 bytes; 1 to 63"},
    {"a_tensor_name_with_a_zero", tensor_name_with_zero, NULL, ONE, FMT,
     "tensor 2 has control character 0x00"},
    {"a_tensor_that_appears_twice", tensor_twice, NULL, ONE, FMT,
     "tensor first appears twice, also in m.gguf"},
    {"a_tensor_of_0_dimensions", no_dimensions, NULL, ONE, FMT, "tensor second has 0 dimensions; 1 to 4"},
    {"a_tensor_of_5_dimensions", five_dimensions, NULL, ONE, FMT, "tensor second has 5 dimensions; 1 to 4"},
    {"a_dimension_of_0", dimension_of_0, NULL, ONE, FMT, "tensor second has dimension 1 of size 0"},
    {"2_to_66_weights", too_many_weights, NULL, ONE, FMT,
     "tensor second is impossibly large: 64 x 1073741824"},
    {"2_to_64_bytes", too_many_bytes, NULL, ONE, FMT,
     "tensor third is impossibly large: 2305843009213693952 x 1"},
    {"a_cut_block", cut_block, NULL, ONE, FMT,
     "rows of 48 weights, not a multiple of the block of q8_0 (32)"},
    {"a_withdrawn_type", withdrawn_type, NULL, ONE, UNS, "tensor second has unknown type 4"},
    {"an_unknown_type", unknown_type, NULL, ONE, UNS, "tensor second has unknown type 2147483648"},
    {"a_table_that_is_cut_off", NULL, keep_half_the_table, ONE, FMT, "tensor third is cut off"},
    {"an_offset_off_the_grid", odd_offset, NULL, ONE, FMT,
     "tensor second has offset 16, not a multiple of the alignment"},
    {"an_offset_beyond_the_end", far_offset, NULL, ONE, FMT, "tensor second ends at byte 1049"},
    {"an_offset_that_overflows", farthest_offset, NULL, ONE, FMT,
     "tensor second ends beyond what 64 bits can count"},
    {"overlapping_tensors", overlapping, NULL, ONE, FMT, "inside tensor first which ends at"},
    {"two_tensors_in_one_place", same_place, NULL, ONE, FMT, "which ends at"},
    {"one_byte_missing", one_byte_short, NULL, ONE, FMT,
     "m.gguf: tensor third ends at byte 1104 but the file has 1103"},
    {"two_files_in_one", NULL, join_to_itself, ONE, FMT, "another GGUF begins at byte 1104"},

    {"a_missing_shard", NULL, remove_the_second, SET, K3_ERR_IO,
     "s-00002-of-00003.gguf: shard 2 of 3 is missing"},
    {"swapped_shards", NULL, swap_shards, SET, FMT,
     "s-00002-of-00003.gguf: split.no is 2 (the first is 0), so this is shard 3"},
    {"a_set_renamed_to_fewer_shards", NULL, claim_2_shards, "s-00001-of-00002.gguf", FMT,
     "s-00001-of-00002.gguf: split.count is 3 but the name says 2 shards"},
    {"a_shard_with_a_plain_name", NULL, rename_the_first, "model.gguf", FMT,
     "model.gguf: split.count is 3, but a shard must be named PREFIX-00001-of-00003.gguf"},
    {"shards_joined_into_one_file", NULL, join_shards, "model.gguf", FMT,
     "shards must not be joined into one file"},
    {"a_truncated_last_shard", NULL, cut_the_last, SET, FMT,
     "s-00003-of-00003.gguf: tensor third ends at byte"},
    {"a_shard_without_number", NULL, drop_split_no, SET, FMT,
     "s-00002-of-00003.gguf: key split.no is missing"},
    {"a_shard_without_count", NULL, drop_split_count, SET, FMT,
     "s-00002-of-00003.gguf: key split.count is missing"},
    {"a_shard_without_tensor_count", NULL, drop_split_tensors, SET, FMT,
     "key split.tensors.count is missing"},
    {"a_split_count_of_text", NULL, say_split_count_in_words, SET, FMT, "split.count is of kind string"},
    {"shards_that_disagree_on_the_count", NULL, disagree_on_the_count, SET, FMT,
     "s-00002-of-00003.gguf: split.count is 4 but the name says 3"},
    {"shards_that_disagree_on_the_tensors", NULL, disagree_on_the_tensors, SET, FMT,
     "split.tensors.count is 4 but 3 in the first shard"},
    {"a_negative_shard_number", NULL, number_a_shard_minus_1, SET, FMT, "split.no is -1"},
    {"one_tensor_more_than_counted", NULL, add_a_tensor, SET, FMT,
     "split.tensors.count is 3 but the shards hold 4 tensors"},
    {"a_tensor_in_two_shards", NULL, repeat_a_tensor, SET, FMT, "tensor first appears twice, also in s-0000"},
    {"a_plain_file_with_a_shard_name", NULL, give_a_shard_name, SET, FMT,
     "s-00001-of-00003.gguf: key split.no is missing"},
    {"shard_9_of_8", NULL, number_9_of_8, "m-00009-of-00008.gguf", FMT, "the name says shard 9 of 8"},
    {"shard_0_of_0", NULL, number_0_of_0, "m-00000-of-00000.gguf", FMT, "the name says shard 0 of 0"},
};

/* What a user sees: status 1, nothing on standard output, and on standard error the one sentence. */
static void check_program(const char *path, const struct k3_error *err, const char *name)
{
    char command[1024], seen[1024], expected[K3_MESSAGE_MAX + 16];
    snprintf(command, sizeof command, "'%s' -m '%s' -p x 2>&1", getenv("K3RUN"), path);
    snprintf(expected, sizeof expected, "k3run: %s\n", err->message);
    FILE *program = popen(command, "r");
    assert_non_null(program);
    seen[fread(seen, 1, sizeof seen - 1, program)] = 0;
    int status = pclose(program);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 1 || strcmp(seen, expected) != 0)
        fail_msg("%s: k3run ended with %#x and said '%s'; expected status 1 and '%s'", name, (unsigned)status, seen,
                 expected);
}

static void is_refused(void **state)
{
    const struct broken *broken = *state;
    struct gb gb;
    struct k3_gguf *gguf = NULL;
    struct k3_error err = {0};
    char folder[64];
    test_folder_make(folder);
    describe(&gb);
    gb_write_split(&gb, test_path(folder, "s"), 3, 1);
    if (broken->spoil) broken->spoil(&gb);
    gb_write(&gb, test_path(folder, ONE));
    if (broken->spoil_files) broken->spoil_files(folder);

    k3_status status = k3_gguf_open(test_path(folder, broken->open), &gguf, &err);
    k3_gguf_close(gguf);
    gb_free(&gb);
    if (status != K3_OK) check_program(test_path(folder, broken->open), &err, broken->name);
    test_folder_remove(folder);
    if (status != broken->status || !strstr(err.message, broken->message))
        fail_msg("%s: status %d, '%s'; expected %d, '%s'", broken->name, status, err.message, broken->status,
                 broken->message);
    assert_int_equal(err.status, status);
    assert_null(gguf);
}

#define N_CASES (sizeof cases / sizeof cases[0])

int main(void)
{
    struct CMUnitTest tests[N_CASES] = {0};
    for (size_t i = 0; i < N_CASES; i++) {
        tests[i].name = cases[i].name;
        tests[i].test_func = is_refused;
        tests[i].initial_state = (void *)(uintptr_t)&cases[i];
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
