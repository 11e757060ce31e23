/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The digest of a sparse file: SHA-256 over every 4 KiB page that is not all zeros (its number as 8 bytes, network order, then
 * its bytes; the last page is filled up with zeros), then over the file's size as 8 bytes. So holes cost nothing, and
 * a copy without holes has the same digest.
 */
#ifndef HUTCH_HOST_DIGEST_H
#define HUTCH_HOST_DIGEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DIGEST_HEX 64u

/* -1 with errno; ECANCELED when *cancel (may be NULL) was set meanwhile. *bytes (may be NULL): what was read. */
int digest_file(int fd, char out[DIGEST_HEX + 1], uint64_t *bytes, const atomic_bool *cancel);

/* SHA-256 over all of the file's bytes, as everybody takes it. The rest as above. */
int digest_plain(int fd, char out[DIGEST_HEX + 1], uint64_t *bytes, const atomic_bool *cancel);

typedef int digest_fn(int fd, char out[DIGEST_HEX + 1], uint64_t *bytes, const atomic_bool *cancel);

#endif
