/* block.cc - the scheduler of one block, and what its threads do together (block.h).
 *
 * Every thread runs until it has to wait for others. When none can go on, they wait for something that will not
 * come: a barrier that some of them do not reach. Threads run in the order of their numbers, always; that another
 * order could give another result is what the records of memory.h find out. */
#include "block.h"

#include "fiber.h"
#include "host.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace k3_simt
{

static const unsigned max_threads = 1024, warp_lanes = 32;

enum thread_state { READY, AT_BARRIER, IN_WARP, DONE };

struct thread {
    fiber stack;
    dim3 index;
    thread_state state;
    unsigned warp_interval;
    const char *what; /* it waits in */
    place at;
    unsigned mask;
    void *payload;
};

static struct launch {
    const char *kernel;
    dim3 blocks, threads;
    unsigned n_threads;
    void (*body)(void *);
    void *context;
} current;

static thread threads[max_threads];
static fiber host;
static thread *running; /* NULL: the host */
static unsigned n_done, n_at_barrier;
static unsigned waiting[max_threads / warp_lanes],
    gone[max_threads / warp_lanes]; /* lanes in a meeting; DONE ones */

position here;

/* ---- reports ---- */

static char report[1024], taken[1024];

bool failed()
{
    return report[0] != 0;
}

extern "C" const char *k3_simt_missing(void)
{
    return nullptr;
}

extern "C" const char *k3_simt_report(void)
{
    if (!failed()) return nullptr;
    memcpy(taken, report, sizeof taken);
    report[0] = 0;
    return taken;
}

void fail_on_host(const char *format, ...)
{
    if (failed()) return;
    va_list args;
    va_start(args, format);
    vsnprintf(report, sizeof report, format, args);
    va_end(args);
}

static void set_report(const thread *t, const char *sentence)
{
    if (failed()) return;
    snprintf(report, sizeof report, "%s, block (%u,%u,%u), thread (%u,%u,%u): %s", current.kernel,
             here.block.x, here.block.y, here.block.z, t->index.x, t->index.y, t->index.z, sentence);
}

void fail(const char *format, ...)
{
    char sentence[768];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    set_report(running, sentence);
    fiber_switch(&running->stack, &host);
    __builtin_unreachable(); /* the host drops every fiber of a launch that failed */
}

static const char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- threads ---- */

static unsigned number(const thread *t)
{
    return static_cast<unsigned>(t - threads);
}

/* Back to the scheduler, until `state` is READY again. */
static void wait_as(thread_state state)
{
    thread *me = running;
    me->state = state;
    fiber_switch(&me->stack, &host);
}

static void run_thread()
{
    fiber_entered();
    current.body(current.context);
    running->state = DONE;
    gone[now.warp] |= 1u << now.lane;
    n_done++;
    if (n_at_barrier) {
        const thread *t = threads;
        while (t->state != AT_BARRIER) t++;
        fail("it leaves the kernel while thread %u waits at the barrier in %s:%d", number(t),
             short_name(t->at.file), t->at.line);
    }
    fiber_switch(&running->stack, &host);
}

static void resume(thread *t)
{
    running = t;
    here.thread = t->index;
    now.warp = number(t) / warp_lanes;
    now.lane = number(t) % warp_lanes;
    now.warp_interval = t->warp_interval;
    fiber_switch(&host, &t->stack);
    running = nullptr;
}

/* No thread can go on. */
static void report_deadlock()
{
    const thread *first = nullptr, *other = nullptr;
    for (unsigned i = 0; i < current.n_threads; i++) {
        const thread *t = &threads[i];
        if (t->state == DONE) continue;
        if (!first)
            first = t;
        else if (t->at.line != first->at.line || t->what != first->what)
            other = t;
    }
    char sentence[512];
    if (other)
        snprintf(sentence, sizeof sentence,
                 "it waits in %s at %s:%d, and thread %u in %s at %s:%d: neither comes", first->what,
                 short_name(first->at.file), first->at.line, number(other), other->what,
                 short_name(other->at.file), other->at.line);
    else
        snprintf(sentence, sizeof sentence, "it waits in %s at %s:%d for lanes that do not come", first->what,
                 short_name(first->at.file), first->at.line);
    set_report(first, sentence);
}

static void run_block()
{
    now.block_start = ++now.interval;
    n_done = n_at_barrier = 0;
    copy_forget();
    memset(waiting, 0, sizeof waiting);
    memset(gone, 0, sizeof gone);
    for (unsigned i = 0; i < current.n_threads; i++) {
        thread *t = &threads[i];
        unsigned row = i / current.threads.x;
        t->index = dim3(i % current.threads.x, row % current.threads.y, row / current.threads.y);
        t->state = READY;
        t->warp_interval = 0;
        fiber_start(&t->stack, run_thread);
    }
    for (bool moved = true; n_done < current.n_threads && moved;) {
        moved = false;
        for (unsigned i = 0; i < current.n_threads; i++) {
            if (threads[i].state != READY) continue;
            moved = true;
            resume(&threads[i]);
            if (failed()) return;
        }
    }
    if (n_done < current.n_threads) report_deadlock();
}

/* ---- barriers and warps ---- */

void block_barrier(place at)
{
    thread *me = running;
    me->what = "the barrier";
    me->at = at;
    if (n_done)
        fail("it is at the barrier in %s:%d, but %u threads have left the kernel", short_name(at.file),
             at.line, n_done);
    for (unsigned i = 0; n_at_barrier && i < current.n_threads; i++)
        if (threads[i].state == AT_BARRIER) {
            if (threads[i].at.line == at.line) break;
            fail("it is at the barrier in %s:%d, but thread %u is at the one in line %d", short_name(at.file),
                 at.line, i, threads[i].at.line);
        }
    if (++n_at_barrier < current.n_threads) {
        wait_as(AT_BARRIER);
        return;
    }
    n_at_barrier = 0;
    now.interval++;
    for (unsigned i = 0; i < current.n_threads; i++) threads[i].state = READY;
}

/* That the lanes of `mask` can all come. */
static void check_lanes(const thread *me, const thread *lanes)
{
    unsigned n_lanes = current.n_threads - now.warp * warp_lanes, never = gone[now.warp];
    if (n_lanes < warp_lanes) never |= all_lanes << n_lanes;
    if (!(me->mask >> now.lane & 1))
        fail("lane %u is in %s in %s:%d, whose mask %08x leaves it out", now.lane, me->what,
             short_name(me->at.file), me->at.line, me->mask);
    if (me->mask & never) {
        unsigned l = static_cast<unsigned>(__builtin_ctz(me->mask & never));
        fail("%s in %s:%d waits for lane %u, which %s", me->what, short_name(me->at.file), me->at.line, l,
             lanes[l].state == DONE && l < n_lanes ? "has left the kernel" : "does not exist");
    }
}

/* That lane l waits in the same operation. */
static void check_same(const thread *me, const thread *lanes, unsigned l)
{
    const thread *other = &lanes[l];
    if (other->what != me->what || other->mask != me->mask || other->at.line != me->at.line)
        fail("it is in %s in %s:%d with mask %08x, but lane %u is in %s in line %d with mask %08x", me->what,
             short_name(me->at.file), me->at.line, me->mask, l, other->what, other->at.line, other->mask);
}

void warp_meet(const char *what, unsigned mask, void *payload, void (*compute)(void *const *, unsigned),
               place at)
{
    thread *me = running, *lanes = threads + now.warp * warp_lanes;
    unsigned *waits = &waiting[now.warp], met = *waits & mask;
    me->what = what;
    me->at = at;
    me->mask = mask;
    me->payload = payload;
    check_lanes(me, lanes);
    if (met) check_same(me, lanes, static_cast<unsigned>(__builtin_ctz(met)));
    if ((met | 1u << now.lane) != mask) {
        *waits |= 1u << now.lane;
        wait_as(IN_WARP);
        return;
    }
    void *payloads[warp_lanes] = {};
    for (unsigned l = 0; l < warp_lanes; l++) {
        if (!(mask >> l & 1)) continue;
        check_same(me, lanes, l);
        payloads[l] = lanes[l].payload;
    }
    compute(payloads, mask);
    for (unsigned l = 0; l < warp_lanes; l++)
        if (mask >> l & 1) lanes[l].state = READY;
    *waits &= ~mask;
}

void warp_barrier(unsigned mask, place at)
{
    warp_meet(
        "__syncwarp", mask, nullptr, [](void *const *, unsigned) {}, at);
    now.warp_interval = ++running->warp_interval;
}

/* ---- launches ---- */

bool begin_launch_of(const char *kernel, dim3 blocks, dim3 block_threads)
{
    size_t n = static_cast<size_t>(block_threads.x) * block_threads.y * block_threads.z;
    size_t n_blocks = static_cast<size_t>(blocks.x) * blocks.y * blocks.z;
    if (failed()) return false;
    if (n == 0 || n > max_threads || n_blocks == 0 || blocks.x > 0x7fffffff || blocks.y > 65535 ||
        blocks.z > 65535) {
        fail_on_host("%s is launched with (%u,%u,%u) blocks of (%u,%u,%u) threads, which no device takes",
                     kernel, blocks.x, blocks.y, blocks.z, block_threads.x, block_threads.y, block_threads.z);
        return false;
    }
    current.kernel = kernel;
    current.blocks = here.blocks = blocks;
    current.threads = here.threads = block_threads;
    current.n_threads = static_cast<unsigned>(n);
    now.launch_start = ++now.interval;
    return true;
}

void launch_run(void (*body)(void *), void *context)
{
    current.body = body;
    current.context = context;
    for (unsigned z = 0; z < current.blocks.z; z++)
        for (unsigned y = 0; y < current.blocks.y; y++)
            for (unsigned x = 0; x < current.blocks.x; x++) {
                if (failed()) return;
                here.block = dim3(x, y, z);
                run_block();
            }
}

} // namespace k3_simt
