/* The remembered number of threads: what is in the file is taken when it fits, and nothing else ever is. */
#include "common/threads.h"

#include "ops/tune.h"
#include "base/cpu.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY "16 processors, avx512, Some Processor 9000"

static char folder[] = "/tmp/k3-threads-XXXXXX";
static int n_measured;

static int measure(void)
{
    n_measured++;
    return 12;
}

/* The one file that is there. */
static void find_file(char path[512])
{
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    *path = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (*entry->d_name != '.') snprintf(path, 512, "%s/%.200s", folder, entry->d_name);
    closedir(dir);
}

static void forget(void)
{
    char path[512];
    for (find_file(path); *path; find_file(path)) assert_int_equal(unlink(path), 0);
}

static void expect(const char *key, int n, bool remembered)
{
    bool was_remembered;
    int before = n_measured;
    assert_int_equal(k3_threads_recall(folder, key, 16, measure, &was_remembered), n);
    assert_int_equal(was_remembered, remembered);
    assert_int_equal(n_measured - before, !remembered);
}

static void write_file(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void it_is_measured_once(void **state)
{
    (void)state;
    char path[512];
    expect(KEY, 12, false);
    expect(KEY, 12, true);
    find_file(path);
    write_file(path, "7 threads: " KEY "\n", strlen("7 threads: " KEY "\n"));
    expect(KEY, 7, true);
    expect("16 processors, avx2, Another", 12, false);
    expect(KEY, 7, true);
    expect("16 processors, avx2, Another", 12, true);
}

static void damaged_files_are_measured_anew(void **state)
{
    (void)state;
    const char *const texts[] = {"",
                                 "12",
                                 "0 threads: " KEY "\n",
                                 "-3 threads: " KEY "\n",
                                 "17 threads: " KEY "\n",
                                 "012 threads: " KEY "\n",
                                 "99999999999999999999999 threads: " KEY "\n",
                                 "12 threads: " KEY,
                                 "12 threads: " KEY "\n\n",
                                 "12 threads: 16 processors, avx2, Some Processor 9000\n",
                                 "%s%n threads: " KEY "\n"};
    char path[512], large[4096];
    forget();
    expect(KEY, 12, false);
    find_file(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_file(path, texts[i], strlen(texts[i]));
        expect(KEY, 12, false);
        expect(KEY, 12, true); /* it was mended */
    }
    memset(large, '1', sizeof large);
    write_file(path, large, sizeof large);
    expect(KEY, 12, false);
    write_file(path, "12\0threads", 10);
    expect(KEY, 12, false);
}

static void what_is_no_file_is_left_alone(void **state)
{
    (void)state;
    char path[512];
    bool remembered;
    find_file(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect(KEY, 12, false);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    expect(KEY, 12, false); /* and does not hang */
    assert_int_equal(unlink(path), 0);

    assert_int_equal(k3_threads_recall("/nowhere/at/all", KEY, 16, measure, &remembered), 12);
    assert_false(remembered);
    assert_int_equal(k3_threads_recall(NULL, KEY, 16, measure, &remembered), 12);
    assert_false(remembered);
}

static void the_choice_is_a_number_of_processors(void **state)
{
    (void)state;
    char line[200];
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    struct k3_thread_choice choice = k3_threads_choose();
    assert_int_equal(choice.n_processors, k3_cpu_count());
    assert_in_range(choice.n, 1, choice.n_processors);
    if (choice.n_processors <= K3_FEW_PROCESSORS) assert_int_equal(choice.n, choice.n_processors);
    assert_non_null(strstr(k3_threads_line(&choice, line, sizeof line), "processors"));
    choice = (struct k3_thread_choice){12, 16, K3_THREADS_REMEMBERED};
    assert_string_equal(
        k3_threads_line(&choice, line, sizeof line),
        "Threads           12 on 16 processors; measured in an earlier run: more are no faster\n");
}

int main(void)
{
    assert_non_null(mkdtemp(folder));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_measured_once),
        cmocka_unit_test(damaged_files_are_measured_anew),
        cmocka_unit_test(what_is_no_file_is_left_alone),
        cmocka_unit_test(the_choice_is_a_number_of_processors),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) != 0 || failed;
}
