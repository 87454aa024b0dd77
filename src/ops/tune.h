/* tune.h - how many threads are best on this machine. */
#ifndef K3_OPS_TUNE_H
#define K3_OPS_TUNE_H

/* The fewest threads that decode within 3 % of the fastest number of them, found by multiplying weights that come from
 * memory: up to 0.3 s and 256 MiB. On few processors, or with little memory, it is all of them, without measuring. */
int k3_best_threads(void);

/* Up to so many are all used, whatever memory does. */
#define K3_FEW_PROCESSORS 4

#endif
