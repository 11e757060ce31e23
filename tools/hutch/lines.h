/* SPDX-License-Identifier: Apache-2.0 */
/* A map as lines of "key: value", for people. */
#ifndef HUTCH_LINES_H
#define HUTCH_LINES_H

#include "tools/client/hutch.h"

void lines_print(const struct hutch_value *map);
void line_print(const char *key, const struct hutch_value *v);
void line_value(const struct hutch_value *v); /* without the newline */

#endif
