/* The JSON that a context needs: the values of an object's keys. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Return the value of `key` in the object `text`, from its first character; NULL when the key is absent or
 * `text` is no object. Keys of inner objects do not count. */
const char *json_find(const char *text, const char *key);

/* Whether `value` is a whole number of at least 0, stored in `*number`. */
bool json_whole_number(const char *value, unsigned long long *number);

/* Whether `value` is a text that fits into `into`, where it is stored with a terminating zero. Escapes of characters beyond ASCII are
 * refused: the paths and times of this task have none. */
bool json_text(const char *value, char *into, size_t room);

bool json_is(const char *value, const char *word);

#endif
