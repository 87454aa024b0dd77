/* Sessions: going back, copies, limits, cancelling; and that speed settings never change a bit. */
#include "reference.h"

#include "gguf/gguf.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODELS            K3_TEST_DATA "/fixtures/models"
#define ERR(call, status) assert_int_equal((call), (status))

enum { N = 60 };
static int32_t ids[N];
static uint32_t n_vocab;

static struct k3_model *model_a(bool exact)
{
    struct k3_model *model = open_model(MODELS "/k3-tiny-a-q8_0-mxfp4.gguf", exact, 2);
    struct k3_model_info info;
    k3_model_get_info(model, &info);
    n_vocab = info.n_vocab;
    return model;
}

static float *new_row(void)
{
    float *row = calloc(n_vocab, sizeof *row);
    assert_non_null(row);
    return row;
}

/* Feeds tokens [from, to) in one call and returns the last one's logits. */
static float *feed(struct k3_session *s, size_t from, size_t to)
{
    struct k3_error err;
    float *row = new_row();
    if (k3_session_feed(s, ids + from, to - from, NULL, 1, row, &err) != K3_OK) fail_msg("%s", err.message);
    return row;
}

static void assert_same_row(float *a, float *b)
{
    assert_memory_equal(a, b, n_vocab * sizeof *a);
    free(a);
    free(b);
}

static void wanted_rows_are_the_rows_of_all(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    float *all = prefill(model, ids, N, 16);
    struct k3_session *s = new_session(model, 16);
    const uint32_t rows[] = {0, 3, 15, 16, 47, 59};
    float *some = calloc(6 * n_vocab, sizeof *some);
    ERR(k3_session_feed(s, ids, N, rows, 6, some, &err), K3_OK);
    for (size_t i = 0; i < 6; i++)
        assert_memory_equal(some + i * n_vocab, all + rows[i] * n_vocab, n_vocab * sizeof *all);

    k3_session_reset(s);
    assert_int_equal(k3_session_length(s), 0);
    ERR(k3_session_feed(s, ids, N, NULL, 3, some, &err), K3_OK); /* the last three */
    assert_memory_equal(some, all + (N - 3) * n_vocab, 3 * n_vocab * sizeof *all);
    ERR(k3_session_feed(s, ids, 5, NULL, 0, NULL, &err), K3_OK); /* none */
    assert_int_equal(k3_session_length(s), N + 5);
    assert_memory_equal(k3_session_tokens(s), ids, N * sizeof *ids);
    ERR(k3_session_feed(s, ids, 0, NULL, 0, NULL, &err), K3_OK); /* nothing */
    free(some);
    free(all);
    k3_session_free(s);
    k3_model_close(model);
}

static void resuming_is_exact(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    struct k3_session *s = new_session(model, 0), *fresh = new_session(model, 0);
    size_t kept;
    free(feed(s, 0, 20));
    ERR(k3_session_checkpoint(s, &err), K3_OK);
    free(feed(s, 20, 35));
    ERR(k3_session_checkpoint(s, &err), K3_OK);
    free(feed(s, 35, 40));

    /* The same history and more: nothing is lost. */
    ERR(k3_session_resume(s, ids, 50, &kept, &err), K3_OK);
    assert_int_equal(kept, 40);

    /* A history that leaves ours at token 30 goes back to the checkpoint at 20. */
    int32_t other[N];
    memcpy(other, ids, sizeof ids);
    other[30] = (ids[30] + 1) % 256;
    ERR(k3_session_resume(s, other, N, &kept, &err), K3_OK);
    assert_int_equal(kept, 20);
    assert_int_equal(k3_session_length(s), 20);
    float *resumed = new_row(), *plain = new_row();
    ERR(k3_session_feed(s, other + 20, N - 20, NULL, 1, resumed, &err), K3_OK);
    ERR(k3_session_feed(fresh, other, 20, NULL, 0, NULL, &err), K3_OK);
    ERR(k3_session_feed(fresh, other + 20, N - 20, NULL, 1, plain, &err), K3_OK);
    assert_same_row(resumed, plain);

    /* The checkpoint at 35 was of another history and is gone. */
    ERR(k3_session_resume(s, ids, 40, &kept, &err), K3_OK);
    assert_int_equal(kept, 20);

    /* The whole of what is there: one token at least must be left to feed. */
    ERR(k3_session_resume(s, ids, 20, &kept, &err), K3_OK);
    assert_int_equal(kept, 0);
    k3_session_free(s);
    k3_session_free(fresh);
    k3_model_close(model);
}

