/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zygotes: for a template that is used, one VM that was restored from its snapshot, has run what a first call would run, and
 * stands still, held. A new VM of the template is a fork of its VMM's process (host/vsock/vmm_fork.h) instead of one that is
 * started and loaded: under TCG it has the translated code at once. Only there, and only where VMMs have uids of their own;
 * else, and where a fork fails, a VM is restored. So is a fork of a running VM, or one from its snapshot: the same process, its memory
 * replaced where it differs, and its devices loaded; of translated code that loses only what changed (vmm_reload).
 *
 * Made as the broker starts, when a template gets a snapshot, and a moment after a VM of it was asked for where there is none, so that
 * whoever did has the CPU; ended when none was for ZYGOTE_IDLE_MS, or when more templates are used than there may be zygotes. Nobody sees
 * them; they live on a lease as a pool's VMs do.
 */
#ifndef HUTCH_HOST_ZYGOTE_H
#define HUTCH_HOST_ZYGOTE_H

#include "host/hutchd/broker.h"
#include "host/hutchd/vm.h"

#define ZYGOTE_LEASE_MS 60000u
#define ZYGOTE_WAIT_MS	1000u
#define ZYGOTE_BOOT_MS	30000u
#define ZYGOTE_IDLE_MS	(15u * 60 * 1000)
#define ZYGOTE_RELOAD_MAX \
	(64u << 20)	       /* bytes of layers: comparing more takes longer than it saves */
#define ZYGOTE_QEMU	"7.2." /* the one whose functions a reload knows */
#define ZYGOTE_PAUSE_MS 60000u /* after a failure */
#define ZYGOTE_FAILURES 3u     /* without a VM that came of it: no more are made of that template */

struct zygote;

/*
 * The VM whose VMM's process vm is to be forked off, instead of being restored from o; NULL: none, and one is made if that is
 * of use. *reload: o is not what the zygote was restored from, but layers over the same base, which the fork is to have instead.
 */
struct vm *zygote_for(struct vm *vm, const struct vm_origin *o, bool *reload);
/* There is none of this snapshot, but there will be in a moment: begun now, if it was not. */
bool zygote_is_coming(struct broker *b, const struct template *tpl, const struct image *im);
/* The broker starts: for the templates that have a snapshot. */
void zygotes_start(struct broker *b);
/* It was forked off it, and said hello. */
void zygote_served(const struct vm *vm);
/* It could not be forked off it: that zygote is ended. */
void zygote_failed(struct broker *b, const struct vm *vm, const char *why);
/* A zygote's VM ends, whatever the cause. */
void zygote_lost(struct vm *vm);
/* Every now and then: leases, and those that nobody needs any more. */
void zygotes_renew(struct broker *b);
/* The broker ends: all VMs are about to be freed. */
void zygotes_forget(struct broker *b);

#endif
