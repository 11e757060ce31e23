/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest RAM of the preloaded part, with this program in QEMU's place: a base and layers mapped over
 * it, what a hostile layer gets, which pages are the process's own, and captures over the control
 * socket.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/vsock/vmm.h"
#include "host/vsock/vmm_scan.h"

#define PAGE	 VMM_RAM_PAGE
#define GRANULE	 VMM_RAM_MIN_GRANULE
#define GRANULES 40u
#define SIZE	 ((size_t)GRANULES * GRANULE)
#define WAIT_S	 10
/* Descriptors of layers, as the launcher places them. */
#define LAYER_FD 200

static struct vmm *vmm;
static struct vmm_config cfg;
static char dir[] = "/tmp/test_vsock_XXXXXX";
static char ctl_path[64];
static uint8_t *ram; /* as QEMU mapped it */

static int new_file(void)
{
	int fd = open(dir, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* The same file, read-only, at a descriptor of one's choice. */
static void reopen_at(int fd, int at)
{
	char path[40];
	int ro;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(ro, 0);
	ck_assert_int_eq(dup2(ro, at), at);
	close(ro);
}

static void fill(int fd, size_t granule, uint8_t value)
{
	uint8_t block[GRANULE];

	memset(block, value, sizeof(block));
	ck_assert_int_eq(pwrite(fd, block, GRANULE, (off_t)(granule * GRANULE)), GRANULE);
}

static void extent(int fd, size_t index, uint64_t offset, uint64_t length)
{
	struct vmm_extent e = {offset, length};

	ck_assert_int_eq(pwrite(fd, &e, sizeof(e), (off_t)(index * sizeof(e))), sizeof(e));
}

static void setup(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};

	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(ctl_path, sizeof(ctl_path), "%s/ctl", dir);
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", ctl_path);
	cfg = (struct vmm_config){
		.vhost_fd = -1,
		.vsock_fd = -1,
		.console_fd = -1,
		.ctl_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
		.mem_bytes = SIZE,
		.mem_fd = -1,
	};
	ck_assert_int_eq(bind(cfg.ctl_fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(cfg.ctl_fd, 4), 0);
	ram = MAP_FAILED;
}

static void start(void)
{
	vmm = vmm_start(&cfg);
	ck_assert_ptr_nonnull(vmm);
	vmm_ram_attach(&vmm->ram);
}

static void teardown(void)
{
	char command[128];

	vmm_ram_attach(NULL);
	if (ram != MAP_FAILED)
		munmap(ram, SIZE);
	if (vmm)
		vmm_stop(vmm);
	vmm = NULL;
	close(cfg.ctl_fd);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

/* ---- a base ---- */

/* As QEMU 7.2 does it: for reading and writing, then privately. */
static void *qemu_maps(int *fd)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", cfg.mem_fd);
	*fd = open(path, O_RDWR);
	ck_assert_int_ge(*fd, 0);
	return mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, *fd, 0);
}

static void restore(void)
{
	int fd;

	start();
	ram = qemu_maps(&fd);
	ck_assert_ptr_ne(ram, MAP_FAILED);
	ck_assert_ptr_eq(vmm->ram.base, ram);
	close(fd);
}

/* A base with a byte of its own in each of the first four granules. */
static int make_base_of(int fd)
{
	ck_assert_int_eq(ftruncate(fd, (off_t)SIZE), 0);
	for (size_t i = 0; i < 4; i++)
		fill(fd, i, (uint8_t)(i + 1));
	cfg.mem_fd = 190;
	reopen_at(fd, cfg.mem_fd);
	return fd;
}

static int make_base(void)
{
	return make_base_of(new_file());
}

START_TEST(the_base_is_read_only)
{
	int base = make_base(), fd;
	uint8_t *map;

	start();
	map = qemu_maps(&fd);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	ck_assert_ptr_ne(map, MAP_FAILED);
	ck_assert_uint_eq(map[GRANULE], 2);
	map[0] = 99;
	ck_assert_int_eq(write(fd, "x", 1), -1);
	ck_assert_ptr_eq(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	munmap(map, SIZE);
	close(fd);
	/* Other files are as they were. */
	fd = open("/dev/null", O_RDWR);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	close(fd);
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, base, 0);
	ck_assert_uint_eq(map[0], 1);
	munmap(map, SIZE);
	close(base);
}
END_TEST

/* ---- layers ---- */

static int layer_data, layer_extents;

static void new_layer(void)
{
	layer_data = new_file();
	layer_extents = new_file();
	ck_assert_int_eq(ftruncate(layer_data, (off_t)SIZE), 0);
}

static void add_layer(void)
{
	reopen_at(layer_data, LAYER_FD + 2 * (int)cfg.layers);
	reopen_at(layer_extents, LAYER_FD + 2 * (int)cfg.layers + 1);
	cfg.layer_fd = LAYER_FD;
	cfg.layers++;
	close(layer_data);
	close(layer_extents);
}

START_TEST(the_topmost_layer_wins)
{
	static const uint8_t want[] = {1, 22, 33, 34, 0, 23};

	close(make_base());
	new_layer();
	fill(layer_data, 1, 22);
	fill(layer_data, 2, 22);
	fill(layer_data, 5, 23);
	fill(layer_data, 3, 77); /* in no extent */
	extent(layer_extents, 0, GRANULE, 2 * GRANULE);
	extent(layer_extents, 1, 5 * GRANULE, GRANULE);
	add_layer();
	new_layer();
	fill(layer_data, 2, 33);
	fill(layer_data, 3, 34);
	extent(layer_extents, 0, 2 * GRANULE, 2 * GRANULE);
	add_layer();
	new_layer(); /* nothing in it */
	add_layer();
	restore();
	for (size_t i = 0; i < sizeof(want); i++) {
		ck_assert_uint_eq(ram[i * GRANULE], want[i]);
		ck_assert_uint_eq(ram[i * GRANULE + GRANULE - 1], want[i]);
	}
	ram[2 * GRANULE] = 44;
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(fcntl(LAYER_FD + i, F_GETFD), -1);
}
END_TEST

static void spoil_layer(int how)
{
	extent(layer_extents, 0, 0, GRANULE);
	switch (how) {
	case 0:
		extent(layer_extents, 1, 0, GRANULE);
		break;
	case 1:
		extent(layer_extents, 1, PAGE, GRANULE);
		break;
	case 2:
		extent(layer_extents, 1, GRANULE, 0);
		break;
	case 3:
		extent(layer_extents, 1, GRANULE, PAGE);
		break;
	case 4:
		extent(layer_extents, 1, SIZE - GRANULE, 2 * GRANULE);
		break;
	case 5:
		extent(layer_extents, 1, SIZE, GRANULE);
		break;
	case 6:
		extent(layer_extents, 1, GRANULE, UINT64_MAX - GRANULE + 1);
		break;
	case 7:
		extent(layer_extents, 1, UINT64_MAX - GRANULE + 1, 2 * GRANULE);
		break;
	case 8:
		ck_assert_int_eq(ftruncate(layer_data, GRANULE - 1), 0);
		break;
	case 9:
		ck_assert_int_eq(ftruncate(layer_extents, sizeof(struct vmm_extent) + 1), 0);
		break;
	case 10:
		ck_assert_int_eq(ftruncate(layer_extents, 1 << 30), 0);
		break;
	default:
		ck_abort();
	}
}
#define SPOILED 11

START_TEST(layers_that_are_none)
{
	int fd;

	close(make_base());
	new_layer();
	spoil_layer(_i);
	add_layer();
	start();
	ck_assert_ptr_eq(qemu_maps(&fd), MAP_FAILED);
	ck_assert_int_eq(errno, EINVAL);
	close(fd);
}
END_TEST

START_TEST(granules_bound_the_mappings)
{
	static struct vmm_ram r;

	ck_assert_int_eq(vmm_ram_init(&r, 64ull << 20, -1, -1, 0), 0);
	ck_assert_uint_eq(r.granule, 65536);
	ck_assert_int_eq(vmm_ram_init(&r, 64ull << 30, -1, -1, 0), 0);
	ck_assert_uint_lt((64ull << 30) / r.granule, VMM_RAM_GRANULES);
	ck_assert_int_eq(vmm_ram_init(&r, PAGE + 1, -1, -1, 0), -1);
	ck_assert_int_eq(vmm_ram_init(&r, 64ull << 20, -1, -1, VMM_RAM_MAX_LAYERS + 1), -1);
	ck_assert_int_eq(vmm_ram_init(&r, 0, 5, -1, 0), -1);
}
END_TEST

/* ---- which pages are own ---- */

static int note_page(void *arg, const uint8_t *p, size_t len)
{
	char *seen = arg;

	ck_assert_uint_eq(len % PAGE, 0);
	for (size_t i = 0; i < len / PAGE; i++)
		seen[(size_t)(p - ram) / PAGE + i]++;
	return 0;
}

/* What is read and written of the base's holes makes nothing in the file, which may be in a memory that is full. */
START_TEST(holes_are_nobodys)
{
	int base = make_base_of(memfd_create("base", MFD_CLOEXEC));
	volatile uint8_t *p;
	struct stat before, after;

	ck_assert_int_eq(fstat(base, &before), 0);
	restore();
	p = ram;
	for (size_t i = 0; i < SIZE; i += PAGE) {
		ck_assert_uint_eq(p[i], i < 4 * GRANULE ? i / GRANULE + 1 : 0);
		p[i + 1] = 9;
	}
	for (size_t i = 0; i < GRANULES; i++)
		ck_assert_uint_eq(vmm->ram.hole[i], i >= 4);
	ck_assert_int_eq(fstat(base, &after), 0);
	ck_assert_int_eq(after.st_blocks, before.st_blocks);
	close(base);
}
END_TEST

START_TEST(own_pages)
{
	static char seen[SIZE / PAGE];
	volatile uint8_t *p;

	close(make_base());
	restore();
	p = ram;
	/* Read, which makes it present; of a hole, only PAGEMAP_SCAN can tell that. */
	for (size_t i = 0; i < (_i == 0 ? SIZE : 4 * GRANULE) / PAGE; i++)
		(void)p[i * PAGE];
	p[0] = 1;
	p[7 * PAGE] = 1;
	p[8 * PAGE] = 1;
	p[SIZE - 1] = 1;
	memset(seen, 0, sizeof(seen));
	ck_assert_int_eq(vmm_scan(ram, SIZE, _i == 0 ? VMM_SCAN_OWN : VMM_SCAN_READ, note_page,
				  seen),
			 0);
	for (size_t i = 0; i < SIZE / PAGE; i++)
		ck_assert_int_eq(seen[i], i == 0 || i == 7 || i == 8 || i == SIZE / PAGE - 1);
}
END_TEST

/* ---- captures ---- */

static int connect_ctl(void)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	struct timeval tv = {.tv_sec = WAIT_S};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", ctl_path);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)), 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void send_line(int sock, const char *line, const int *fds, unsigned nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(8 * sizeof(int))];
	} control = {.buf = {0}};
	struct iovec iov = {(void *)(uintptr_t)line, strlen(line)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		msg.msg_control = control.buf;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		*CMSG_FIRSTHDR(&msg) = (struct cmsghdr){.cmsg_len = CMSG_LEN(nfds * sizeof(int)),
							.cmsg_level = SOL_SOCKET,
							.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), fds, nfds * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(sock, &msg, 0), (ssize_t)strlen(line));
}

