/* engine.h - the options of model and engine, in every program that has them, and opening a model by them. */
#ifndef K3_TOOLS_ENGINE_H
#define K3_TOOLS_ENGINE_H

#include "common/options.h"
#include "common/progress.h"
#include "common/threads.h"

struct k3_engine {
    const char *model;              /* NULL: see k3_engine_find_model */
    uint32_t threads;               /* 0: chosen when the model is opened or planned */
    struct k3_thread_choice choice; /* of threads, from then on */

    uint32_t context; /* most tokens in a session; 0: chosen */
    bool exact;       /* f32 arithmetic */
    int gpu;          /* as k3_model_options has it, and so is what follows */
    const char *gpu_layers;
    struct k3_amount vram;     /* bytes of the GPU's memory, or a part of it; 0: chosen */
    struct k3_amount ram;      /* bytes of host memory; 0: chosen */
    struct k3_amount slots;    /* experts in memory; 0: as memory allows */
    bool verify;               /* what is uploaded to a GPU */
    int io, direct, lookahead; /* enum k3_io, enum k3_direct, enum k3_lookahead */
    const char *warm;          /* file that says which experts to begin with; NULL: none */
};

/* clang-format off */
#define K3_ENGINE_OPTIONS(engine) \
    {K3_OPTION_TEXT, 'm', "model", &(engine).model, 0, 0, "FILE", \
     "GGUF file, or any shard of a split set\n(default: the small model k3-tiny that comes with K3)"}, \
    {K3_OPTION_U32_AUTO, 't', "threads", &(engine).threads, 0, 1024, "N|auto", \
     "threads that compute (default: auto, as many as make it faster,\nmeasured once on a machine); never changes what is computed"}, \
    {K3_OPTION_U32, 'c', "context", &(engine).context, 0, UINT32_MAX, "N", \
     "most tokens to hold (default: 0, chosen by memory and model)"}, \
    {K3_OPTION_FLAG, 0, "exact", &(engine).exact, 0, 0, NULL, \
     "reference arithmetic: activations and cache in f32; slower"}, \
    {K3_OPTION_GPU, 0, "gpu", &(engine).gpu, 0, 99, "auto|off|N", \
     "GPU that computes all but the experts, or as much of it as it\nhas memory for (default: auto, the one with most free memory)"}, \
    {K3_OPTION_TEXT, 0, "gpu-layers", &(engine).gpu_layers, 0, 0, "N|LIST|all", \
     "what is on the GPU: the last N layers and the head, or all, or\nexactly what LIST names, such as 0-5,9.attention,embedding,head\n(default: what fits, the last layers first)"}, \
    {K3_OPTION_AMOUNT, 0, "vram", &(engine).vram, 0, 0, "SIZE", \
     "memory of the GPU to stay below, such as 24G or 80%\n(default: 0, most of what is free)"}, \
    {K3_OPTION_FLAG, 0, "verify", &(engine).verify, 0, 0, NULL, \
     "read back what is uploaded to the GPU, and compare"}, \
    {K3_OPTION_AMOUNT, 0, "ram", &(engine).ram, 0, 0, "SIZE", \
     "memory to stay below, such as 512M, 24G or 60%\n(default: 0, most of what is available)"}, \
    {K3_OPTION_AMOUNT, 0, "slots", &(engine).slots, 0, 0, "N|P%", \
     "experts to keep in memory, or a part of all\n(default: 0, as memory allows)"}, \
    {K3_OPTION_CHOICE, 0, "io", &(engine).io, 0, 0, "auto|uring|threads|mmap", \
     "how experts are read (default: auto, io_uring if it can be)"}, \
    {K3_OPTION_CHOICE, 0, "direct", &(engine).direct, 0, 0, "auto|on|off", \
     "read past the page cache (default: auto, where it can be)"}, \
    {K3_OPTION_CHOICE, 0, "lookahead", &(engine).lookahead, 0, 0, "auto|on|off", \
     "read experts that the next layer may want (default: auto,\nwhen measuring says that it helps)"}, \
    {K3_OPTION_TEXT, 0, "warm", &(engine).warm, 0, 0, "FILE", \
     "begin with the experts that were in memory when the last run\nended, and remember in FILE what this one leaves"}
/* clang-format on */

/* Sets engine->model, if it is NULL, to the small model: beside the build folder this program was built in,
 * in models/ of the current folder, or where `meson install` puts it. */
k3_status k3_engine_find_model(struct k3_engine *engine, struct k3_error *err);

/* The options of the library for it. */
struct k3_model_options k3_engine_options(const struct k3_engine *engine);

/* What k3_engine_open would plan. */
k3_status k3_engine_plan(struct k3_engine *engine, struct k3_memory_plan *memory, struct k3_error *err);

/* Whether n tokens fit in the context, before the model is loaded. `what` they are goes into the message. */
k3_status k3_engine_check_context(struct k3_engine *engine, size_t n, const char *what, struct k3_error *err);

/* Finds and opens the model, and reads the warm experts; how far it is goes to `loading`. */
k3_status k3_engine_open(struct k3_engine *engine, struct k3_progress *loading, struct k3_model **model,
                         struct k3_error *err);

/* Writes down which experts the next run shall begin with, if that was asked for. */
k3_status k3_engine_save_warm(const struct k3_engine *engine, struct k3_model *model, struct k3_error *err);

#endif
