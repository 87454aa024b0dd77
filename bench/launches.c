/* launches.c - the walk of src/gpu/ for one token, as formulas: device.c and attention.c say why each launch is there, the
 * heads of kernels/ what it reads and writes. */
#include "launches.h"

#include "synth.h"

#include <math.h>

/* Times that no byte or operation explains, on a device of 2.3 GHz. Assumed, not measured. */
#define TRIP   0.7e-6 /* to device memory and back, after the first of a launch */
#define STEP   2e-9   /* an addition that waits for the one before, 4 cycles, fed from shared memory */
#define ONE_SM 100e9  /* bytes a second that one multiprocessor gets from the cache */
#define TAIL                                                                                                 \
    1e-6 /* at the end of a large product the last blocks of threads are too few for all the memory */

#define F32      4.0
#define Q8_0     (34.0 / 32) /* bytes of a weight */
#define ACT      (36.0 / 32) /* of a rounded activation */
#define FEW_ROWS 4096        /* multiply_f32.cu */
#define GROUP    64.0        /* keys of MLA that share a maximum */

struct matrix {
    double rows, cols;
    bool q8_0;
};

struct walk {
    const struct k3_hparams *hp;
    const struct k3_plan *plan; /* NULL: the types of the published file */
    uint32_t layer;
    double n_bank;
    struct k3_gpu_token *token;
};

/* ---- what there is ---- */

/* attn_kv_b is divided when it is loaded. */
static void divide(const struct k3_hparams *hp, enum k3_role role, struct matrix *m)
{
    bool keys = role == K3_MLA_K_B;
    m->rows = (double)hp->n_heads * (keys ? hp->kv_rank : hp->v_dim);
    m->cols = keys ? hp->qk_dim - hp->pe_dim : hp->kv_rank;
    if (keys) m->q8_0 = false;
}

/* False if the layer has no such matrix. */
static bool find(const struct walk *w, enum k3_role role, struct matrix *m)
{
    char name[K3_GGUF_NAME_MAX + 1];
    uint64_t ne[K3_GGUF_MAX_DIMS];
    uint32_t n_dims;
    if (!w->plan) {
        if (!k3_role_describe(w->hp, role, w->layer, name, ne, &n_dims)) return false;
        *m = (struct matrix){(double)ne[1] * (double)ne[2], (double)ne[0],
                             k3_synth_type(role) == K3_TYPE_Q8_0};
        return true;
    }
    const struct k3_gguf_tensor *t = k3_plan_tensor(w->plan, w->layer, role);
    bool joint = !t && (role == K3_MLA_K_B || role == K3_MLA_V_B);
    if (joint) t = k3_plan_tensor(w->plan, w->layer, K3_MLA_KV_B);
    if (!t) return false;
    *m = (struct matrix){(double)t->ne[1] * (double)t->ne[2], (double)t->ne[0],
                         t->type == K3_TYPE_Q8_0 && role != K3_ROUTER};
    if (joint) divide(w->hp, role, m);
    return true;
}

static bool takes_acts(const struct walk *w, enum k3_role role)
{
    struct matrix m;
    return find(w, role, &m) && m.q8_0;
}

static void add(struct walk *w, struct k3_gpu_work one)
{
    struct k3_gpu_token *t = w->token;
    uint32_t i = 0;
    while (i < t->n_works && t->works[i].name != one.name) i++;
    if (i == t->n_works) t->works[t->n_works++] = (struct k3_gpu_work){.name = one.name, .kind = one.kind};
    struct k3_gpu_work *sum = &t->works[i];
    sum->calls += 1;
    sum->bytes += one.bytes;
    sum->key_bytes += one.key_bytes;
    sum->ops += one.ops;
    sum->key_ops += one.key_ops;
    sum->chain_s += one.chain_s;
    sum->key_s += one.key_s;
}

/* Names are compared by address. */
static const char MULTIPLY[] = "multiply", MULTIPLY_ROW[] = "multiply_row", MULTIPLY_ROWS[] = "multiply_rows",
                  ROUND[] = "round_blocks", NORM[] = "rms_norm", MIX[] = "mix", ADD[] = "add",
                  SITU[] = "situ", GATE[] = "gate", ROUTE[] = "route", PREPARE[] = "prepare",
                  RECUR[] = "recur", STORE[] = "store", SCORES[] = "scores", WEIGH[] = "weigh",
                  VALUES[] = "values", ROWS[] = "rows", PUT[] = "put", GET[] = "get", COPY[] = "copy",
                  WAIT[] = "wait";

/* ---- products ---- */