static void the_oldest_checkpoint_goes_first(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    struct k3_session *s;
    struct k3_session_options options = {.max_checkpoints = 2};
    size_t kept;
    ERR(k3_session_create(model, &options, &s, &err), K3_OK);
    for (size_t i = 0; i < 3; i++) {
        free(feed(s, 10 * i, 10 * i + 10));
        ERR(k3_session_checkpoint(s, &err), K3_OK);
        ERR(k3_session_checkpoint(s, &err), K3_OK); /* twice at one place is once */
    }
    ERR(k3_session_resume(s, ids, 25, &kept, &err), K3_OK);
    assert_int_equal(kept, 20);
    ERR(k3_session_resume(s, ids, 15, &kept, &err), K3_OK);
    assert_int_equal(kept, 0);
    k3_session_free(s);
    k3_model_close(model);
}

static void a_snapshot_makes_any_session_the_same(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false), *stranger = model_a(false);
    struct k3_session *s = new_session(model, 0), *t = new_session(model, 0), *u = new_session(stranger, 0);
    struct k3_snapshot *empty, *snapshot;
    ERR(k3_session_snapshot(s, &empty, &err), K3_OK);
    free(feed(s, 0, 33));
    ERR(k3_session_snapshot(s, &snapshot, &err), K3_OK);
    assert_true(k3_snapshot_bytes(snapshot) > k3_snapshot_bytes(empty));
    float *went_on = feed(s, 33, N);

    int32_t noise[7] = {1, 2, 3, 4, 5, 6, 7};
    ERR(k3_session_feed(t, noise, 7, NULL, 0, NULL, &err), K3_OK);
    ERR(k3_session_restore(t, snapshot, &err), K3_OK);
    assert_int_equal(k3_session_length(t), 33);
    assert_same_row(went_on, feed(t, 33, N));

    float *first = feed(s, 0, 1); /* the old session goes on from where it is */
    assert_int_equal(k3_session_length(s), N + 1);
    ERR(k3_session_restore(s, empty, &err), K3_OK);
    assert_int_equal(k3_session_length(s), 0);
    free(first);
    ERR(k3_session_restore(u, snapshot, &err), K3_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "another model"));
    k3_snapshot_free(empty);
    k3_snapshot_free(snapshot);
    k3_session_free(s);
    k3_session_free(t);
    k3_session_free(u);
    k3_model_close(model);
    k3_model_close(stranger);
}

static void sessions_do_not_see_each_other(void **state)
{
    (void)state;
    struct k3_model *model = model_a(false);
    struct k3_session *a = new_session(model, 0), *b = new_session(model, 0);
    free(feed(a, 0, 10));
    free(feed(b, 30, 50));
    float *mixed = feed(a, 10, 20);
    struct k3_session *alone = new_session(model, 0);
    free(feed(alone, 0, 10));
    assert_same_row(mixed, feed(alone, 10, 20));
    k3_session_free(a);
    k3_session_free(b);
    k3_session_free(alone);
    k3_model_close(model);
}

static void *feed_forty(void *arg)
{
    return feed(arg, 0, 40);
}

static void sessions_may_be_used_by_several_threads(void **state)
{
    (void)state;
    struct k3_model *model = model_a(false);
    struct k3_session *s[4];
    pthread_t threads[4];
    float *rows[4];
    for (int i = 0; i < 4; i++) s[i] = new_session(model, 8);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, feed_forty, s[i]), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], (void **)&rows[i]);
    for (int i = 1; i < 4; i++) assert_memory_equal(rows[i], rows[0], n_vocab * sizeof(float));
    for (int i = 0; i < 4; i++) {
        free(rows[i]);
        k3_session_free(s[i]);
    }
    k3_model_close(model);
}

