/* version.c - the version of the library, as meson.build states it. */
#include <k3/k3.h>

const char *k3_version(void)
{
    return K3_VERSION;
}