static void multiply_f32(struct walk *w, struct matrix m, double n_heads)
{
    add(w, (struct k3_gpu_work){.name = m.rows <= FEW_ROWS ? MULTIPLY_ROW : MULTIPLY_ROWS,
                                .bytes = F32 * (m.rows * m.cols + n_heads * m.cols + m.rows),
                                .ops = 2 * m.rows * m.cols,
                                .chain_s = TAIL});
}

/* dp4a takes 4 weights, and a block's term 4 more operations. */
static struct k3_gpu_work multiply_q8_0(struct matrix m)
{
    return (struct k3_gpu_work){.name = MULTIPLY,
                                .bytes = Q8_0 * m.rows * m.cols + F32 * m.rows,
                                .ops = m.rows * m.cols * (8 + 4) / 32,
                                .chain_s = TAIL};
}

static void round_acts(struct walk *w, double n)
{
    add(w, (struct k3_gpu_work){.name = ROUND, .bytes = (F32 + ACT) * n, .ops = 30 * n});
}

/* All matrices of one x. */
static void products(struct walk *w, const enum k3_role *roles, size_t n_roles, bool rounded)
{
    struct k3_gpu_work together = {.name = MULTIPLY, .chain_s = TAIL};
    for (size_t i = 0; i < n_roles; i++) {
        struct matrix m;
        if (!find(w, roles[i], &m)) continue;
        if (!m.q8_0) {
            multiply_f32(w, m, 1);
            continue;
        }
        if (together.bytes == 0) together.bytes = ACT * m.cols;
        if (!rounded) round_acts(w, m.cols);
        rounded = true;
        together.bytes += multiply_q8_0(m).bytes;
        together.ops += multiply_q8_0(m).ops;
    }
    if (together.bytes > 0) add(w, together);
}

static void product(struct walk *w, enum k3_role role, bool rounded)
{
    products(w, &role, 1, rounded);
}

static void elements(struct walk *w, const char *name, double n, double ops, bool rounded)
{
    add(w, (struct k3_gpu_work){.name = name, .bytes = (3 * F32 + (rounded ? ACT : 0)) * n, .ops = ops * n});
}

/* y += plus + W x; plus may be missing. */
static void product_add(struct walk *w, enum k3_role role, bool rounded, bool plus)
{
    struct matrix m;
    if (!find(w, role, &m)) return;
    if (!m.q8_0) {
        multiply_f32(w, m, 1);
        if (plus) elements(w, ADD, m.rows, 1, false);
        elements(w, ADD, m.rows, 1, false);
        return;
    }
    if (!rounded) round_acts(w, m.cols);
    struct k3_gpu_work one = multiply_q8_0(m);
    one.bytes += ACT * m.cols + F32 * m.rows * (plus ? 2 : 1);
    add(w, one);
}

static void product_heads(struct walk *w, enum k3_role role, bool rounded)
{
    struct matrix m;
    double heads = w->hp->n_heads;
    if (!find(w, role, &m)) return;
    if (!m.q8_0) {
        multiply_f32(w, m, heads);
        return;
    }
    if (!rounded) round_acts(w, heads * m.cols);
    struct k3_gpu_work one = multiply_q8_0(m);
    one.bytes += ACT * heads * m.cols;
    add(w, one);
}

/* ---- norms ---- */

static double x_acts(const struct walk *w)
{
    return w->hp->n_embd % 32 == 0 ? ACT * w->hp->n_embd : 0;
}

static void rms_norm(struct walk *w, double rows, double width, bool gated, double acts)
{
    add(w, (struct k3_gpu_work){.name = NORM,
                                .bytes = F32 * (rows * width * (gated ? 3 : 2) + width) + acts,
                                .ops = rows * width * (gated ? 50 : 30),
                                .chain_s = TRIP + STEP * width / 16});
}

/* Two tiles of two dots, the softmax, the sum of the sources by one multiprocessor, the norm of what it has at hand. The dots of the next mix are
 * taken beside. */
static void mix(struct walk *w, bool last)
{
    double width = w->hp->n_embd, row = F32 * width, sources = w->n_bank + 1;
    if (!w->hp->res_block || (last && w->n_bank == 0)) {
        if (last) add(w, (struct k3_gpu_work){.name = COPY, .bytes = row});
        rms_norm(w, 1, width, false, x_acts(w));
        return;
    }
    bool first = w->layer == 0 && w->n_bank == 0 && !last;
    double known = first ? 0 : F32 * w->n_bank, next = last ? 0 : row + F32 * sources;
    add(w,
        (struct k3_gpu_work){.name = MIX,
                             .bytes = row * sources + row * 2 + row * 2 + x_acts(w) + known + next +
                                      F32 * (w->n_bank + 1) + (last ? F32 : 0),
                             .ops = width * (4 * sources + 30),
                             .chain_s = 2 * TRIP + STEP * (width / 16 * 2 + 200) + row * sources / ONE_SM});
}

