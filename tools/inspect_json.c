/* inspect_json.c - what k3tool inspect found, as one JSON object. */
#include "inspect.h"
#include "common/json.h"
#include "common/program.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_MAX 1024 /* longer arrays, such as the vocabulary, are given by their length */

/* JSON has no NaN and no infinity. */
static json_t *json_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_element(const struct k3_gguf_value *value, uint64_t i)
{
    const struct k3_gguf_string *strings = value->array.items;
    switch (value->array.kind) {
    case K3_GGUF_STRING:
        return k3_json_text(strings[i].text, strings[i].n);
    case K3_GGUF_F32:
    case K3_GGUF_F64:
        return json_number(k3_inspection_real(value, i));
    default:
        return json_integer(k3_gguf_array_int(value, i));
    }
}

static json_t *json_array_value(const struct k3_gguf_value *value)
{
    if (value->array.n > ARRAY_MAX)
        return json_pack("{s:s, s:I}", "array_of", k3_gguf_kind_name(value->array.kind), "length",
                         (json_int_t)value->array.n);
    json_t *array = json_array();
    for (uint64_t i = 0; i < value->array.n; i++) json_array_append_new(array, json_element(value, i));
    return array;
}

static json_t *json_value(const struct k3_gguf_value *value)
{
    switch (value->kind) {
    case K3_GGUF_STRING:
        return k3_json_text(value->s.text, value->s.n);
    case K3_GGUF_F32:
    case K3_GGUF_F64:
        return json_number(value->f);
    case K3_GGUF_BOOL:
        return json_boolean(value->u);
    case K3_GGUF_I8:
    case K3_GGUF_I16:
    case K3_GGUF_I32:
    case K3_GGUF_I64:
        return json_integer(value->i);
    case K3_GGUF_ARRAY:
        return json_array_value(value);
    default:
        return json_integer((json_int_t)value->u);
    }
}

static json_t *json_metadata(const struct k3_gguf *gguf)
{
    json_t *object = json_object();
    for (size_t i = 0; gguf && i < gguf->n_values; i++)
        json_object_set_new(object, gguf->values[i].key, json_value(&gguf->values[i]));
    return object;
}

static json_t *json_types(const struct k3_census *census)
{
    json_t *object = json_object();
    for (uint32_t id = 0; id < K3_TYPE_COUNT; id++) {
        const struct k3_census_type *type = &census->types[id];
        if (!type->count) continue;
        json_object_set_new(
            object, k3_type_info(id)->name,
            json_pack("{s:I, s:I}", "count", (json_int_t)type->count, "bytes", (json_int_t)type->bytes));
    }
    return object;
}

static json_t *json_problems(const struct k3_inspection *found)
{
    json_t *array = json_array();
    for (size_t i = 0; i < k3_inspection_problems(found); i++) {
        const char *problem = k3_inspection_problem(found, i);
        json_array_append_new(array, k3_json_text(problem, strlen(problem)));
    }
    return array;
}

k3_status k3_inspection_json(const struct k3_inspection *found, struct k3_error *err)
{
    const struct k3_census *census = &found->census;
    const struct k3_gguf *gguf = found->gguf;
    struct k3_gguf_string architecture = k3_inspection_architecture(found);
    json_t *object = json_object();
    const struct {
        const char *name;
        json_t *value;
    } members[] = {
        {"file", k3_json_text(found->path, strlen(found->path))},
        {"files", json_integer(gguf ? gguf->n_shards : 0)},
        {"file_bytes", json_integer(gguf ? (json_int_t)gguf->bytes : 0)},
        {"architecture", k3_json_text(architecture.text, architecture.n)},
        {"tensors", json_integer((json_int_t)census->n_tensors)},
        {"parameters", json_integer((json_int_t)census->parameters)},
        {"bytes", json_integer((json_int_t)census->bytes)},
        {"expert_tensors", json_integer((json_int_t)census->n_expert_tensors)},
        {"experts", json_integer((json_int_t)census->n_slots)},
        {"expert_parameters", json_integer((json_int_t)census->expert_parameters)},
        {"expert_bytes", json_integer((json_int_t)census->expert_bytes)},
        {"types", json_types(census)},
        {"metadata", json_metadata(gguf)},
        {"problems", json_problems(found)},
    };
    bool failed = false;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        failed |= json_object_set_new(object, members[i].name, members[i].value) != 0;

    char *text = failed ? NULL : json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (!text) return k3_fail_memory(err, "the JSON text", 0);
    k3_out("%s\n", text);
    free(text);
    return K3_OK;
}
