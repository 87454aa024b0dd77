/* exp, sigmoid, tanh and softplus against the C library in f64. */
#include "ops/vmath.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>

/* The error of y in units in the last place of the f32 nearest to `exact`. */
static double ulps(float y, double exact)
{
    float nearest = fabsf((float)exact);
    double unit = (double)(nextafterf(nearest, INFINITY) - nearest);
    return fabs((double)y - exact) / unit;
}

struct worst {
    double error;
    float x;
};

static void look(struct worst *w, float x, float y, double exact)
{
    double error = ulps(y, exact);
    if (!(error <= w->error)) *w = (struct worst){error, x};
}

static void check(const char *name, struct worst w, double limit)
{
    if (!(w.error <= limit))
        fail_msg("%s(%a) is off by %.3f ulp, more than %.3f", name, (double)w.x, w.error, limit);
}

static void functions_are_right_to_two_ulp(void **state)
{
    (void)state;
    struct worst e = {0, 0}, s = {0, 0}, t = {0, 0}, p = {0, 0};
    for (float x = -86.9f; x < 87.9f; x += 0.00173f) look(&e, x, k3_expf(x), exp((double)x));
    for (float x = -40; x < 40; x += 0.00091f) {
        look(&s, x, k3_sigmoid(x), 1 / (1 + exp(-(double)x)));
        look(&p, x, k3_softplus(x), log1p(exp((double)x)));
    }
    for (float x = 1e-20f; x < 20; x *= 1.0007f) {
        look(&t, x, k3_tanh(x), tanh((double)x));
        look(&t, -x, k3_tanh(-x), tanh(-(double)x));
    }
    check("expf", e, 2);
    check("sigmoid", s, 2.5);
    check("softplus", p, 1);
    check("tanh", t, 3);
}

static void extremes_stay_in_range(void **state)
{
    (void)state;
    assert_true(k3_expf(0) == 1);
    assert_true(k3_expf(-INFINITY) == 0 && k3_expf(-1000) == 0);
    assert_true(isfinite(k3_expf(INFINITY)) && k3_expf(INFINITY) == k3_expf(88));
    assert_true(k3_sigmoid(INFINITY) == 1 && k3_sigmoid(-INFINITY) < 1e-38f);
    assert_true(k3_tanh(0) == 0 && k3_tanh(INFINITY) == 1 && k3_tanh(-INFINITY) == -1);
    assert_true(k3_softplus(1000) == 1000 && k3_softplus(-1000) == 0);
    assert_true(isnan(k3_expf(NAN)) && isnan(k3_sigmoid(NAN)) && isnan(k3_tanh(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_right_to_two_ulp),
        cmocka_unit_test(extremes_stay_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
