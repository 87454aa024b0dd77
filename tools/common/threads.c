/* threads.c - the number of threads when none is asked for.
 *
 * Each machine has a file of its own, so that machines which share a home do not disturb each other. It holds one line:
 *     12 threads: 16 processors, avx512, AMD Ryzen 9 9950X
 * The line is taken only if all of it is what would be written now; any other content is measured anew. */
#include "common/threads.h"

#include "base/cpu.h"
#include "base/file.h"
#include "base/output.h"
#include "ops/tune.h"
#include "quant/quant.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE_MAX_BYTES 256

/* ---- remembering ---- */

static void write_line(const char *key, int n, char line[LINE_MAX_BYTES])
{
    snprintf(line, LINE_MAX_BYTES, "%d threads: %s\n", n, key);
}

/* FNV-1a; another machine with the same one is told apart by the line. */
static uint64_t hash(const char *text)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (; *text; text++) h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static bool name_file(const char *folder, const char *key, char path[PATH_MAX])
{
    int n = snprintf(path, PATH_MAX, "%s/threads-%016llx", folder, (unsigned long long)hash(key));
    return n > 0 && n < PATH_MAX;
}

/* The number in the file; 0 when there is none that can be used. */
static int recall(const char *path, const char *key, int most)
{
    struct k3_file file = {.fd = -1};
    char text[LINE_MAX_BYTES] = "", line[LINE_MAX_BYTES];
    int n = 0;
    if (k3_file_open(path, &file, NULL) != K3_OK) return 0;
    bool ok = file.size < sizeof text && k3_file_read(&file, 0, text, (size_t)file.size, NULL) == K3_OK;
    k3_file_close(&file);
    if (!ok) return 0;
    for (const char *p = text; *p >= '0' && *p <= '9' && n <= most; p++) n = 10 * n + (*p - '0');
    write_line(key, n, line);
    return n >= 1 && n <= most && strcmp(text, line) == 0 ? n : 0;
}

static void remember(const char *path, const char *key, int n)
{
    struct k3_output output;
    char line[LINE_MAX_BYTES];
    write_line(key, n, line);
    if (k3_output_open(path, &output, NULL) != K3_OK) return;
    if (k3_output_write(&output, line, strlen(line), NULL) == K3_OK)
        k3_output_commit(&output, NULL);
    else
        k3_output_discard(&output);
}

int k3_threads_recall(const char *folder, const char *key, int most, int (*measure)(void), bool *remembered)
{
    char path[PATH_MAX];
    bool named = folder && name_file(folder, key, path);
    int n = named ? recall(path, key, most) : 0;
    *remembered = n != 0;
    if (n) return n;
    n = measure();
    if (named) remember(path, key, n);
    return n;
}

/* ---- this machine ---- */

/* The folder of K3's cache, made if it is not there; false: there is no place for one. */
static bool cache_folder(char folder[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (cache && *cache == '/') /* others are to be ignored: XDG Base Directory Specification */
        n = snprintf(folder, PATH_MAX, "%s", cache);
    else if (home && *home == '/')
        n = snprintf(folder, PATH_MAX, "%s/.cache", home);
    if (n < 0 || n + (int)sizeof "/k3" > PATH_MAX) return false;
    mkdir(folder, 0700);
    strcpy(folder + n, "/k3");
    mkdir(folder, 0700);
    return true;
}

/* The model of the processor, as the system calls it. */
static void name_processor(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "unknown");
    FILE *f = fopen("/proc/cpuinfo", "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(name, size, "%s", colon + 1 + (colon[1] == ' '));
        break;
    }
    fclose(f);
    for (; *name; name++)
        if (!isprint((unsigned char)*name)) *name = '?';
}

struct k3_thread_choice k3_threads_choose(void)
{
    struct k3_thread_choice choice = {.n_processors = k3_cpu_count(), .source = K3_THREADS_ALL};
    choice.n = choice.n_processors;
    if (choice.n <= K3_FEW_PROCESSORS) return choice;

    char folder[PATH_MAX], processor[100], key[160];
    bool remembered;
    name_processor(processor, sizeof processor);
    snprintf(key, sizeof key, "%d processors, %s, %s", choice.n_processors, k3_kernels_best()->name,
             processor);
    choice.n = k3_threads_recall(cache_folder(folder) ? folder : NULL, key, choice.n_processors,
                                 k3_best_threads, &remembered);
    choice.source = remembered ? K3_THREADS_REMEMBERED : K3_THREADS_MEASURED;
    return choice;
}

const char *k3_threads_line(const struct k3_thread_choice *choice, char *out, size_t size)
{
    static const char *const reasons[] = {
        [K3_THREADS_ASKED] = "",
        [K3_THREADS_ALL] = "",
        [K3_THREADS_MEASURED] = "; measured: more are no faster",
        [K3_THREADS_REMEMBERED] = "; measured in an earlier run: more are no faster",
    };
    bool all = choice->n == choice->n_processors;
    snprintf(out, size, "Threads           %d on %d processors%s\n", choice->n, choice->n_processors,
             all ? "" : reasons[choice->source]);
    return out;
}