/* The next line of the answer. */
static const char *read_line(int sock)
{
	static char line[VMM_CTL_REPLY];
	size_t len = 0;

	do {
		ck_assert_uint_lt(len, sizeof(line));
		ck_assert_int_eq(recv(sock, line + len, 1, 0), 1);
	} while (line[len++] != '\n');
	line[len - 1] = '\0';
	return line;
}

static void expect(const char *answer, const char *want)
{
	ck_assert_msg(strncmp(answer, want, strlen(want)) == 0, "%s, not %s", answer, want);
}

START_TEST(a_delta)
{
	int fds[] = {new_file(), new_file()}, sock;
	struct vmm_extent e[3];
	uint8_t *data;
	struct stat st;

	close(make_base());
	restore();
	sock = connect_ctl();
	ram[0] = 91;
	ram[GRANULE + PAGE] = 92;
	ram[6 * GRANULE] = 93;
	send_line(sock, "capture delta\n", fds, 2);
	expect(read_line(sock), "ok bytes=196608 extents=2 us=");
	ck_assert_int_eq(pread(fds[1], e, sizeof(e), 0), 2 * sizeof(e[0]));
	ck_assert(e[0].offset == 0 && e[0].length == 2 * GRANULE);
	ck_assert(e[1].offset == 6 * GRANULE && e[1].length == GRANULE);
	ck_assert_int_eq(fstat(fds[0], &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, SIZE);
	data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fds[0], 0);
	ck_assert(data[0] == 91 && data[1] == 1 && data[GRANULE] == 2);
	ck_assert(data[GRANULE + PAGE] == 92 && data[6 * GRANULE] == 93 && data[2 * GRANULE] == 0);
	munmap(data, SIZE);
	/* The device's thread goes on, and so do captures. */
	send_line(sock, "status\n", NULL, 0);
	expect(read_line(sock), "ok running=0");
	send_line(sock, "capture delta\nstatus\n", fds, 2);
	expect(read_line(sock), "ok bytes=196608");
	expect(read_line(sock), "ok running=0");
	close(fds[0]);
	close(fds[1]);
	close(sock);
}
END_TEST

