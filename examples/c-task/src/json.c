#include "json.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *skip_blanks(const char *at) {
    while (*at && strchr(" \t\r\n", *at)) at++;
    return at;
}

/* Return the character after the JSON string at `at`, or the end of a truncated string. */
static const char *skip_text(const char *at) {
    for (at++; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1]) at++;
    }
    return *at ? at + 1 : at;
}

/* Return the character after the JSON value at `at`. */
static const char *skip_value(const char *at) {
    size_t depth = 0;
    do {
        at = skip_blanks(at);
        if (*at == '"') {
            at = skip_text(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            while (*at && !strchr(",:]}\" \t\r\n", *at)) at++;
        }
    } while (depth > 0 && *at);
    return at;
}

const char *json_find(const char *text, const char *key) {
    size_t length = strlen(key);
    const char *at = skip_blanks(text);
    if (*at != '{') return NULL;
    at = skip_blanks(at + 1);
    while (*at == '"') {
        const char *name = at + 1;
        at = skip_text(at);
        bool found = (size_t)(at - name) == length + 1 && !memcmp(name, key, length);
        at = skip_blanks(at);
        if (*at != ':') return NULL;
        at = skip_blanks(at + 1);
        if (found) return at;
        at = skip_blanks(skip_value(at));
        if (*at == ',') at = skip_blanks(at + 1);
    }
    return NULL;
}

bool json_whole_number(const char *value, unsigned long long *number) {
    if (!isdigit((unsigned char)*value)) return false;
    char *end;
    errno = 0;
    *number = strtoull(value, &end, 10);
    return errno == 0 && (!*end || strchr(",} \t\r\n", *end));
}

bool json_text(const char *value, char *into, size_t room) {
    if (*value != '"') return false;
    for (value++; *value && *value != '"'; value++) {
        char letter = *value;
        if (letter == '\\') {
            const char *known = strchr("\"\"\\\\//n\nt\t", *++value);
            if (!*value || !known) return false;
            letter = known[1];
        }
        if (room < 2) return false;
        *into++ = letter;
        room--;
    }
    *into = '\0';
    return *value == '"';
}

bool json_is(const char *value, const char *word) {
    return value && !strncmp(value, word, strlen(word));
}
