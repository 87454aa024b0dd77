/* options.h - command-line options: one table says what an option is called, what it means and where it goes.
 *
 * The table drives both the parser and --help, so the two cannot disagree. Options that several programs
 * share are macros here, so that they are spelled, checked and explained in one place. */
#ifndef K3_TOOLS_OPTIONS_H
#define K3_TOOLS_OPTIONS_H

#include "common/number.h"

#include <stdio.h>

enum k3_option_kind {
    K3_OPTION_END = 0,  /* ends a table */
    K3_OPTION_HEADING,  /* a line of --help; only `help` is used */
    K3_OPTION_FLAG,     /* bool: becomes true */
    K3_OPTION_TEXT,     /* const char *: points into argv */
    K3_OPTION_U32,      /* uint32_t */
    K3_OPTION_U32_AUTO, /* uint32_t: a number, or "auto", which is 0 */
    K3_OPTION_U64,      /* uint64_t */
    K3_OPTION_FLOAT,    /* float */
    K3_OPTION_CHOICE,   /* int: place of the value in `argument`, which is "one|two|three" */
    K3_OPTION_GPU,      /* int: "auto", "off" or a number, as k3_model_options has them */
    K3_OPTION_AMOUNT,   /* struct k3_amount */
    K3_OPTION_AMOUNTS,  /* struct k3_amounts: one more each time */
};

#define K3_MAX_AMOUNTS 16

struct k3_amounts {
    struct k3_amount list[K3_MAX_AMOUNTS];
    size_t n;
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

/* Shows `about`, which is whole lines, and the table. */
void k3_options_help(const char *about, const struct k3_option *table);

/* clang-format off */
#define K3_HELP_OPTION(flag)    {K3_OPTION_FLAG, 'h', "help", &(flag), 0, 0, NULL, "show this and exit"}
#define K3_VERSION_OPTION(flag) {K3_OPTION_FLAG, 0, "version", &(flag), 0, 0, NULL, "show the version and exit"}
/* clang-format on */

#endif
