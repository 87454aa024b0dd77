/* options.c - the option parser and --help. */
#include "common/options.h"
#include "common/number.h"
#include "common/program.h"

#include <getopt.h>
#include <string.h>

/* getopt's value for a long option is this plus its index in the table, to tell it from a letter. */
#define LONG_BASE 256

/* "--tokens" or "-n", as it was written. */
static void option_label(const struct k3_option *option, int code, char *out, size_t size)
{
    if (code >= LONG_BASE)
        snprintf(out, size, "--%s", option->name);
    else
        snprintf(out, size, "-%c", option->letter);
}

static bool takes_value(const struct k3_option *option)
{
    return option->kind >= K3_OPTION_TEXT;
}

static const struct k3_option *find_option(const struct k3_option *table, int code)
{
    if (code >= LONG_BASE) return &table[code - LONG_BASE];
    for (; table->kind != K3_OPTION_END; table++)
        if (table->kind != K3_OPTION_HEADING && table->letter == code) return table;
    return NULL;
}

static k3_status store_choice(const struct k3_option *option, const char *label, const char *text,
                              struct k3_error *err)
{
    size_t n = strlen(text);
    int place = 0;
    for (const char *word = option->argument; *word; place++) {
        size_t length = strcspn(word, "|");
        if (length == n && memcmp(word, text, n) == 0) {
            *(int *)option->value = place;
            return K3_OK;
        }
        word += length + (word[length] == '|');
    }
    return k3_fail(err, K3_ERR_ARGUMENT, "%s: '%.40s' is none of %s", label, text, option->argument);
}

static k3_status store_gpu(const struct k3_option *option, const char *label, const char *text,
                           struct k3_error *err)
{
    uint64_t number;
    int *gpu = option->value;
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0) {
        *gpu = *text == 'a' ? K3_GPU_AUTO : K3_GPU_OFF;
        return K3_OK;
    }
    k3_status status = k3_parse_whole(label, text, 0, (uint64_t)option->max, &number, err);
    if (status == K3_OK) *gpu = K3_GPU((int)number);
    return status;
}

static k3_status add_amount(struct k3_amounts *amounts, const char *label, const char *text,
                            struct k3_error *err)
{
    if (amounts->n == K3_MAX_AMOUNTS)
        return k3_fail(err, K3_ERR_ARGUMENT, "%s: given more than %d times", label, K3_MAX_AMOUNTS);
    k3_status status = k3_parse_amount(label, text, &amounts->list[amounts->n], err);
    if (status == K3_OK) amounts->n++;
    return status;
}

static k3_status store_value(const struct k3_option *option, const char *label, const char *text,
                             struct k3_error *err)
{
    uint64_t whole;
    double real;

    switch (option->kind) {
    case K3_OPTION_FLAG:
        *(bool *)option->value = true;
        return K3_OK;
    case K3_OPTION_TEXT:
        *(const char **)option->value = text;
        return K3_OK;
    case K3_OPTION_U32_AUTO:
        if (strcmp(text, "auto") == 0) {
            *(uint32_t *)option->value = 0;
            return K3_OK;
        }
        __attribute__((fallthrough));
    case K3_OPTION_U32:
        if (k3_parse_whole(label, text, (uint64_t)option->min, (uint64_t)option->max, &whole, err) != K3_OK)
            return err->status;
        *(uint32_t *)option->value = (uint32_t)whole;
        return K3_OK;
    case K3_OPTION_U64:
        if (k3_parse_whole(label, text, 0, UINT64_MAX, &whole, err) != K3_OK) return err->status;
        *(uint64_t *)option->value = whole;
        return K3_OK;
    case K3_OPTION_FLOAT:
        if (k3_parse_real(label, text, option->min, option->max, &real, err) != K3_OK) return err->status;
        *(float *)option->value = (float)real;
        return K3_OK;
    case K3_OPTION_CHOICE:
        return store_choice(option, label, text, err);
    case K3_OPTION_GPU:
        return store_gpu(option, label, text, err);
    case K3_OPTION_AMOUNT:
        return k3_parse_amount(label, text, option->value, err);
    case K3_OPTION_AMOUNTS:
        return add_amount(option->value, label, text, err);
    case K3_OPTION_END:
    case K3_OPTION_HEADING:
        break;
    }
    return K3_OK;
}

