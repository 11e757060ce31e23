/* SPDX-License-Identifier: Apache-2.0 */
/* The broker: the one context that everything on the loop hangs on, and the order in which it starts and ends. */
#ifndef HUTCH_HOST_BROKER_H
#define HUTCH_HOST_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "host/hutchd/accel.h"
#include "host/hutchd/claim.h"
#include "host/hutchd/config.h"
#include "host/hutchd/loop.h"

#define VM_BUCKETS 1024u

struct client;
struct vm;
struct listener;

TAILQ_HEAD(vm_list, vm);
TAILQ_HEAD(client_list, client);
TAILQ_HEAD(pool_list, warm_pool);
TAILQ_HEAD(zygote_list, zygote);

struct broker {
	struct loop loop;
	const struct config *config; /* borrowed */
	struct launcher *launcher;   /* owned */
	struct accel *accel;
	struct claim claim; /* state and socket locks */
	struct listener *listener;
	int state_fd, vms_fd, templates_fd; /* <state>, <state>/vm, <state>/templates */
	int snapshots_fd;		    /* <state>/snapshots */
	struct worker *worker;
	struct worker *flattener; /* for what takes long, and nobody waits for */
	TAILQ_HEAD(, flatten) flattens;
	struct verified *verified;
	char host_boot_id[HUTCH_UUID_LEN + 1];
	uint32_t uid;
	uint64_t started_us;

	struct vm_list vms;   /* living ones: vm::next */
	struct vm_list tombs; /* dead ones, oldest first: vm::next */
	struct vm *by_id[VM_BUCKETS],
		*by_name[VM_BUCKETS]; /* both kinds: vm::id_next, vm::name_next */
	unsigned vm_count, tomb_count;
	uint32_t next_cid;
	int ttl_fd; /* timerfd of the earliest deadline */
	struct event ttl;

	struct pool_list pools; /* warm_pool::next */
	unsigned pool_count;
	struct event pool_renew; /* of their leases, and the zygotes' */

	struct zygote_list zygotes; /* zygote::next */
	unsigned zygote_count;

	struct client_list clients; /* client::next */
	unsigned client_count;
	uint64_t next_client;

	struct event sigterm, sigint;
	struct limit_rates rates;
	bool stopping;
	bool launcher_lost;
};

/*
 * Locks, directories, launcher, adoption, socket; then the loop until a signal ends it. The launcher is forked here.
 * Returns the exit status.
 */
int broker_run(const struct config *config);

/* The launcher is lost and a VM was asked for: end, after the answer. */
void broker_give_up(struct broker *b);

/* Is this uid one that sees and ends the objects of all? */
bool broker_is_admin(const struct broker *b, uint32_t uid);

#endif
