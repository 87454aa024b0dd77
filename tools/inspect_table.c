/* inspect_table.c - what k3tool inspect found, for people. */
#include "inspect.h"
#include "common/number.h"
#include "common/program.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MAX  72 /* bytes of a string that are shown */
#define ARRAY_MAX 8  /* elements of an array that are shown */

/* Text from a file that ends up on a terminal. What is too long is cut. */
static void write_clean(struct k3_gguf_string s)
{
    char text[TEXT_MAX + 1];
    snprintf(text, sizeof text, "%.*s", s.n < TEXT_MAX ? (int)s.n : TEXT_MAX, s.text);
    k3_clean_text(text);
    k3_out("\"%s\"", text);
    if (s.n > strlen(text)) k3_out("... (%zu bytes)", s.n);
}

static void write_element(const struct k3_gguf_value *value, uint64_t i)
{
    switch (value->array.kind) {
    case K3_GGUF_STRING:
        write_clean(((const struct k3_gguf_string *)value->array.items)[i]);
        break;
    case K3_GGUF_F32:
    case K3_GGUF_F64:
        k3_out("%g", k3_inspection_real(value, i));
        break;
    default:
        k3_out("%lld", (long long)k3_gguf_array_int(value, i));
    }
}

static void write_value(const struct k3_gguf_value *value)
{
    switch (value->kind) {
    case K3_GGUF_STRING:
        write_clean(value->s);
        break;
    case K3_GGUF_F32:
    case K3_GGUF_F64:
        k3_out("%g", value->f);
        break;
    case K3_GGUF_BOOL:
        k3_out(value->u ? "true" : "false");
        break;
    case K3_GGUF_I8:
    case K3_GGUF_I16:
    case K3_GGUF_I32:
    case K3_GGUF_I64:
        k3_out("%lld", (long long)value->i);
        break;
    case K3_GGUF_ARRAY:
        k3_out("%s[%llu]:", k3_gguf_kind_name(value->array.kind), (unsigned long long)value->array.n);
        for (uint64_t i = 0; i < value->array.n && i < ARRAY_MAX; i++) {
            k3_out(" ");
            write_element(value, i);
        }
        if (value->array.n > ARRAY_MAX) k3_out(" ...");
        break;
    default:
        k3_out("%llu", (unsigned long long)value->u);
    }
}

static void write_count(const char *what, uint64_t count)
{
    char text[K3_NUMBER_MAX];
    k3_out("  %-20s%s\n", what, k3_format_count(count, text));
}

static void write_size(const char *what, uint64_t bytes)
{
    char rough[K3_NUMBER_MAX], exact[K3_NUMBER_MAX];
    k3_out("  %-20s%s (%s bytes)\n", what, k3_format_bytes(bytes, rough), k3_format_count(bytes, exact));
}

static void write_types(const struct k3_census *census)
{
    k3_out("\n  %-10s %8s %24s\n", "type", "tensors", "bytes");
    for (uint32_t id = 0; id < K3_TYPE_COUNT; id++) {
        const struct k3_census_type *type = &census->types[id];
        char exact[K3_NUMBER_MAX], rough[K3_NUMBER_MAX];
        if (!type->count) continue;
        k3_out("  %-10s %8llu %24s %12s\n", k3_type_info(id)->name, (unsigned long long)type->count,
               k3_format_count(type->bytes, exact), k3_format_bytes(type->bytes, rough));
    }
}

void k3_inspection_table(const struct k3_inspection *found)
{
    const struct k3_gguf *gguf = found->gguf;
    const struct k3_census *census = &found->census;
    k3_out("%s\n", found->path);
    k3_out("  %-20s", "architecture");
    write_clean(k3_inspection_architecture(found));
    k3_out("\n  %-20s%u (GGUF version %u)\n", "files", gguf->n_shards, gguf->version);
    write_size("size of files", gguf->bytes);

    k3_out("\nTensors\n");
    write_count("tensors", census->n_tensors);
    write_count("parameters", census->parameters);
    write_size("size", census->bytes);
    write_size("dense part", census->bytes - census->expert_bytes);
    write_types(census);

    k3_out("\nExperts\n");
    write_count("expert tensors", census->n_expert_tensors);
    write_count("experts", census->n_slots);
    write_count("parameters", census->expert_parameters);
    write_size("size", census->expert_bytes);
    if (census->n_slots) write_size("one expert", census->expert_bytes / census->n_slots);

    k3_out("\nMetadata\n");
    for (size_t i = 0; i < gguf->n_values; i++) {
        k3_out("  %-44s ", gguf->values[i].key);
        write_value(&gguf->values[i]);
        k3_out("\n");
    }
    k3_out("\nProblems\n");
    size_t n = k3_inspection_problems(found);
    for (size_t i = 0; i < n; i++) k3_out("  %s\n", k3_inspection_problem(found, i));
    if (!n) k3_out("  none\n");
}
