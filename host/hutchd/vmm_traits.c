/* SPDX-License-Identifier: Apache-2.0 */
#include "host/hutchd/vmm_traits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/hutchd/launch_proto.h"
#include "host/hutchd/tsc.h"
#include "host/hutchd/vmm_qemu.h"

#define MAX_TSC_PPM 250u /* a guest's clock would be off by that much; NTP corrects up to 500 */

const char *vmm_accel_name(enum vmm_accel a)
{
	return a == ACCEL_KVM ? "kvm" : a == ACCEL_TCG ? "tcg" : "auto";
}

/* The first "model name" of /proc/cpuinfo; empty when it has none. */
static void host_cpu(char *out, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	out[0] = '\0';
	while (f && fgets(line, sizeof(line), f)) {
		const char *value = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;

		if (!value)
			continue;
		value += 1 + strspn(value + 1, " \t");
		snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
		break;
	}
	if (f)
		fclose(f);
}

void vmm_traits_get(struct vmm_traits *out, const struct launcher *launcher,
		    const struct template *tpl, enum vmm_accel accel, uint32_t memory_mib,
		    uint32_t vcpus)
{
	char host[96] = "";

	memset(out, 0, sizeof(*out));
	snprintf(out->vmm, sizeof(out->vmm), "%s %s", launcher_driver(launcher),
		 launcher_vmm_version(launcher));
	snprintf(out->machine, sizeof(out->machine), QEMU_MACHINE "; " QEMU_DEVICES "%s%s",
		 tpl->root[0] ? QEMU_DEVICES_ROOT : "", tpl->disk_mib ? QEMU_DEVICES_DISK : "");
	if (accel == ACCEL_KVM)
		host_cpu(host, sizeof(host));
	snprintf(out->cpu, sizeof(out->cpu), "%s%s%s",
		 accel == ACCEL_KVM ? QEMU_CPU_KVM : QEMU_CPU_TCG, host[0] ? ", " : "", host);
	snprintf(out->accel, sizeof(out->accel), "%s", vmm_accel_name(accel));
	out->tsc_khz = tsc_khz_quick();
	out->memory_mib = memory_mib;
	out->vcpus = vcpus;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
	return a > b ? a - b : b - a;
}

const char *vmm_traits_differ(const struct vmm_traits *a, const struct vmm_traits *b)
{
	if (strcmp(a->vmm, b->vmm) != 0)
		return "vmm";
	if (strcmp(a->machine, b->machine) != 0)
		return "machine";
	if (strcmp(a->cpu, b->cpu) != 0)
		return "cpu";
	if (strcmp(a->accel, b->accel) != 0)
		return "accel";
	if (distance(a->tsc_khz, b->tsc_khz) * 1000000 > (uint64_t)MAX_TSC_PPM * a->tsc_khz)
		return "tsc_khz";
	if (a->memory_mib != b->memory_mib)
		return "memory_mib";
	if (a->vcpus != b->vcpus)
		return "vcpus";
	return NULL;
}
