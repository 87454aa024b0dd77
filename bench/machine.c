/* machine.c - the record of the machine, and its noise. */
#include "machine.h"

#include "base/clock.h"
#include "base/cpu.h"
#include "common/json.h"
#include "common/program.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

k3_status k3_machine_kernels(struct k3_error *err)
{
    struct k3_error reason;
    if (k3_kernels_use(getenv("K3_CPU"), &reason) == K3_OK) return K3_OK;
    return k3_fail(err, K3_ERR_ARGUMENT, "K3_CPU: %s", reason.message);
}

/* ---- record ---- */

static json_t *cpu_name(void)
{
    char line[512] = "", *value = NULL;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !value && fgets(line, sizeof line, file))
        if (strncmp(line, "model name", 10) == 0) value = strchr(line, ':');
    if (file) fclose(file);
    if (value) value += 1 + strspn(value + 1, " ");
    size_t n = value ? strcspn(value, "\n") : 0;
    return n ? k3_json_text(value, n) : json_string("unknown");
}

/* A processor counts if it is the first of those that share its core. */
static bool is_first_of_core(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &first) != 1) first = cpu;
    if (file) fclose(file);
    return first == cpu;
}

int k3_machine_cores(void)
{
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return k3_cpu_count();
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && is_first_of_core(cpu)) n++;
    return n ? n : k3_cpu_count();
}

uint64_t k3_machine_last_cache(void)
{
    long third = sysconf(_SC_LEVEL3_CACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return third > 0 ? (uint64_t)third : second > 0 ? (uint64_t)second : 0;
}

json_t *k3_machine_json(void)
{
    struct utsname system = {0};
    uname(&system);
    return json_pack("{s:o, s:i, s:i, s:s, s:s, s:s, s:s, s:s}", "cpu", cpu_name(), "cores",
                     k3_machine_cores(), "processors", k3_cpu_count(), "kernel", system.release, "compiler",
                     K3_COMPILER, "flags", K3_COMPILER_FLAGS, "version", k3_version(), "kernels",
                     k3_kernels_best()->name);
}

/* ---- model ---- */

/* FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static k3_status hash_header(const struct k3_file *file, uint64_t n, uint64_t *hash, struct k3_error *err)
{
    unsigned char part[65536];
    uint64_t size = file->size;
    k3_status status = K3_OK;
    *hash = hash_bytes(*hash, &size, sizeof size);
    for (uint64_t at = 0; at < n && status == K3_OK; at += sizeof part) {
        size_t bytes = n - at < sizeof part ? (size_t)(n - at) : sizeof part;
        status = k3_file_read(file, at, part, bytes, err);
        if (status == K3_OK) *hash = hash_bytes(*hash, part, bytes);
    }
    return status;
}

/* Where the first tensor of a shard is: what lies before it is the header. */
static uint64_t header_bytes(const struct k3_gguf *gguf, uint32_t shard)
{
    uint64_t end = gguf->shards[shard].size;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        const struct k3_gguf_tensor *t = &gguf->tensors[i];
        if (t->shard == shard && t->offset < end) end = t->offset;
    }
    return end;
}

k3_status k3_machine_model_hash(const char *path, json_t **out, struct k3_error *err)
{
    struct k3_gguf *gguf;
    uint64_t hash = 0xcbf29ce484222325u;
    char text[32];
    k3_status status = k3_gguf_open(path, &gguf, err);
    if (status != K3_OK) return status;
    for (uint32_t i = 0; i < gguf->n_shards && status == K3_OK; i++)
        status = hash_header(&gguf->shards[i], header_bytes(gguf, i), &hash, err);
    k3_gguf_close(gguf);
    if (status != K3_OK) return status;
    snprintf(text, sizeof text, "fnv1a64:%016" PRIx64, hash);
    *out = json_string(text);
    return *out ? K3_OK : k3_fail_memory(err, "the model's hash", 0);
}

/* ---- noise ---- */

/* Above these a result may be somebody else's doing. */
#define MUCH_BUSY   0.2 /* processors */
#define MUCH_SPREAD 0.2 /* of the median */

static double system_busy_seconds(void)
{
    unsigned long long user = 0, nice = 0, system = 0, idle, wait, irq = 0, soft = 0, steal = 0;
    FILE *file = fopen("/proc/stat", "r");
    int n = file ? fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
                          &wait, &irq, &soft, &steal)
                 : 0;
    if (file) fclose(file);
    if (n != 8) return -1;
    return (double)(user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}

static uint64_t own_time_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void k3_noise_begin(struct k3_noise *noise)
{
    *noise = (struct k3_noise){k3_now_ns(), own_time_ns(), system_busy_seconds()};
}

double k3_noise_others(const struct k3_noise *noise)
{
    double busy = system_busy_seconds(), elapsed = (double)(k3_now_ns() - noise->started_ns) / 1e9;
    double own = (double)(own_time_ns() - noise->own_ns) / 1e9;
    if (busy < 0 || noise->busy_s < 0 || elapsed <= 0) return -1;
    double others = (busy - noise->busy_s - own) / elapsed;
    return others > 0 ? others : 0;
}

json_t *k3_noise_json(const struct k3_noise *noise, double spread)
{
    double others = k3_noise_others(noise), load = -1;
    if (getloadavg(&load, 1) != 1) load = -1;
    return json_pack("{s:f, s:f, s:f, s:b}", "others_busy", others, "load_average", load, "spread", spread,
                     "noisy", others > MUCH_BUSY || spread > MUCH_SPREAD);
}

k3_status k3_machine_add(json_t *rows, json_t *noise, struct k3_error *err)
{
    json_t *machine = k3_machine_json(), *row;
    bool done = machine && noise;
    size_t i;
    json_object_del(machine, "kernels");
    json_array_foreach(rows, i, row) {
        done = done && json_object_set(row, "machine", machine) == 0 &&
               json_object_set(row, "noise", noise) == 0;
    }
    json_decref(machine);
    return done ? K3_OK : k3_fail_memory(err, "the results", 0);
}

void k3_noise_warn(const json_t *noise, bool table)
{
    char text[256];
    if (!json_is_true(json_object_get(noise, "noisy"))) return;
    snprintf(text, sizeof text,
             "the machine is noisy: others kept %.1f processors busy (load average %.1f), and repetitions "
             "lie %.0f %% of "
             "their median apart",
             json_real_value(json_object_get(noise, "others_busy")),
             json_real_value(json_object_get(noise, "load_average")),
             100 * json_real_value(json_object_get(noise, "spread")));
    if (table)
        k3_out("\n%s\n", text);
    else if (isatty(STDERR_FILENO))
        k3_say("%s", text);
}