static void two_layers(void)
{
	close(make_base());
	new_layer();
	fill(layer_data, 1, 11);
	fill(layer_data, 5, 15);
	extent(layer_extents, 0, GRANULE, GRANULE);
	extent(layer_extents, 1, 5 * GRANULE, GRANULE);
	add_layer();
	new_layer();
	fill(layer_data, 5, 25);
	fill(layer_data, 7, 27);
	extent(layer_extents, 0, 5 * GRANULE, GRANULE);
	extent(layer_extents, 1, 7 * GRANULE, GRANULE);
	add_layer();
	restore();
}

/* It can take the place of the layers from one on: what they hold is in it, under what was written since. */
START_TEST(a_delta_that_stands_for_layers)
{
	static const struct {
		const char *line;
		uint64_t granules[4];
		unsigned count;
	} cases[] = {
		{"capture delta\n", {2}, 1},
		{"capture delta 2\n", {2}, 1},
		{"capture delta 1\n", {2, 5, 7}, 3},
		{"capture delta 0\n", {1, 2, 5, 7}, 4},
	};
	int fds[] = {new_file(), new_file()}, sock;
	struct vmm_extent e[4] = {{.offset = 0}};
	uint64_t length = 0;
	uint8_t *data;

	two_layers();
	sock = connect_ctl();
	ram[2 * GRANULE] = 92;
	ram[5 * GRANULE + PAGE] = _i < 2 ? 25 : 95;
	if (_i < 2) /* as if it had not been written */
		ck_assert_int_eq(madvise(ram + 5 * GRANULE, GRANULE, MADV_DONTNEED), 0);
	send_line(sock, cases[_i].line, fds, 2);
	expect(read_line(sock), "ok bytes=");
	ck_assert_int_gt(pread(fds[1], e, sizeof(e), 0), 0);
	data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fds[0], 0);
	for (unsigned i = 0; i < 4; i++)
		length += e[i].length;
	ck_assert_uint_eq(length, cases[_i].count * GRANULE);
	for (unsigned i = 0; i < cases[_i].count; i++) {
		uint64_t at = cases[_i].granules[i] * GRANULE;

		ck_assert_int_eq(memcmp(data + at, ram + at, GRANULE), 0);
	}
	munmap(data, SIZE);
	close(fds[0]);
	close(fds[1]);
	close(sock);
}
END_TEST

