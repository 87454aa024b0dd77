/* dispatch.h - programs that are several: the first argument, a verb, says which. */
#ifndef K3_TOOLS_DISPATCH_H
#define K3_TOOLS_DISPATCH_H

struct k3_verb {
    const char *name; /* NULL ends a table */
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit status */
};

/* All of main: starts the program, answers --help (which begins with `about`) and --version, and runs the
 * verb. */
int k3_dispatch(int argc, char **argv, const char *about, const struct k3_verb *verbs);

#endif
