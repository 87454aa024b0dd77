/* warp.cc - what lanes of a warp compute from each other's values. */
#include "device.h"

namespace k3_simt
{

static void exchange(void *const *payloads, unsigned mask)
{
    for (unsigned l = 0; l < 32; l++) {
        shuffle_payload *to = static_cast<shuffle_payload *>(payloads[l]);
        if (!to) continue;
        to->inactive = to->source >= 32 || !(mask >> to->source & 1);
        if (!to->inactive)
            memcpy(to->result, static_cast<shuffle_payload *>(payloads[to->source])->value,
                   sizeof to->result);
    }
}

void shuffle(const char *what, unsigned mask, shuffle_payload *p, place at)
{
    warp_meet(what, mask, p, exchange, at);
    if (p->inactive)
        fail("%s in line %d takes a value from lane %u, which has no part in it (mask %08x)", what, at.line,
             p->source, mask);
}

/* ---- votes ---- */

struct ballot_payload {
    bool predicate;
    unsigned votes;
};

static void count_votes(void *const *payloads, unsigned)
{
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; l++)
        if (payloads[l] && static_cast<ballot_payload *>(payloads[l])->predicate) votes |= 1u << l;
    for (unsigned l = 0; l < 32; l++)
        if (payloads[l]) static_cast<ballot_payload *>(payloads[l])->votes = votes;
}

unsigned ballot(unsigned mask, bool predicate, place at)
{
    ballot_payload p{predicate, 0};
    warp_meet("a vote", mask, &p, count_votes, at);
    return p.votes;
}

/* ---- matrix products ---- */

/* Element (row, k) of A, (k, column) of B and (row, column) of C: whose they are, and which. The layout of
 * mma.m16n8k32 in the PTX manual, "Matrix Fragments". */
static void multiply_fragments(void *const *payloads, unsigned)
{
    for (unsigned row = 0; row < 16; row++)
        for (unsigned column = 0; column < 8; column++) {
            int sum = 0;
            for (unsigned k = 0; k < 32; k += 4) {
                const mma_payload *a = static_cast<mma_payload *>(payloads[row % 8 * 4 + k % 16 / 4]);
                const mma_payload *b = static_cast<mma_payload *>(payloads[column * 4 + k % 16 / 4]);
                sum = k3_dp4a(a->a[row / 8 + k / 16 * 2], b->b[k / 16], sum);
            }
            static_cast<mma_payload *>(payloads[row % 8 * 4 + column / 2])->c[row / 8 * 2 + column % 2] +=
                sum;
        }
}

void mma_s8(mma_payload *p, place at)
{
    warp_meet("a matrix product", all_lanes, p, multiply_fragments, at);
}

} // namespace k3_simt
