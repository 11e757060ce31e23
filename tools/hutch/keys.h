/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that detach a terminal, found in what is typed. */
#ifndef HUTCH_KEYS_H
#define HUTCH_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define KEYS_MAX     16
#define KEYS_DEFAULT "ctrl-p,ctrl-q"

struct keys {
	unsigned char seq[KEYS_MAX];
	size_t len; /* 0: nothing detaches */
	size_t at;  /* how many of them were typed, and are held back */
};

/*
 * Keys separated by commas, each one character or ctrl- and one of a-z @ [ \ ] ^ _; "" for none.
 * -1: text is not so, or there are too many.
 */
int keys_parse(struct keys *k, const char *text);
/*
 * What of in (n bytes) is to be passed on, in out (room for n + KEYS_MAX); *detach: the keys were
 * typed, what came after them is dropped. A beginning of them is held back until it is known what
 * follows.
 */
size_t keys_filter(struct keys *k, const char *in, size_t n, char *out, bool *detach);
/* What is held back, when nothing follows any more. */
size_t keys_flush(struct keys *k, char *out);

#endif
