/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small allocator: in the agent it stands in for the C library's, which weighs 8 KiB (see libc.c).
 *
 * How it works. A block has a header of 16 bytes. Up to ALLOC_SMALL bytes it is of one of some twenty sizes, four
 * per doubling, cut from chunks of 16 KiB that are never given back; a freed one waits in its size's list. Larger
 * ones are mappings of their own, given back at once, so that a burst of large buffers leaves nothing behind.
 * For one thread. A block that is freed twice, or was overrun backwards, ends the process.
 */
#ifndef HUTCH_GUEST_ALLOC_H
#define HUTCH_GUEST_ALLOC_H

#include <stddef.h>

#define ALLOC_SMALL 8176u

void *alloc_get(size_t n);	       /* NULL with ENOMEM */
void *alloc_get_zeroed(size_t n);      /* so */
void *alloc_resize(void *p, size_t n); /* as realloc(3); n is not 0 */
void alloc_put(void *p);	       /* NULL is harmless */

#endif
