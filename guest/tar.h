/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar archives as a stream (POSIX.1-2017 pax, ustar and pax formats; the GNU tar manual, "Tar Internals").
 *
 * Read: ustar, pax, GNU long names, sparse files of the kinds that GNU tar writes by default (old GNU and pax 1.0).
 * Written: ustar, with a pax header where ustar cannot say it.
 */
#ifndef HUTCH_GUEST_TAR_H
#define HUTCH_GUEST_TAR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define TAR_BLOCK 512u
/* Of a pax header or a GNU long name; larger is an error. */
#define TAR_MAX_EXTENDED (256u << 10)
/* Stretches of data in a sparse file; more are an error. */
#define TAR_MAX_STRETCHES 65536u

struct tar_stretch {
	uint64_t at, size;
};

struct tar_entry {
	char type; /* as in the header, but '0' for every kind of regular file */
	mode_t mode;
	uint32_t uid, gid;
	uint64_t size; /* of the file, holes included */
	struct timespec mtime;
	char path[PATH_MAX];
	char link[PATH_MAX]; /* empty: none */
};

struct tar_reader {
	/* The next bytes of the archive, at most max; 0 at its end, -1: it cannot be read. */
	ssize_t (*next)(void *arg, const uint8_t **p, size_t max);
	void *arg;
	const char *wrong; /* what is wrong with the archive; NULL: next failed */

	uint64_t left, padding; /* of the member's data in the archive */
	bool sparse;
	struct tar_stretch *map; /* of a sparse file */
	uint32_t nmap, cap_map, at_map;
	uint64_t at; /* where in the file the next byte belongs */
	char *extended;
};

/* The next member, after what is left of the one before. 1; 0: the archive's end was there; -1. */
int tar_next(struct tar_reader *r, struct tar_entry *e);
/* The next piece of the member's data, and its offset in the file. Its length; 0: no more; -1. */
ssize_t tar_data(struct tar_reader *r, const uint8_t **p, uint64_t *at);
void tar_free(struct tar_reader *r);

/* The most that tar_put writes. */
#define TAR_MAX_HEAD (4u * PATH_MAX)

/*
 * The header of e into h, behind a pax header where ustar cannot say it all. data: the bytes that follow it in the
 * archive. sparse: they start with a map, as tar_put_map makes it. dev: of a device. Returns its length, whole blocks.
 */
size_t tar_put(uint8_t h[TAR_MAX_HEAD], const struct tar_entry *e, uint64_t data, bool sparse,
	       dev_t dev);
/* A number and a newline, at most 21 bytes; what a sparse file's map consists of. Returns its length. */
size_t tar_put_number(uint8_t *p, uint64_t v);

#endif
