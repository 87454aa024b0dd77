/* vocab_gguf.c - the vocabulary as a GGUF file has it. */
#include "text/text_internal.h"

#include <stdlib.h>
#include <string.h>

/* An array of the given kind of elements (or of any integer kind, if `integers`) that must be there. */
static k3_status find_array(const struct k3_gguf *gguf, const char *key, bool integers,
                            const struct k3_gguf_value **out, struct k3_error *err)
{
    const struct k3_gguf_value *value = k3_gguf_find(gguf, key);
    if (!value) return k3_fail(err, K3_ERR_FORMAT, "%s: there is no key %s", gguf->path, key);
    const char *want = integers ? "integers" : "strings";
    if (value->kind != K3_GGUF_ARRAY)
        return k3_fail(err, K3_ERR_FORMAT, "%s: %s is of kind %s, not an array of %s", gguf->path, key,
                       k3_gguf_kind_name(value->kind), want);
    enum k3_gguf_kind kind = value->array.kind;
    bool is_integer = kind <= K3_GGUF_I32 || kind == K3_GGUF_U64 || kind == K3_GGUF_I64;
    if (integers ? !is_integer : kind != K3_GGUF_STRING)
        return k3_fail(err, K3_ERR_FORMAT, "%s: %s is an array of %s, not of %s", gguf->path, key,
                       k3_gguf_kind_name(kind), want);
    *out = value;
    return K3_OK;
}

/* The two keys that say how the vocabulary is to be used. `pre` is missing in some early conversions. */
static k3_status check_kind(const struct k3_gguf *gguf, struct k3_error *err)
{
    static const struct {
        const char *key, *want;
        bool optional;
    } keys[] = {{"tokenizer.ggml.model", "gpt2", false}, {"tokenizer.ggml.pre", "kimi-k2", true}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (keys[i].optional && !k3_gguf_find(gguf, keys[i].key)) continue;
        struct k3_gguf_string value;
        k3_status status = k3_gguf_get_string(gguf, keys[i].key, &value, err);
        if (status) return status;
        if (value.n != strlen(keys[i].want) || memcmp(value.text, keys[i].want, value.n) != 0)
            return k3_fail(err, K3_ERR_UNSUPPORTED, "%s: %s is \"%s\"; only \"%s\" is known", gguf->path,
                           keys[i].key, value.text, keys[i].want);
    }
    return K3_OK;
}

static k3_status read_eos(const struct k3_gguf *gguf, int32_t *eos, struct k3_error *err)
{
    static const char key[] = "tokenizer.ggml.eos_token_id";
    *eos = -1;
    if (!k3_gguf_find(gguf, key)) return K3_OK;
    uint32_t id;
    k3_status status = k3_gguf_get_u32(gguf, key, &id, err);
    if (status) return status;
    if (id > INT32_MAX)
        return k3_fail(err, K3_ERR_FORMAT, "%s: %s is %u, which is no token", gguf->path, key, id);
    *eos = (int32_t)id;
    return K3_OK;
}

static k3_status create_from(const struct k3_gguf *gguf, struct k3_tokenizer **out, struct k3_error *err)
{
    const struct k3_gguf_value *tokens = NULL, *types = NULL;
    struct k3_vocab_source source = {.name = gguf->path};
    k3_status status = check_kind(gguf, err);
    if (!status) status = find_array(gguf, "tokenizer.ggml.tokens", false, &tokens, err);
    if (!status) status = find_array(gguf, "tokenizer.ggml.token_type", true, &types, err);
    if (!status) status = read_eos(gguf, &source.eos, err);
    if (status) return status;
    if (types->array.n != tokens->array.n)
        return k3_fail(err, K3_ERR_FORMAT, "%s: there are %llu tokens but types of %llu", gguf->path,
                       (unsigned long long)tokens->array.n, (unsigned long long)types->array.n);

    /* The strings are in memory, so their number times four is a size that exists. */
    source.n = (size_t)tokens->array.n;
    source.tokens = tokens->array.items;
    int32_t *copy = malloc(source.n * sizeof *copy + 1);
    if (!copy) return k3_fail_memory(err, "the types of tokens", source.n * sizeof *copy);
    for (size_t i = 0; i < source.n; i++) {
        int64_t type = k3_gguf_array_int(types, i);
        copy[i] = type < 0 || type > INT32_MAX ? -1 : (int32_t)type;
    }
    source.types = copy;
    status = k3_tokenizer_create(&source, out, err);
    free(copy);
    return status;
}

k3_status k3_tokenizer_open(const char *path, struct k3_tokenizer **tokenizer, struct k3_error *err)
{
    struct k3_gguf *gguf;
    k3_status status = k3_gguf_open(path, &gguf, err);
    if (status) return status;
    status = create_from(gguf, tokenizer, err);
    k3_gguf_close(gguf);
    return status;
}