/* Written ahead: what changes afterwards is in the delta all the same, and nothing else is written. */
START_TEST(a_delta_written_ahead)
{
	int fds[] = {new_file(), new_file(), new_file()}, sock, probe;
	struct vmm_extent e[4];
	uint8_t *data;

	close(make_base());
	restore();
	probe = vmm_scan_track(ram, SIZE);
	sock = connect_ctl();
	ram[0] = 91;
	ram[PAGE] = 92;
	ram[6 * GRANULE] = 93;
	if (probe < 0) { /* an old kernel */
		send_line(sock, "capture ahead\n", fds, 1);
		expect(read_line(sock), "err capture: tracking: errno=");
	} else {
		close(probe);
		send_line(sock, "capture ahead\n", fds, 1);
		expect(read_line(sock), "ok bytes=131072 extents=0 us=");
		ram[PAGE] = 94;			  /* again */
		ram[6 * GRANULE + 5 * PAGE] = 95; /* new, in a granule that was written */
		ram[9 * GRANULE] = 96;		  /* a new granule */
		(void)*(volatile uint8_t *)(ram + 12 * GRANULE);
		send_line(sock, "capture delta\n", fds, 2);
		expect(read_line(sock), "ok bytes=73728 extents=3 us=");
		ck_assert_int_eq(pread(fds[1], e, sizeof(e), 0), 3 * sizeof(e[0]));
		ck_assert(e[0].offset == 0 && e[0].length == GRANULE);
		ck_assert(e[1].offset == 6 * GRANULE && e[2].offset == 9 * GRANULE);
		data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fds[0], 0);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(memcmp(data + e[i].offset, ram + e[i].offset, e[i].length),
					 0);
		munmap(data, SIZE);
		/* Into another file it writes all. */
		send_line(sock, "capture ahead\n", fds, 1);
		expect(read_line(sock), "ok bytes=196608 extents=0 us=");
	}
	fds[0] = fds[2];
	send_line(sock, "capture delta\n", fds, 2);
	expect(read_line(sock),
	       probe < 0 ? "ok bytes=131072 extents=2" : "ok bytes=196608 extents=3");
	close(sock);
}
END_TEST

