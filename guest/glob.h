/* SPDX-License-Identifier: Apache-2.0 */
/* Shell patterns. */
#ifndef HUTCH_GUEST_GLOB_H
#define HUTCH_GUEST_GLOB_H

#include <stdbool.h>

/*
 * As fnmatch(3) without flags: * ? [set] [!set] and backslash, on bytes; '/' and a leading '.' are nothing special.
 * Classes such as [:alpha:] are not known. Time is at most the product of the lengths.
 */
bool glob_match(const char *pattern, const char *s);

#endif
