/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts every allocation of the process, those of shared libraries included: through the
 * sanitizer's hooks under ASan, else by standing in front of glibc's malloc.
 */
#ifndef HUTCH_TESTS_ALLOC_WATCH_H
#define HUTCH_TESTS_ALLOC_WATCH_H

#include <stddef.h>

struct alloc_watch {
	size_t count; /* allocations since the start */
	size_t bytes; /* asked for by them in all: never less than the peak */
};

void alloc_watch_start(void);
struct alloc_watch alloc_watch_stop(void);

#endif
