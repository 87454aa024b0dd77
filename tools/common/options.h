/* options.h - command-line options: one table says what an option is called, what it means and where it goes.
 *
 * The table drives both the parser and --help, so the two cannot disagree. Options that several programs
 * share are macros here, so that they are spelled, checked and explained in one place. */
#ifndef K3_TOOLS_OPTIONS_H
#define K3_TOOLS_OPTIONS_H

#include "base/error.h"

#include <stdio.h>

enum k3_option_kind {
    K3_OPTION_END = 0, /* ends a table */
    K3_OPTION_HEADING, /* a line of --help; only `help` is used */
    K3_OPTION_FLAG,    /* bool: becomes true */
    K3_OPTION_TEXT,    /* const char *: points into argv */
    K3_OPTION_U32,     /* uint32_t */
    K3_OPTION_U64,     /* uint64_t */
    K3_OPTION_FLOAT,   /* float */
};

struct k3_option {
    enum k3_option_kind kind;
    char letter;          /* 0: none */
    const char *name;     /* of the long form; NULL: none */
    void *value;          /* of the type that `kind` says */
    double min, max;      /* a number must lie between, limits included */
    const char *argument; /* what --help calls the value */
    const char *help;     /* may have several lines */
};

#define K3_MAX_OPTIONS 48 /* in a table */

/* Fills the values and leaves `optind` at the first of at most max_operands operands. */
k3_status k3_options_parse(int argc, char **argv, const struct k3_option *table, int max_operands,
                           struct k3_error *err);

void k3_options_help(const struct k3_option *table);

/* What the engine needs to know, in every program that computes. */
struct k3_engine {
    const char *model; /* NULL: see k3_engine_find_model */
    uint32_t threads;  /* 0: one per processor */
    uint32_t context;  /* most tokens in a session; 0: what the model was made for */
    bool exact;        /* f32 arithmetic */
};

#define K3_MODEL_OPTION(engine)                                                                              \
    {                                                                                                        \
        K3_OPTION_TEXT, 'm', "model", &(engine).model, 0, 0, "FILE",                                         \
            "GGUF file, or any shard of a split set\n(default: the small model k3-tiny that comes with K3)"  \
    }

#define K3_ENGINE_OPTIONS(engine)                                                                            \
    K3_MODEL_OPTION(engine),                                                                                 \
        {K3_OPTION_U32,                                                                                      \
         't',                                                                                                \
         "threads",                                                                                          \
         &(engine).threads,                                                                                  \
         0,                                                                                                  \
         1024,                                                                                               \
         "N",                                                                                                \
         "threads that compute (default: 0, one per processor);\nnever changes what is computed"},           \
        {K3_OPTION_U32,                                                                                      \
         'c',                                                                                                \
         "context",                                                                                          \
         &(engine).context,                                                                                  \
         0,                                                                                                  \
         UINT32_MAX,                                                                                         \
         "N",                                                                                                \
         "most tokens to hold (default: 0, what the model was made for)"},                                   \
    {                                                                                                        \
        K3_OPTION_FLAG, 0, "exact", &(engine).exact, 0, 0, NULL,                                             \
            "reference arithmetic: activations and cache in f32; slower"                                     \
    }

#define K3_HELP_OPTION(flag)                                                                                 \
    {                                                                                                        \
        K3_OPTION_FLAG, 'h', "help", &(flag), 0, 0, NULL, "show this and exit"                               \
    }
#define K3_VERSION_OPTION(flag)                                                                              \
    {                                                                                                        \
        K3_OPTION_FLAG, 0, "version", &(flag), 0, 0, NULL, "show the version and exit"                       \
    }

/* Sets engine->model, if it is NULL, to the small model: beside the build folder this program was built in,
 * in models/ of the current folder, or where `meson install` puts it. */
k3_status k3_engine_find_model(struct k3_engine *engine, struct k3_error *err);

#endif
