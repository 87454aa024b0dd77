/* copy.cc - cp.async: a copy to shared memory writes when its thread waits for it, as late as it may.
 *
 * It counts as a write twice: when it starts, for then others must have read what was there before, and when it is
 * waited for, for only then a barrier shows it to others. */
#include "block.h"

#include <cstring>

namespace k3_simt
{

static const unsigned max_copies = 64;

struct copy {
    shared_memory *memory;
    size_t index;
    unsigned char bytes[16];
    unsigned group;
};

/* Of one thread: its copies in order, and the number of the group that it is making. */
static struct thread_copies {
    copy list[max_copies];
    unsigned n, group;
} copies[1024];
static bool any; /* copy was started */

static thread_copies *mine()
{
    return &copies[now.warp * 32 + now.lane];
}

void copy_forget()
{
    if (!any) return;
    any = false;
    for (thread_copies &c : copies) {
        for (unsigned i = 0; i < c.n; i++) c.list[i].memory->in_flight[c.list[i].index] = 0;
        c.n = c.group = 0;
    }
}

void copy_start(shared_memory *m, size_t index, const void *from)
{
    thread_copies *c = mine();
    if (c->n == max_copies) fail("it has more than %u elements under way", max_copies);
    check_shared_write(m, index);
    any = true;
    m->in_flight[index] = 1;
    copy *one = &c->list[c->n++];
    one->memory = m;
    one->index = index;
    one->group = c->group;
    memcpy(one->bytes, from, m->element);
}

void copy_end_group()
{
    mine()->group++;
}

void copy_wait(unsigned n_left)
{
    thread_copies *c = mine();
    unsigned done = 0;
    for (; done < c->n && c->list[done].group + n_left < c->group; done++) {
        const copy *one = &c->list[done];
        one->memory->in_flight[one->index] = 0;
        check_shared_write(one->memory, one->index);
        memcpy(one->memory->data + one->index * one->memory->element, one->bytes, one->memory->element);
    }
    c->n -= done;
    memmove(c->list, c->list + done, c->n * sizeof *c->list);
}

} // namespace k3_simt
