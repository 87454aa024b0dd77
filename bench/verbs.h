/* verbs.h - what k3bench can do. Each verb has a file; argv[0] is the verb's name, and the exit status is
 * returned. */
#ifndef K3_BENCH_VERBS_H
#define K3_BENCH_VERBS_H

int k3_verb_decode(int argc, char **argv);
int k3_verb_prefill(int argc, char **argv);
int k3_verb_floats(int argc, char **argv);
int k3_verb_gpu(int argc, char **argv);
int k3_verb_kernels(int argc, char **argv);
int k3_verb_model_of(int argc, char **argv);
int k3_verb_plot(int argc, char **argv);
int k3_verb_policy(int argc, char **argv);
int k3_verb_io(int argc, char **argv);

#endif