/* What getopt_long refused, in one sentence. `code` is its return value, '?' or ':'. */
static k3_status refuse(int code, char **argv, const struct k3_option *table, struct k3_error *err)
{
    const struct k3_option *option = optopt ? find_option(table, optopt) : NULL;
    char label[64];
    if (option) option_label(option, optopt, label, sizeof label);
    if (option && code == ':') return k3_fail(err, K3_ERR_ARGUMENT, "option %s needs a value", label);
    if (option) return k3_fail(err, K3_ERR_ARGUMENT, "option %s takes no value", label);
    if (optopt)
        return k3_fail(err, K3_ERR_ARGUMENT, "there is no option -%c; see %s --help", optopt,
                       k3_program_name());
    return k3_fail(err, K3_ERR_ARGUMENT, "there is no option %s; see %s --help", argv[optind - 1],
                   k3_program_name());
}

k3_status k3_options_parse(int argc, char **argv, const struct k3_option *table, int max_operands,
                           struct k3_error *err)
{
    struct option longs[K3_MAX_OPTIONS + 1] = {0};
    char shorts[2 * K3_MAX_OPTIONS + 2] = ":", *letter = shorts + 1;
    struct option *entry = longs;
    for (int i = 0; table[i].kind != K3_OPTION_END && i < K3_MAX_OPTIONS; i++) {
        if (table[i].kind == K3_OPTION_HEADING) continue;
        int has_arg = takes_value(&table[i]) ? required_argument : no_argument;
        if (table[i].name) *entry++ = (struct option){table[i].name, has_arg, NULL, LONG_BASE + i};
        if (table[i].letter) {
            *letter++ = table[i].letter;
            if (has_arg == required_argument) *letter++ = ':';
        }
    }

    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (code == '?' || code == ':') return refuse(code, argv, table, err);
        const struct k3_option *option = find_option(table, code);
        char label[64];
        option_label(option, code, label, sizeof label);
        k3_status status = store_value(option, label, optarg, err);
        if (status != K3_OK) return status;
    }
    if (argc - optind > max_operands)
        return k3_fail(err, K3_ERR_ARGUMENT, "'%.80s' is unexpected; see %s --help",
                       argv[optind + max_operands], k3_program_name());
    return K3_OK;
}

#define HELP_COLUMN 26 /* where explanations begin */

static void print_option(const struct k3_option *option)
{
    char left[64], letter[8] = "    ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c%s", option->letter, option->name ? ", " : "  ");
    snprintf(left, sizeof left, "  %s%s%s%s%s", letter, option->name ? "--" : "",
             option->name ? option->name : "", option->argument ? " " : "",
             option->argument ? option->argument : "");
    k3_out("%-*s", HELP_COLUMN, left);
    if (strlen(left) >= HELP_COLUMN) k3_out("\n%*s", HELP_COLUMN, "");
    for (const char *line = option->help; line;) {
        const char *end = strchr(line, '\n');
        k3_out("%.*s\n", end ? (int)(end - line) : (int)strlen(line), line);
        line = end ? end + 1 : NULL;
        if (line) k3_out("%*s", HELP_COLUMN, "");
    }
}

void k3_options_help(const char *about, const struct k3_option *table)
{
    k3_out("%s", about);
    for (; table->kind != K3_OPTION_END; table++) {
        if (table->kind == K3_OPTION_HEADING)
            k3_out("\n%s\n", table->help);
        else
            print_option(table);
    }
}