static void wrong_requests_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    struct k3_session *s;
    struct k3_session_options options = {.context = 20};
    ERR(k3_session_create(model, &options, &s, &err), K3_OK);
    float *row = feed(s, 0, 15);
    ERR(k3_session_feed(s, ids, 6, NULL, 1, row, &err), K3_ERR_FULL);
    assert_string_equal(err.message,
                        "the context of 20 tokens is full: 15 are in it and 6 more were to be fed");
    int32_t bad[2] = {3, (int32_t)n_vocab};
    ERR(k3_session_feed(s, bad, 2, NULL, 1, row, &err), K3_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "token 1 is 512, but the vocabulary ends at 511"));
    bad[0] = -1;
    ERR(k3_session_feed(s, bad, 2, NULL, 1, row, &err), K3_ERR_ARGUMENT);
    ERR(k3_session_feed(s, ids, 2, NULL, 3, row, &err), K3_ERR_ARGUMENT);
    ERR(k3_session_feed(s, ids, 2, NULL, 1, NULL, &err), K3_ERR_ARGUMENT);
    const uint32_t twice[] = {1, 1}, outside[] = {0, 2};
    ERR(k3_session_feed(s, ids, 2, twice, 2, row, &err), K3_ERR_ARGUMENT);
    ERR(k3_session_feed(s, ids, 2, outside, 2, row, &err), K3_ERR_ARGUMENT);
    assert_int_equal(k3_session_length(s), 15);
    free(row);

    struct k3_session *fresh = new_session(model, 0);
    free(feed(fresh, 0, 15));
    assert_same_row(feed(s, 15, 20), feed(fresh, 15, 20));
    k3_session_free(s);
    k3_session_free(fresh);
    options = (struct k3_session_options){.batch = 100000};
    ERR(k3_session_create(model, &options, &s, &err), K3_ERR_ARGUMENT);
    k3_model_close(model);
}

static bool stop_at(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    assert_non_null(what);
    assert_int_equal(total, N);
    return done < *(uint64_t *)ctx;
}

static bool stop_loading(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)what;
    assert_true(done <= total);
    return ++*(int *)ctx < 3;
}

static void cancelling_leaves_what_was_done(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    struct k3_session *s = new_session(model, 10), *fresh = new_session(model, 10);
    uint64_t stop = 20; /* the end of the second batch */
    k3_session_set_progress(s, stop_at, &stop);
    ERR(k3_session_feed(s, ids, N, NULL, 0, NULL, &err), K3_ERR_CANCELLED);
    assert_int_equal(k3_session_length(s), 20);
    k3_session_set_progress(s, NULL, NULL);
    free(feed(fresh, 0, 20));
    assert_same_row(feed(s, 20, N), feed(fresh, 20, N));
    struct k3_stats stats;
    k3_session_get_stats(s, &stats);
    assert_int_equal(stats.prefill_tokens, N);
    assert_true(stats.expert_requests > 0 && stats.expert_bytes > stats.expert_requests);
    k3_session_free(s);
    k3_session_free(fresh);
    k3_model_close(model);

    int calls = 0;
    struct k3_model_options options = {.progress = stop_loading, .progress_ctx = &calls};
    ERR(k3_model_open(MODELS "/k3-tiny-a-f32.gguf", &options, &model, &err), K3_ERR_CANCELLED);
    assert_int_equal(calls, 3);
}

static void cancelling_within_a_batch_leaves_an_empty_session(void **state)
{
    (void)state;
    struct k3_error err;
    struct k3_model *model = model_a(false);
    struct k3_session *s = new_session(model, 30), *fresh = new_session(model, 30);
    uint64_t stop = 40; /* in the second batch */
    k3_session_set_progress(s, stop_at, &stop);
    ERR(k3_session_feed(s, ids, N, NULL, 0, NULL, &err), K3_ERR_CANCELLED);
    assert_non_null(strstr(err.message, "of a batch of 30 tokens"));
    assert_int_equal(k3_session_length(s), 0);
    k3_session_set_progress(s, NULL, NULL);
    assert_same_row(feed(s, 0, N), feed(fresh, 0, N));
    k3_session_free(s);
    k3_session_free(fresh);
    k3_model_close(model);
}