/* Of a restored VM: what it wrote, what a layer has, what the base has; zeros are holes. */
START_TEST(a_whole_of_a_restored_vm)
{
	int out = new_file(), sock;
	struct stat st;
	uint8_t *data;

	close(make_base());
	new_layer();
	fill(layer_data, 2, 33);
	fill(layer_data, 7, 34);
	extent(layer_extents, 0, 2 * GRANULE, GRANULE);
	extent(layer_extents, 1, 7 * GRANULE, GRANULE);
	add_layer();
	restore();
	sock = connect_ctl();
	memset(ram + GRANULE, 0, GRANULE);
	ram[9 * GRANULE] = 35;
	send_line(sock, "capture whole\n", &out, 1);
	/* granules 0, 2, 3, 7 and 9 */
	expect(read_line(sock), "ok bytes=327680 extents=0 us=");
	data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
	ck_assert_int_eq(memcmp(data, ram, SIZE), 0);
	munmap(data, SIZE);
	ck_assert_int_eq(fstat(out, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, SIZE);
	ck_assert_uint_le((uint64_t)st.st_blocks * 512, 8 * GRANULE);
	close(out);
	close(sock);
}
END_TEST

static void boot(void)
{
	struct gmem_region table[] = {{.gpa = 1ull << 32, .size = SIZE / 2},
				      {.gpa = 0, .size = SIZE / 2}};

	start();
	ram = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(ram, MAP_FAILED);
	table[0].hva = (uintptr_t)ram + SIZE / 2;
	table[1].hva = (uintptr_t)ram;
	vmm_lock(vmm);
	vmm_ram_learn(&vmm->ram, table, 2);
	vmm_unlock(vmm);
}

START_TEST(a_whole_of_a_booted_vm)
{
	int out = new_file(), sock;
	uint8_t *data;

	boot();
	sock = connect_ctl();
	ram[5 * PAGE] = 1;
	ram[SIZE - 1] = 2;
	memset(ram + 8 * PAGE, 0, 4 * PAGE); /* present, and zero */
	send_line(sock, "capture whole\n", &out, 1);
	expect(read_line(sock), "ok bytes=131072 extents=0 us="); /* two granules */
	data = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, out, 0);
	ck_assert_int_eq(memcmp(data, ram, SIZE), 0);
	munmap(data, SIZE);
	close(out);
	close(sock);
}
END_TEST

