/* The work itself. It needs no host, so its tests run anywhere. */
#ifndef PRIMES_H
#define PRIMES_H

#include <stdbool.h>
#include <stddef.h>

/* This task's keys of the context. It ignores other keys: some are the host's. */
struct order {
    size_t below;
    unsigned long long rounds;
    /* The folder of reports in the sandbox; empty for no report. */
    char report[256];
};

/* Read the order from `context`. Return false, with a message in `*trouble`, when its shape is wrong. */
bool order_of(const char *context, struct order *order, const char **trouble);

/* Count the primes below `below` with the sieve of Eratosthenes: one byte of memory for each number. False
 * without enough memory. */
bool count_primes(size_t below, size_t *primes);

/* One name for each slot: a repeated run overwrites its report. False when `into` is too
 * small. */
bool report_file(const char *folder, const char *slot, char *into, size_t room);

#endif