/* A copy of a model whose tensor `name` has the same f16 in place of every scale of its q8_0 blocks. */
static void write_with_scales(const char *from, const char *to, const char *name, uint16_t scale)
{
    struct k3_gguf *gguf;
    assert_int_equal(k3_gguf_open(from, &gguf, NULL), K3_OK);
    const struct k3_gguf_tensor *t = k3_gguf_find_tensor(gguf, name);
    assert_non_null(t);
    size_t n;
    char *bytes = (char *)read_floats(from, &n);
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    for (uint64_t i = 0; i < t->bytes; i += 34) memcpy(bytes + t->offset + i, &scale, sizeof scale);
    assert_int_equal(fwrite(bytes, 1, gguf->bytes, f), gguf->bytes);
    fclose(f);
    free(bytes);
    k3_gguf_close(gguf);
}

static void weights_that_are_no_numbers_are_an_error(void **state)
{
    (void)state;
    const char *tensors[] = {"token_embd.weight", "output.weight", "blk.0.ffn_up.weight",
                             "blk.1.attn_q.weight"};
    char path[] = "/tmp/k3-test-XXXXXX";
    close(mkstemp(path));
    for (int i = 0; i < 4; i++) {
        struct k3_error err;
        write_with_scales(MODELS "/k3-tiny-a-q8_0-mxfp4.gguf", path, tensors[i], 0x7e00);
        struct k3_model *model = open_model(path, false, 1);
        struct k3_session *s = new_session(model, 0);
        float *row = new_row();
        ERR(k3_session_feed(s, ids, 3, NULL, 1, row, &err), K3_ERR_FORMAT);
        assert_non_null(strstr(err.message, "its weights are broken"));
        assert_int_equal(k3_session_length(s), 0);
        free(row);
        k3_session_free(s);
        k3_model_close(model);
    }
    unlink(path);
}

/* Logits of all rows, in the default arithmetic. */
static float *logits_of(const char *path, int threads, uint32_t batch)
{
    struct k3_model *model = open_model(path, false, threads);
    float *logits = prefill(model, ids, N, batch);
    k3_model_close(model);
    return logits;
}

static void thread_count_does_not_change_a_bit(void **state)
{
    (void)state;
    const char *models[] = {MODELS "/k3-tiny-a-q8_0-mxfp4.gguf", MODELS "/k3-tiny-q-q8_0-iq1_m-iq2_xxs.gguf",
                            K3_TEST_MODELS "/k3-tiny-IQ1_M.gguf"};
    const uint32_t batches[] = {0, 1};
    for (size_t m = 0; m < 3; m++) {
        struct k3_model *model = open_model(models[m], false, 1);
        struct k3_model_info info;
        k3_model_get_info(model, &info);
        k3_model_close(model);
        for (size_t b = 0; b < 2; b++) {
            float *one = logits_of(models[m], 1, batches[b]);
            for (int threads = 2; threads <= 7; threads += 5) {
                float *more = logits_of(models[m], threads, batches[b]);
                assert_memory_equal(one, more, N * info.n_vocab * sizeof *one);
                free(more);
            }
            free(one);
        }
    }
}

static void split_set_gives_the_same_bits(void **state)
{
    (void)state;
    float *single = logits_of(MODELS "/k3-tiny-a-q8_0-mxfp4.gguf", 2, 0);
    for (int shard = 1; shard <= 2; shard++) {
        float *split = logits_of(shard == 1 ? MODELS "/split/k3-tiny-a-q8_0-mxfp4-00001-of-00002.gguf"
                                            : MODELS "/split/k3-tiny-a-q8_0-mxfp4-00002-of-00002.gguf",
                                 2, 0);
        assert_memory_equal(single, split, N * 512 * sizeof *single);
        free(split);
    }
    free(single);
}

int main(void)
{
    for (int i = 0; i < N; i++) ids[i] = (i * 37 + 11) % 256;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wanted_rows_are_the_rows_of_all),
        cmocka_unit_test(resuming_is_exact),
        cmocka_unit_test(the_oldest_checkpoint_goes_first),
        cmocka_unit_test(a_snapshot_makes_any_session_the_same),
        cmocka_unit_test(sessions_do_not_see_each_other),
        cmocka_unit_test(sessions_may_be_used_by_several_threads),
        cmocka_unit_test(wrong_requests_are_refused_and_change_nothing),
        cmocka_unit_test(cancelling_leaves_what_was_done),
        cmocka_unit_test(cancelling_within_a_batch_leaves_an_empty_session),
        cmocka_unit_test(weights_that_are_no_numbers_are_an_error),
        cmocka_unit_test(thread_count_does_not_change_a_bit),
        cmocka_unit_test(split_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
