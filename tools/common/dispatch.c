/* dispatch.c - programs that are several: the first argument, a verb, says which. */
#include "common/dispatch.h"
#include "common/program.h"

#include <string.h>

static void print_help(const char *about, const struct k3_verb *verbs)
{
    k3_out("Usage: %s VERB [OPTION]...\n%s\n\nVerbs\n", k3_program_name(), about);
    for (; verbs->name; verbs++) k3_out("  %-12s%s\n", verbs->name, verbs->summary);
    k3_out("\n\"%s VERB --help\" tells more. The exit status is 0, 1 after an error, and 130 after "
           "Ctrl-C.\n",
           k3_program_name());
}

int k3_dispatch(int argc, char **argv, const char *about, const struct k3_verb *verbs)
{
    struct k3_error err;
    k3_program_start();
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(about, verbs);
        return k3_program_end(K3_OK, NULL);
    }
    if (strcmp(name, "--version") == 0) {
        k3_out("%s %s\n", k3_program_name(), k3_version());
        return k3_program_end(K3_OK, NULL);
    }
    for (; verbs->name; verbs++)
        if (strcmp(name, verbs->name) == 0) return verbs->run(argc - 1, argv + 1);
    k3_status status =
        *name
            ? k3_fail(&err, K3_ERR_ARGUMENT, "there is no verb '%s'; see %s --help", name, k3_program_name())
            : k3_fail(&err, K3_ERR_ARGUMENT, "a verb is missing; see %s --help", k3_program_name());
    return k3_program_end(status, &err);
}
