/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vhost ioctls (linux/vhost.h) that QEMU's kernel back end sends to /dev/vhost-vsock, answered
 * here.
 *
 * ioctl() is interposed for the whole process: a vhost request on our descriptor is ours, all else
 * goes on to the kernel.
 */
#include <errno.h>
#include <linux/vhost.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_reload.h"

static struct vmm *active;

static int set_owner(struct vmm *vmm, void *arg)
{
	(void)arg;
	if (vmm->owned)
		return -EBUSY;
	vmm->owned = true;
	return 0;
}

static int reset_owner(struct vmm *vmm, void *arg)
{
	(void)arg;
	vsock_dev_reset(vmm->dev);
	vmm->owned = false;
	return 0;
}

static int get_features(struct vmm *vmm, void *arg)
{
	uint64_t features = vsock_dev_features();

	(void)vmm;
	memcpy(arg, &features, sizeof(features));
	return 0;
}

static int set_features(struct vmm *vmm, void *arg)
{
	uint64_t features;

	memcpy(&features, arg, sizeof(features));
	return vsock_dev_set_features(vmm->dev, features);
}

static int get_backend_features(struct vmm *vmm, void *arg)
{
	(void)vmm;
	memset(arg, 0, sizeof(uint64_t));
	return 0;
}

static int set_backend_features(struct vmm *vmm, void *arg)
{
	uint64_t features;

	(void)vmm;
	memcpy(&features, arg, sizeof(features));
	return features ? -EOPNOTSUPP : 0;
}

static int set_mem_table(struct vmm *vmm, void *arg)
{
	const struct vhost_memory *table = arg;
	struct gmem_region region[GMEM_MAX_REGIONS];

	if (table->padding)
		return -EOPNOTSUPP;
	if (table->nregions > GMEM_MAX_REGIONS)
		return -E2BIG;
	for (uint32_t i = 0; i < table->nregions; i++) {
		region[i] = (struct gmem_region){
			.gpa = table->regions[i].guest_phys_addr,
			.size = table->regions[i].memory_size,
			.hva = table->regions[i].userspace_addr,
		};
	}
	vmm_ram_learn(&vmm->ram, region, table->nregions);
	return vsock_dev_set_mem(vmm->dev, region, table->nregions);
}

static int set_vring_num(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_state *s = arg;

	return vsock_dev_set_num(vmm->dev, s->index, s->num);
}

static int set_vring_base(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_state *s = arg;

	return vsock_dev_set_base(vmm->dev, s->index, s->num);
}

static int get_vring_base(struct vmm *vmm, void *arg)
{
	struct vhost_vring_state *s = arg;

	return vsock_dev_get_base(vmm->dev, s->index, &s->num);
}

static int set_vring_addr(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_addr *a = arg;
	const struct virtq_addr addr = {
		.desc = a->desc_user_addr,
		.avail = a->avail_user_addr,
		.used = a->used_user_addr,
	};

	if (a->flags) /* dirty logging, which was not offered */
		return -EOPNOTSUPP;
	return vsock_dev_set_addr(vmm->dev, a->index, &addr);
}

static int set_vring_endian(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_state *s = arg;

	(void)vmm;
	return s->num == VHOST_VRING_LITTLE_ENDIAN ? 0 : -EINVAL;
}

static int get_vring_endian(struct vmm *vmm, void *arg)
{
	struct vhost_vring_state *s = arg;

	(void)vmm;
	s->num = VHOST_VRING_LITTLE_ENDIAN;
	return 0;
}

static int set_vring_kick(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_file *f = arg;

	return vsock_dev_set_kick(vmm->dev, f->index, f->fd);
}

static int set_vring_call(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_file *f = arg;

	return vsock_dev_set_call(vmm->dev, f->index, f->fd);
}

static int set_vring_err(struct vmm *vmm, void *arg)
{
	const struct vhost_vring_file *f = arg;

	return vsock_dev_set_err(vmm->dev, f->index, f->fd);
}

static int set_guest_cid(struct vmm *vmm, void *arg)
{
	uint64_t cid;

	memcpy(&cid, arg, sizeof(cid));
	return vsock_dev_set_cid(vmm->dev, cid);
}

static int set_running(struct vmm *vmm, void *arg)
{
	const int *run = arg;

	if (*run) {
		vmm_capture_spoil(&vmm->capture);
		vmm_reload_over();
	}
	return vsock_dev_run(vmm->dev, *run != 0);
}

static const struct {
	unsigned long request;
	int (*answer)(struct vmm *vmm, void *arg);
} requests[] = {
	{VHOST_GET_FEATURES, get_features},
	{VHOST_SET_FEATURES, set_features},
	{VHOST_SET_OWNER, set_owner},
	{VHOST_RESET_OWNER, reset_owner},
	{VHOST_SET_MEM_TABLE, set_mem_table},
	{VHOST_SET_VRING_NUM, set_vring_num},
	{VHOST_SET_VRING_ADDR, set_vring_addr},
	{VHOST_SET_VRING_BASE, set_vring_base},
	{VHOST_GET_VRING_BASE, get_vring_base},
	{VHOST_SET_VRING_ENDIAN, set_vring_endian},
	{VHOST_GET_VRING_ENDIAN, get_vring_endian},
	{VHOST_SET_VRING_KICK, set_vring_kick},
	{VHOST_SET_VRING_CALL, set_vring_call},
	{VHOST_SET_VRING_ERR, set_vring_err},
	{VHOST_GET_BACKEND_FEATURES, get_backend_features},
	{VHOST_SET_BACKEND_FEATURES, set_backend_features},
	{VHOST_VSOCK_SET_GUEST_CID, set_guest_cid},
	{VHOST_VSOCK_SET_RUNNING, set_running},
};

int vmm_vhost(struct vmm *vmm, unsigned long request, void *arg)
{
	int r = -ENOTTY;

	if (_IOC_SIZE(request) && !arg)
		return -EFAULT;
	vmm_lock(vmm);
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		if (requests[i].request == request)
			r = requests[i].answer(vmm, arg);
	}
	vmm_wake(vmm);
	vmm_unlock(vmm);
	if (r < 0)
		vmm_log("vhost request %#lx: %s", request, strerrordesc_np(-r));
	return r;
}

void vmm_vhost_attach(struct vmm *vmm)
{
	active = vmm;
}

int ioctl(int fd, unsigned long request, ...)
{
	void *arg;
	va_list ap;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!active || fd != active->cfg.vhost_fd || _IOC_TYPE(request) != VHOST_VIRTIO)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	r = vmm_vhost(active, request, arg);
	if (r == 0)
		return 0;
	errno = -r;
	return -1;
}
