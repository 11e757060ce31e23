/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a snapshot fits: all that must be the same, field by field, when a VM is saved and when it
 * is restored.
 */
#ifndef HUTCH_HOST_VMM_TRAITS_H
#define HUTCH_HOST_VMM_TRAITS_H

#include <stdint.h>

#include "host/hutchd/launcher.h"
#include "host/hutchd/template.h"

enum vmm_accel { ACCEL_AUTO = 0, ACCEL_KVM, ACCEL_TCG };
const char *vmm_accel_name(enum vmm_accel a); /* "auto", "kvm", "tcg" */

struct vmm_traits {
	char vmm[80];	   /* driver and version: "qemu 7.2.22" */
	char machine[256]; /* machine and devices */
	char cpu[128];	   /* model; under KVM also the host's, which the guest sees */
	char accel[8];
	uint32_t tsc_khz; /* of the host; 0: unknown */
	uint32_t memory_mib, vcpus;
};

/*
 * Of a VM of this template that is started here and now. accel: KVM or TCG. It may wait some milliseconds in the
 * first moments of the process, for the TSC to be measured.
 */
void vmm_traits_get(struct vmm_traits *out, const struct launcher *launcher,
		    const struct template *tpl, enum vmm_accel accel, uint32_t memory_mib,
		    uint32_t vcpus);

/*
 * The name of the first field in which the two differ ("tsc_khz": by more than 250 ppm), or NULL
 * when a VM that was saved with one can be restored with the other.
 */
const char *vmm_traits_differ(const struct vmm_traits *a, const struct vmm_traits *b);

#endif
