/* Native tests of the task's logic. The program prints nothing and returns 0 when they pass. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "primes.h"

/* A release build removes `assert`. */
#define CHECK(holds)                                                       \
    do {                                                                   \
        if (!(holds)) {                                                    \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static size_t primes_below(size_t below) {
    size_t primes;
    CHECK(count_primes(below, &primes));
    return primes;
}

static bool refused(const char *context, const char *key) {
    struct order order;
    const char *trouble = "";
    return !order_of(context, &order, &trouble) && strstr(trouble, key);
}

int main(void) {
    CHECK(primes_below(0) == 0 && primes_below(2) == 0 && primes_below(3) == 1);
    CHECK(primes_below(4) == 2 && primes_below(10) == 4 && primes_below(1000) == 168);

    struct order order;
    const char *trouble;
    CHECK(order_of("{\"schedule\": {\"below\": 7, \"x\": [\"}\", {}]}, \"report\": null}", &order, &trouble));
    CHECK(order.below == 1000 && order.rounds == 1 && !order.report[0]);
    CHECK(order_of(" { \"below\" : 10, \"note\": \"\\\"below\\\": 3\", \"report\": \"\\/out\"}", &order, &trouble));
    CHECK(order.below == 10 && !strcmp(order.report, "/out"));
    CHECK(refused("{\"below\": \"many\"}", "`below`") && refused("{\"below\": -1}", "`below`"));
    CHECK(refused("{\"below\": 1.5}", "`below`") && refused("{\"rounds\": 0}", "`rounds`"));
    CHECK(refused("{\"report\": 7}", "`report`"));

    char path[64];
    CHECK(report_file("/reports/", "2026-11-21T02:00:00Z", path, sizeof path));
    CHECK(!strcmp(path, "/reports/primes-2026-11-21T02-00-00Z.json"));
    CHECK(!report_file("/reports", "2026-11-21T02:00:00Z", path, 20));

    CHECK(!json_find("[1]", "a") && !json_find("{\"a\"", "a") && !json_find("", "a"));
    return 0;
}
