/* The task's logic. It needs no host, so its tests run natively. */
#ifndef PRIMES_H
#define PRIMES_H

#include <stdbool.h>
#include <stddef.h>

/* The task's keys of the context. Other keys are ignored, because the host sets some. */
struct order {
    size_t below;
    unsigned long long rounds;
    /* The folder of reports in the sandbox; empty for no report. */
    char report[256];
};

/* Read the task's keys from `context`. Return false, with a message in `*trouble`, when the context is invalid. */
bool order_of(const char *context, struct order *order, const char **trouble);

/* Count the primes below `below` with the sieve of Eratosthenes, which needs one byte of memory for each number. Return
 * false when there is not enough memory. */
bool count_primes(size_t below, size_t *primes);

/* Store the file name of a slot's report in `into`. A repeated run overwrites the report. Return false when `into` is
 * too small. */
bool report_file(const char *folder, const char *slot, char *into, size_t room);

#endif