static void refused(int sock, const char *line, const int *fds, unsigned nfds, const char *want)
{
	send_line(sock, line, fds, nfds);
	expect(read_line(sock), want);
}

START_TEST(captures_that_fail)
{
	int fds[] = {new_file(), new_file(), new_file()}, sock, ro;
	struct rlimit limit;

	start();
	sock = connect_ctl();
	refused(sock, "capture whole\n", fds, 1, "err the guest has not started");
	close(sock);
	vmm_stop(vmm);
	boot();
	sock = connect_ctl();
	refused(sock, "capture delta\n", fds, 2, "err the VM was booted");
	refused(sock, "capture whole\n", NULL, 0, "err a data file's descriptor");
	refused(sock, "capture whole\n", fds, 2, "err a data file's descriptor");
	refused(sock, "capture delta\n", fds, 3, "err");
	refused(sock, "capture \n", fds, 1, "err capture wants");
	refused(sock, "capture\n", fds, 1, "err unknown request");
	refused(sock, "renew 0\n", fds, 1, "ok");
	ram[0] = 1;
	ro = open("/dev/null", O_RDONLY | O_CLOEXEC);
	refused(sock, "capture whole\n", &ro, 1, "err capture: data: errno=22");
	/* The disk is full. The thread has SIGXFSZ blocked. */
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = GRANULE;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	refused(sock, "capture whole\n", fds, 1, "err capture: data: errno=27");
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	/* It is as good as new. */
	refused(sock, "capture delta 101\n", fds, 2, "err capture wants");
	refused(sock, "capture delta -1\n", fds, 2, "err capture wants");
	refused(sock, "capture whole 1\n", fds, 1, "err capture wants");
	refused(sock, "capture whole\n", fds, 1, "ok bytes=65536");
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	close(ro);
	close(sock);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("vsock_ram");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, the_base_is_read_only);
	tcase_add_test(t, the_topmost_layer_wins);
	tcase_add_loop_test(t, layers_that_are_none, 0, SPOILED);
	tcase_add_test(t, granules_bound_the_mappings);
	tcase_add_test(t, holes_are_nobodys);
	tcase_add_loop_test(t, own_pages, 0, 2);
	tcase_add_test(t, a_delta);
	tcase_add_loop_test(t, a_delta_that_stands_for_layers, 0, 4);
	tcase_add_test(t, a_delta_written_ahead);
	tcase_add_test(t, a_whole_of_a_restored_vm);
	tcase_add_test(t, a_whole_of_a_booted_vm);
	tcase_add_test(t, captures_that_fail);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
