/* Links of PCIe devices, from a tree of files like that of Linux. */
#include "base/pcie.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[64];

static void run(const char *command)
{
    char line[512];
    snprintf(line, sizeof line, "cd %s && %s", root, command);
    assert_int_equal(system(line), 0);
}

/* A slot with a card in it, and the card's address among the devices. */
static int make_tree(void **state)
{
    (void)state;
    strcpy(root, "/tmp/k3-pcie-XXXXXX");
    if (!mkdtemp(root)) return 1;
    run("mkdir -p tree/slot/0000:c1:00.0 devices && ln -s ../tree/slot/0000:c1:00.0 devices/0000:c1:00.0");
    return 0;
}

static int remove_tree(void **state)
{
    (void)state;
    run("rm -r tree devices");
    return rmdir(root);
}

static void check(const char *address, struct k3_pcie want)
{
    char devices[80];
    snprintf(devices, sizeof devices, "%s/devices", root);
    struct k3_pcie got = k3_pcie_link(devices, address);
    assert_int_equal(got.generation, want.generation);
    assert_int_equal(got.width, want.width);
    assert_int_equal(got.max_width, want.max_width);
}

static void a_link_has_the_width_it_runs_at_and_the_generation_of_both_ends(void **state)
{
    (void)state;
    run("cd tree/slot/0000:c1:00.0; echo 8 >current_link_width; echo 16 >max_link_width;"
        "echo 32.0 GT/s PCIe >max_link_speed; echo 2.5 GT/s PCIe >current_link_speed");
    check("0000:C1:00.0", (struct k3_pcie){5, 8, 16});
    run("echo 16.0 GT/s PCIe >tree/slot/max_link_speed");
    check("0000:c1:00.0", (struct k3_pcie){4, 8, 16});
    run("echo 64.0 GT/s PCIe >tree/slot/max_link_speed");
    check("0000:c1:00.0", (struct k3_pcie){5, 8, 16});
    run("echo 2.5 GT/s PCIe >tree/slot/max_link_speed");
    check("0000:c1:00.0", (struct k3_pcie){1, 8, 16});
}

static void what_is_not_told_is_not_known(void **state)
{
    (void)state;
    check("0000:c1:00.0", (struct k3_pcie){0, 0, 0});
    check("0000:c2:00.0", (struct k3_pcie){0, 0, 0});
    run("cd tree/slot/0000:c1:00.0; echo 255 >current_link_width; echo Unknown >max_link_speed; "
        ">max_link_width");
    check("0000:c1:00.0", (struct k3_pcie){0, 0, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_link_has_the_width_it_runs_at_and_the_generation_of_both_ends,
                                        make_tree, remove_tree),
        cmocka_unit_test_setup_teardown(what_is_not_told_is_not_known, make_tree, remove_tree),
    };
    return cmocka_run_group_tests_name("links of PCIe devices", tests, NULL, NULL);
}
