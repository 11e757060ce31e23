/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much all users together and each uid may have: one table, set by the configuration file, told by broker.limits.
 * What is over a uid's own limit is HUTCH_E_QUOTA, what is over that of all HUTCH_E_BUSY; what passes by itself in a moment
 * (creates per second) is HUTCH_E_BUSY too, and says when. Root and admins have no limit of their own.
 */
#ifndef HUTCH_HOST_LIMITS_H
#define HUTCH_HOST_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/codec.h"
#include "protocol/error.h"

struct broker;
struct client;
struct config;

/* Members of struct config, by these names; 0: no limit. */
struct limit_values {
	unsigned max_vms, max_memory_mib, max_vcpus, max_clients, max_calls, max_creates;
	unsigned max_snapshot_mib;
	unsigned uid_vms, uid_memory_mib, uid_vcpus, uid_clients, uid_calls, uid_creates;
	unsigned uid_snapshot_mib;
};

void limits_defaults(struct limit_values *v);
/* Set one from the configuration. 1: there is none of that name. -1 with err. */
int limits_set(struct limit_values *v, const char *key, const char *value, struct hutch_error *err);

/* Creates of one uid (or of all) in the last second: a bucket that fills again. */
struct limit_rate {
	uint32_t uid;
	bool used;
	uint64_t
		empty_us; /* clock_us when it is as good as new: a create moves it on by a second's share */
};
#define LIMIT_RATES 64u /* uids that create at a time; the one that is quiet longest is forgotten */
struct limit_rates {
	struct limit_rate all, uids[LIMIT_RATES];
};

/* May this uid have one more such VM? new_one: it is to be made, not taken from a pool. -1 with err. */
int limits_check_vm(const struct broker *b, uint32_t uid, uint32_t memory_mib, uint32_t vcpus,
		    bool new_one, struct hutch_error *err);
/* May a parked VM have its memory and CPUs again? -1 with err. */
int limits_check_wake(const struct broker *b, uint32_t uid, uint32_t memory_mib, uint32_t vcpus,
		      struct hutch_error *err);
/* One create more, if that is not too many a second. -1 with err. */
int limits_take_create(struct broker *b, uint32_t uid, struct hutch_error *err);
/* A connection of this uid, which is not counted yet. -1 with err. */
int limits_check_client(const struct broker *b, uint32_t uid, struct hutch_error *err);
/* One more call to an agent, of this client. -1 with err. */
int limits_check_call(const struct client *c, struct hutch_error *err);
/*
 * May this uid keep a snapshot with the files of the directory (-1: it is still to be made; there must be room for some)?
 * -1 with err.
 */
int limits_check_snapshot(const struct broker *b, uint32_t uid, int files, struct hutch_error *err);

/* broker.limits' array: every row with its value and how much of it this uid uses. */
void limits_put(struct mp_buf *out, const struct broker *b, uint32_t uid);

#endif
