#include "primes.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

/* Return the value of a key, or NULL when it is absent or null. */
static const char *given(const char *context, const char *key) {
    const char *value = json_find(context, key);
    return json_is(value, "null") ? NULL : value;
}

bool order_of(const char *context, struct order *order, const char **trouble) {
    unsigned long long below = 1000, rounds = 1;
    const char *value;
    if ((value = given(context, "below")) && (!json_whole_number(value, &below) || below > SIZE_MAX)) {
        *trouble = "`below` must be a whole number of at least 0";
        return false;
    }
    if ((value = given(context, "rounds")) && (!json_whole_number(value, &rounds) || rounds == 0)) {
        *trouble = "`rounds` must be a whole number of at least 1";
        return false;
    }
    *order = (struct order){.below = (size_t)below, .rounds = rounds};
    if ((value = given(context, "report")) && !json_text(value, order->report, sizeof order->report)) {
        *trouble = "`report` must be the path of a folder";
        return false;
    }
    return true;
}

bool count_primes(size_t below, size_t *primes) {
    *primes = 0;
    if (below < 3) return true;
    unsigned char *composite = calloc(below, 1);
    if (!composite) return false;
    for (size_t number = 2; number < below; number++) {
        if (composite[number]) continue;
        ++*primes;
        /* This comparison cannot overflow, but the square can. */
        if (number > (below - 1) / number) continue;
        for (size_t multiple = number * number;; multiple += number) {
            composite[multiple] = 1;
            if (below - 1 - multiple < number) break;
        }
    }
    free(composite);
    return true;
}

bool report_file(const char *folder, const char *slot, char *into, size_t room) {
    int folder_length = (int)strlen(folder);
    while (folder_length > 0 && folder[folder_length - 1] == '/') folder_length--;
    int length = snprintf(into, room, "%.*s/primes-%s.json", folder_length, folder, slot);
    if (length < 0 || (size_t)length >= room) return false;
    for (char *at = into + folder_length; *at; at++) {
        if (*at == ':') *at = '-';
    }
    return true;
}
