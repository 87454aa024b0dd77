/* memory_table.c - the plan of the memory, for people. */
#include "common/memory_table.h"
#include "common/number.h"

#include <stdio.h>
#include <string.h>

static void add_line(char *out, const char *what, uint64_t bytes, const char *remark)
{
    char amount[K3_NUMBER_MAX];
    size_t n = strlen(out);
    snprintf(out + n, K3_MEMORY_TABLE_MAX - n, "  %-14s %11s%s%s\n", what, k3_format_bytes(bytes, amount),
             *remark ? "   " : "", remark);
}

/* ", PCIe 5.0 x8 of x16", or less of it */
static const char *format_link(const struct k3_memory_plan *m, char out[64])
{
    char generation[16] = "", all[16] = "";
    if (!m->pcie_width) return "";
    if (m->pcie_generation) snprintf(generation, sizeof generation, " %u.0", m->pcie_generation);
    if (m->pcie_width < m->pcie_max_width) snprintf(all, sizeof all, " of x%u", m->pcie_max_width);
    snprintf(out, 64, ", PCIe%s x%u%s", generation, m->pcie_width, all);
    return out;
}

static void add_gpu(char *out, const struct k3_memory_plan *m)
{
    size_t n = strlen(out);
    uint64_t sum = m->vram_dense + m->vram_scratch + m->vram_sessions;
    char link[64];
    snprintf(out + n, K3_MEMORY_TABLE_MAX - n, "GPU %d, %s%s\n", m->gpu, m->gpu_name, format_link(m, link));
    add_line(out, "dense weights", m->vram_dense, m->on_gpu);
    add_line(out, "activations", m->vram_scratch, "");
    add_line(out, "sessions", m->vram_sessions, "");
    add_line(out, "sum", sum, "");
    add_line(out, "limit", m->vram_limit, "");
    add_line(out, "left over", m->vram_limit - sum, "");
}

const char *k3_memory_table(const struct k3_memory_plan *m, char out[K3_MEMORY_TABLE_MAX])
{
    char remark[160] = "", count[K3_NUMBER_MAX], all[K3_NUMBER_MAX], each[K3_NUMBER_MAX];
    snprintf(out, K3_MEMORY_TABLE_MAX, "Memory\n");
    add_line(out, "dense weights", m->dense, m->gpu < 0 ? "" : m->on_host);
    snprintf(remark, sizeof remark, "batches of %s tokens", k3_format_count(m->batch, count));
    add_line(out, "activations", m->scratch, remark);
    snprintf(remark, sizeof remark, "%s tokens", k3_format_count(m->context, count));
    add_line(out, "sessions", m->sessions, remark);
    if (m->n_slots)
        snprintf(remark, sizeof remark, "%s of %s, %.1f %%, %s each", k3_format_count(m->n_slots, count),
                 k3_format_count(m->n_experts, all), 100.0 * m->n_slots / m->n_experts,
                 k3_format_bytes(m->slot_bytes, each));
    else
        snprintf(remark, sizeof remark, "in mapped files");
    add_line(out, "experts", m->slots, remark);
    add_line(out, "reserve", m->reserve, "");
    add_line(out, "sum", m->dense + m->scratch + m->sessions + m->slots + m->reserve, "");
    add_line(out, "limit", m->limit, "");
    add_line(out, "available", m->available, "");
    if (m->gpu >= 0) add_gpu(out, m);
    return out;
}
