/* Counts primes: an ordinary program. It reads its context from stdin and prints its output on stdout. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "primes.h"

/* Exit codes. All codes but 0 are failures, with the last line on stderr as the message. */
enum { DONE = 0, FAILED = 1, BAD_CONTEXT = 65 };

/* Read all of stdin, with a terminating zero. */
static char *read_context(void) {
    size_t room = 4096, length = 0, more;
    char *text = malloc(room);
    while (text && (more = fread(text + length, 1, room - length - 1, stdin)) > 0) {
        length += more;
        if (length == room - 1) text = realloc(text, room *= 2);
    }
    if (text) text[length] = '\0';
    return text;
}

static int write_report(const char *folder, const char *slot, const char *result) {
    char path[512];
    if (!report_file(folder, slot, path, sizeof path)) {
        fputs("the path of the report is too long\n", stderr);
        return BAD_CONTEXT;
    }
    FILE *file = fopen(path, "w");
    if (!file || fputs(result, file) < 0 || fclose(file) != 0) {
        fprintf(stderr, "%s cannot be written: ", path);
        perror(NULL);
        return FAILED;
    }
    return DONE;
}

int main(void) {
    const char *context = read_context(), *trouble;
    struct order order;
    if (!context) {
        fputs("no memory for the context\n", stderr);
        return FAILED;
    }
    if (!order_of(context, &order, &trouble)) {
        fprintf(stderr, "the context: %s\n", trouble);
        return BAD_CONTEXT;
    }
    size_t primes = 0;
    for (unsigned long long round = 0; round < order.rounds; round++) {
        if (!count_primes(order.below, &primes)) {
            fprintf(stderr, "no memory for a sieve of %zu numbers\n", order.below);
            return FAILED;
        }
    }
    /* The host sets these keys. The slot is the same for every run of a launch. */
    char slot[64] = "";
    unsigned long long attempt = 1;
    const char *value;
    if ((value = json_find(context, "original_scheduled_time"))) json_text(value, slot, sizeof slot);
    if ((value = json_find(context, "attempt"))) json_whole_number(value, &attempt);
    const char *is_recovery = json_is(json_find(context, "is_recovery"), "true") ? "true" : "false";
    /* The result does not depend on the run, so a repeated run leaves the same result. */
    char result[512];
    int length = snprintf(result, sizeof result, "{\"below\":%zu,\"primes\":%zu,\"slot\":\"%s\"}\n", order.below, primes, slot);
    if (order.report[0]) {
        int code = write_report(order.report, slot, result);
        if (code != DONE) return code;
    }
    /* Print the same object with more keys before its closing brace. */
    printf("%.*s,\"is_recovery\":%s,\"attempt\":%llu}\n", length - 2, result, is_recovery, attempt);
    return DONE;
}