/* ---- sublayers ---- */

static void kda(struct walk *w)
{
    static const enum k3_role inputs[] = {K3_KDA_Q, K3_KDA_K, K3_KDA_V, K3_KDA_GATE, K3_KDA_F_A, K3_KDA_BETA};
    const struct k3_hparams *hp = w->hp;
    double heads = hp->n_heads, dim = hp->kda_dim, wide = heads * dim, kept = hp->conv_taps - 1.0;
    bool rounded = takes_acts(w, K3_ATTN_OUTPUT);
    products(w, inputs, sizeof inputs / sizeof *inputs, true);
    bool within = takes_acts(w, K3_KDA_F_B);
    double f_b = within ? Q8_0 * wide * dim + F32 * dim : F32 * wide; /* or what it was made of apart */
    if (!within) product(w, K3_KDA_F_B, false);
    /* z, taps, u; both ways of history and beta; alpha; a and dt. */
    double values = wide * (3 + 3 * (kept + 1) + 3 + 6 * kept + 1 + 1) + 3 * heads;
    add(w, (struct k3_gpu_work){.name = PREPARE,
                                .bytes = F32 * values + f_b,
                                .ops = wide * (150 + dim / 4),
                                .chain_s = TRIP + STEP * (dim / 16 + 100)});
    /* The dots of A and P before, then the chain over keys. */
    add(w, (struct k3_gpu_work){.name = RECUR,
                                .bytes = F32 * (2 * wide * dim + 5 * wide + heads),
                                .ops = wide * dim * 7,
                                .chain_s = TRIP + STEP * (2 * dim / 16 + dim + 50)});
    rms_norm(w, heads, dim, true, rounded ? ACT * wide : 0);
}

/* The scores of a key: queries are loaded from shared memory half as often as multiplied. Values: 128 keys take a trip. */
static void attend(struct walk *w)
{
    const struct k3_hparams *hp = w->hp;
    double heads = hp->n_heads, rank = hp->kv_rank, pe = hp->pe_dim, width = rank + pe;
    add(w, (struct k3_gpu_work){.name = SCORES,
                                .bytes = F32 * heads * width,
                                .key_bytes = 2 * width + F32 * heads * (1 + 1 / GROUP),
                                .key_ops = 3 * heads * width,
                                .chain_s = 16 * STEP * width / 16});
    add(w, (struct k3_gpu_work){.name = WEIGH,
                                .key_bytes = F32 * heads * (2 + 3 / GROUP),
                                .key_ops = 40 * heads,
                                .chain_s = 2 * TRIP});
    add(w, (struct k3_gpu_work){.name = VALUES,
                                .bytes = (F32 + (takes_acts(w, K3_MLA_V_B) ? ACT : 0)) * heads * rank,
                                .key_bytes = 2 * rank + F32 * heads * (1 + 2 / GROUP),
                                .key_ops = 3 * heads * rank,
                                .chain_s = TRIP,
                                .key_s = TRIP / 128});
}

static void mla(struct walk *w)
{
    static const enum k3_role inputs[] = {K3_MLA_KV_A, K3_MLA_Q_A, K3_MLA_Q, K3_MLA_GATE};
    const struct k3_hparams *hp = w->hp;
    double width = hp->kv_rank + hp->pe_dim, out = (double)hp->n_heads * hp->v_dim;
    struct matrix gate;
    bool rounded = takes_acts(w, K3_ATTN_OUTPUT);
    products(w, inputs, sizeof inputs / sizeof *inputs, true);
    if (hp->q_rank) {
        bool acts = takes_acts(w, K3_MLA_Q_B);
        rms_norm(w, 1, hp->q_rank, false, acts ? ACT * hp->q_rank : 0);
        product(w, K3_MLA_Q_B, acts);
    }
    rms_norm(w, 1, hp->kv_rank, false, 0);
    add(w, (struct k3_gpu_work){.name = STORE, .bytes = 6 * width});
    product_heads(w, K3_MLA_K_B, false);
    attend(w);
    product_heads(w, K3_MLA_V_B, true);
    if (find(w, K3_MLA_GATE, &gate))
        elements(w, GATE, out, 30, rounded);
    else if (rounded)
        round_acts(w, out);
}

