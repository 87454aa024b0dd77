/* engine.h - the options of model and engine, in every program that has them, and opening a model by them. */
#ifndef K3_TOOLS_ENGINE_H
#define K3_TOOLS_ENGINE_H

#include "common/options.h"
#include "common/progress.h"

struct k3_engine {
    const char *model; /* NULL: see k3_engine_find_model */
    uint32_t threads;  /* 0: one per processor */
    uint32_t context;  /* most tokens in a session; 0: what the model was made for */
    bool exact;        /* f32 arithmetic */
    struct k3_amount slots; /* experts in memory; 0: as memory allows */
    int io, direct;        /* enum k3_io, enum k3_direct */
};

/* clang-format off */
#define K3_MODEL_OPTION(engine) \
    {K3_OPTION_TEXT, 'm', "model", &(engine).model, 0, 0, "FILE", \
     "GGUF file, or any shard of a split set\n(default: the small model k3-tiny that comes with K3)"}

#define K3_ENGINE_OPTIONS(engine) \
    K3_MODEL_OPTION(engine), \
    {K3_OPTION_U32, 't', "threads", &(engine).threads, 0, 1024, "N", \
     "threads that compute (default: 0, one per processor);\nnever changes what is computed"}, \
    {K3_OPTION_U32, 'c', "context", &(engine).context, 0, UINT32_MAX, "N", \
     "most tokens to hold (default: 0, what the model was made for)"}, \
    {K3_OPTION_FLAG, 0, "exact", &(engine).exact, 0, 0, NULL, \
     "reference arithmetic: activations and cache in f32; slower"}, \
    {K3_OPTION_AMOUNT, 0, "slots", &(engine).slots, 0, 0, "N|P%", \
     "experts to keep in memory, or a part of all\n(default: 0, as memory allows)"}, \
    {K3_OPTION_CHOICE, 0, "io", &(engine).io, 0, 0, "auto|uring|threads|mmap", \
     "how experts are read (default: auto, io_uring if it can be)"}, \
    {K3_OPTION_CHOICE, 0, "direct", &(engine).direct, 0, 0, "auto|on|off", \
     "read past the page cache (default: auto, where it can be)"}
/* clang-format on */

/* Sets engine->model, if it is NULL, to the small model: beside the build folder this program was built in,
 * in models/ of the current folder, or where `meson install` puts it. */
k3_status k3_engine_find_model(struct k3_engine *engine, struct k3_error *err);

/* Finds and opens the model; how far it is goes to `loading`. */
k3_status k3_engine_open(struct k3_engine *engine, struct k3_progress *loading, struct k3_model **model,
                         struct k3_error *err);

#endif
