/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: VMs of a template that were restored, or forked off its zygote, said hello, ran what a first call would run (agent.warm), and wait. Taking
 * one is to give it its identity, which takes about a millisecond.
 *
 * Nobody sees them before that; they belong to no user, have no identity, and live on a lease: their dead-man's timer is
 * renewed, so that they end soon after a broker that does not come back. The next broker ends those it finds.
 *
 * Filled, where there can be a zygote, once there is one; one at a time, a moment after one was taken, so that whoever took it has the CPU; a failure is followed by a pause that
 * doubles from 1 to 60 s. A VM of another snapshot than the template has now is not given out.
 */
#ifndef HUTCH_HOST_WARM_POOL_H
#define HUTCH_HOST_WARM_POOL_H

#include "host/hutchd/broker.h"
#include "host/hutchd/vm.h"

#define POOLS_FILE	  "pools.json"
#define POOLS_MAX	  64u
#define POOL_LEASE_MS	  60000u
#define POOL_RENEW_S	  20
#define POOL_REFILL_MS	  150u /* after one was taken */
#define POOL_PAUSE_MS	  1000u
#define POOL_PAUSE_MAX_MS 60000u
#define POOL_BOOT_MS	  30000u

struct warm_pool {
	TAILQ_ENTRY(warm_pool) next;
	struct deferred deferred;
	struct broker *b;
	char template_name[HUTCH_MAX_TEMPLATE_NAME + 1];
	uint32_t size;
	uint32_t ready, starting;
	uint64_t taken, missed, failed;
	uint32_t pause_ms; /* 0: the last one did not fail */
	char last_error[256];
	struct event refill;
};

/* Read <state>/pools.json and begin to fill them. -1 with errno when memory is gone. */
int warm_pools_start(struct broker *b);
void warm_pools_free(struct broker *b);

/*
 * size 0 ends it. NULL with err (HUTCH_E_STATE: the template has no snapshot), or when it was ended: err is clear then.
 */
struct warm_pool *warm_pool_set(struct broker *b, const char *template_name, uint32_t size,
				struct hutch_error *err);
struct warm_pool *warm_pool_find(const struct broker *b, const char *template_name);

/*
 * One that goes on from im, given to whom spec says: it is on its way to running. NULL: there is none, or with err what is wrong.
 */
struct vm *warm_pool_take(struct broker *b, const struct vm_spec *spec, const struct image *im,
			  struct hutch_error *err);

/* A VM of a pool is ready to be taken; or it ends, whatever it was. */
void warm_pool_ready(struct vm *vm);
void warm_pool_lost(struct vm *vm);

#endif