static void mlp(struct walk *w, enum k3_role gate, enum k3_role up, enum k3_role down)
{
    struct matrix m;
    const enum k3_role both[] = {gate, up};
    if (!find(w, gate, &m)) return;
    products(w, both, 2, true);
    elements(w, SITU, m.rows, 60, takes_acts(w, down));
}

static void moe(struct walk *w)
{
    const struct k3_hparams *hp = w->hp;
    double experts = hp->n_experts, given = F32 * (2.0 * hp->top_k + hp->latent);
    struct matrix norm;
    product(w, K3_ROUTER, true);
    add(w, (struct k3_gpu_work){.name = ROUTE,
                                .bytes = F32 * 3 * experts + 8.0 * hp->top_k,
                                .ops = 4 * experts * experts,
                                .chain_s = TRIP + STEP * experts});
    if (hp->has_latent)
        product(w, K3_LATENT_DOWN, true);
    else
        add(w, (struct k3_gpu_work){.name = COPY, .bytes = F32 * hp->latent});
    add(w, (struct k3_gpu_work){.name = GET, .kind = K3_GPU_TRANSFER, .bytes = given});
    add(w, (struct k3_gpu_work){.name = WAIT, .kind = K3_GPU_WAIT});
    mlp(w, K3_SHARED_GATE, K3_SHARED_UP, K3_SHARED_DOWN);
    product(w, K3_SHARED_DOWN, true);

    bool acts = false;
    add(w, (struct k3_gpu_work){.name = PUT, .kind = K3_GPU_TRANSFER, .bytes = F32 * hp->latent});
    if (find(w, K3_LATENT_NORM, &norm)) {
        acts = takes_acts(w, K3_LATENT_UP);
        rms_norm(w, 1, hp->latent, false, acts ? ACT * hp->latent : 0);
    }
    if (hp->has_latent) {
        product_add(w, K3_LATENT_UP, acts, true);
        return;
    }
    elements(w, ADD, hp->n_embd, 1, false);
    elements(w, ADD, hp->n_embd, 1, false);
}

/* ---- the walk ---- */

static void layer(struct walk *w)
{
    const struct k3_hparams *hp = w->hp;
    bool fresh = hp->res_block && w->layer % hp->res_block == 0;
    mix(w, false);
    if (fresh) w->n_bank++;
    if (hp->is_mla[w->layer])
        mla(w);
    else
        kda(w);
    if (fresh)
        product(w, K3_ATTN_OUTPUT, true);
    else
        product_add(w, K3_ATTN_OUTPUT, true, false);

    mix(w, false);
    if (w->layer >= hp->n_dense_layers) {
        moe(w);
        return;
    }
    mlp(w, K3_FFN_GATE, K3_FFN_UP, K3_FFN_DOWN);
    product_add(w, K3_FFN_DOWN, true, false);
}

static void embed(struct walk *w)
{
    struct matrix table;
    double width = w->hp->n_embd;
    if (!find(w, K3_TOKEN_EMBD, &table)) return;
    if (!table.q8_0) {
        add(w, (struct k3_gpu_work){.name = COPY, .bytes = F32 * width});
        return;
    }
    add(w, (struct k3_gpu_work){.name = PUT, .kind = K3_GPU_TRANSFER, .bytes = 4});
    add(w, (struct k3_gpu_work){.name = ROWS, .bytes = 4 + Q8_0 * width + F32 * width});
}

static void walk(struct walk *w)
{
    *w->token = (struct k3_gpu_token){0};
    embed(w);
    for (; w->layer < w->hp->n_layers; w->layer++) layer(w);
    w->layer = 0; /* what follows is the model's */
    if (w->n_bank > 0) add(w, (struct k3_gpu_work){.name = PUT, .kind = K3_GPU_TRANSFER, .bytes = 4});
    mix(w, true);
    product(w, K3_OUTPUT, true);
    add(w, (struct k3_gpu_work){.name = GET, .kind = K3_GPU_TRANSFER, .bytes = F32 * w->hp->n_vocab});
    add(w, (struct k3_gpu_work){.name = WAIT, .kind = K3_GPU_WAIT});
}

void k3_gpu_token_of_sizes(const struct k3_hparams *hp, struct k3_gpu_token *token)
{
    walk(&(struct walk){.hp = hp, .token = token});
}

void k3_gpu_token_of_plan(const struct k3_plan *plan, struct k3_gpu_token *token)
{
    walk(&(struct walk){.hp = &plan->hp, .plan = plan, .token = token});
}
