/* A minimal JSON parser, which finds the values of an object's keys. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Return the value of `key` in the object `text`, from its first character; or NULL when the key is absent or
 * `text` is not an object. Keys of inner objects are ignored. */
const char *json_find(const char *text, const char *key);

/* Store the whole number `value` in `*number`. Return false when it is not a whole number of at least 0. */
bool json_whole_number(const char *value, unsigned long long *number);

/* Store the string `value` in `into`, with a terminating zero. Return false when it is not a string or does not fit. Escapes of
 * characters beyond ASCII are not supported, because the paths and times of this task have none. */
bool json_text(const char *value, char *into, size_t room);

bool json_is(const char *value, const char *word);

#endif
