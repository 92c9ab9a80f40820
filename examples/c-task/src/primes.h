/* The work itself: knows no host, and so is tested anywhere. */
#ifndef PRIMES_H
#define PRIMES_H

#include <stdbool.h>
#include <stddef.h>

/* This task's own keys of the context. Others are left alone: the host has its own there. */
struct order {
    size_t below;
    unsigned long long rounds;
    /* The folder of reports, as the sandbox shows it; empty when there is to be none. */
    char report[256];
};

/* Read the order out of `context`. False, with a sentence in `*trouble`, when it is not what this task takes. */
bool order_of(const char *context, struct order *order, const char **trouble);

/* Count the primes below `below` with the sieve of Eratosthenes: one byte of memory for each number. False when
 * there is not so much memory. */
bool count_primes(size_t below, size_t *primes);

/* One name for each slot, so that a second run of it overwrites its report and adds none. False when `into` is too
 * small. */
bool report_file(const char *folder, const char *slot, char *into, size_t room);

#endif
