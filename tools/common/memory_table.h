/* memory_table.h - the plan of the memory, for people. */
#ifndef K3_TOOLS_MEMORY_TABLE_H
#define K3_TOOLS_MEMORY_TABLE_H

#include <k3/k3.h>

#define K3_MEMORY_TABLE_MAX 2048

/* Whole lines. Returns `out`. */
const char *k3_memory_table(const struct k3_memory_plan *memory, char out[K3_MEMORY_TABLE_MAX]);

#endif
