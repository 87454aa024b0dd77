/* lfru.h - the policy of frequency and recency, with its constants as arguments. */
#ifndef K3_STORE_LFRU_H
#define K3_STORE_LFRU_H

#include "store/policy.h"

/* `keep`: what is left of a request's weight one visit of its layer later, 0 .. 1. Without `recency` it is
 * plain decayed frequency. NULL: memory is out. */
struct k3_policy *k3_lfru_create(const struct k3_policy_shape *shape, double keep, bool recency);

/* How often `key` was asked for, with the weights of now. */
double k3_lfru_uses(const struct k3_policy *policy, uint32_t key);

/* Takes that over from an earlier time. `key` has no slot. */
void k3_lfru_remember(struct k3_policy *policy, uint32_t key, double uses);

#endif
