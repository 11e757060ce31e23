/* SPDX-License-Identifier: Apache-2.0 */
/* Another image in a VM's memory (vmm_reload.h), with this program in QEMU's place: what becomes of the RAM, and what QEMU is told. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/vsock/vmm_reload.h"

#define PAGE	 VMM_RAM_PAGE
#define GRANULE	 VMM_RAM_MIN_GRANULE
#define GRANULES 12u
#define SIZE	 ((size_t)GRANULES * GRANULE)
#define RAM_ADDR 0x40000000u /* what the first byte is called in QEMU */

/* ---- QEMU ---- */

struct {
	uint8_t table[72];
	unsigned flush_count;
} tb_ctx;

void tb_flush(void);
__asm__(".pushsection .text\n.globl tb_flush\n.type tb_flush, @function\n"
	"tb_flush: nop\n mov tb_ctx+72(%rip), %edx\n ret\n.size tb_flush, .-tb_flush\n.popsection\n");

static uint8_t *ram;
static uint8_t told[SIZE / PAGE];
static unsigned registered;

void tb_invalidate_phys_range(uint64_t start, uint64_t end);
void tb_invalidate_phys_range(uint64_t start, uint64_t end)
{
	ck_assert(start >= RAM_ADDR && end <= RAM_ADDR + SIZE && start < end);
	memset(told + (start - RAM_ADDR) / PAGE, 1, (end - start) / PAGE);
}

uint64_t qemu_ram_addr_from_host(void *host);
uint64_t qemu_ram_addr_from_host(void *host)
{
	return RAM_ADDR + (uint64_t)((uint8_t *)host - ram);
}

bool yank_register_instance(const int *type, void **errp);
bool yank_register_instance(const int *type, void **errp)
{
	ck_assert(*type == 2 && !errp);
	registered++;
	return true;
}

/* ---- files ---- */

static int new_file(void)
{
	int fd = memfd_create("reload", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, SIZE), 0);
	return fd;
}

static void put(int fd, size_t page, uint8_t value)
{
	uint8_t bytes[PAGE];

	memset(bytes, value, sizeof(bytes));
	ck_assert_int_eq(pwrite(fd, bytes, PAGE, (off_t)(page * PAGE)), PAGE);
}

static void extent(int fd, size_t granule)
{
	struct vmm_extent e = {granule * GRANULE, GRANULE};

	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(pwrite(fd, &e, sizeof(e), 0), sizeof(e));
}

#define PAGES (GRANULE / PAGE)

/* A page of each granule says which one it is. */
static int make_base(void)
{
	int fd = new_file();

	for (size_t i = 0; i < GRANULES; i++)
		put(fd, i * PAGES, (uint8_t)(i + 1));
	return fd;
}

static struct vmm_ram vm;

static void restore(void)
{
	int fd = make_base();

	ck_assert_int_eq(vmm_ram_init(&vm, SIZE, fd, -1, 0), 0);
	vmm_ram_attach(&vm);
	fd = vmm_ram_open(vm.path);
	ram = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	ck_assert_ptr_ne(ram, MAP_FAILED);
	ck_assert_ptr_eq(vm.base, ram);
	memset(told, 0, sizeof(told));
}

static void teardown(void)
{
	vmm_ram_attach(NULL);
	vmm_ram_close(&vm);
	munmap(ram, SIZE);
}

static void check_told(const size_t *pages, size_t count)
{
	uint8_t expected[sizeof(told)] = {0};

	for (size_t i = 0; i < count; i++)
		expected[pages[i]] = 1;
	ck_assert_mem_eq(told, expected, sizeof(told));
}

/* What the zygote wrote goes, what the layer has comes, and QEMU hears of the pages that differ and of no other. */
START_TEST(another_image)
{
	int fds[] = {new_file(), new_file()};
	const size_t changed[] = {PAGES + 3, 2 * PAGES, 2 * PAGES + 1, 5 * PAGES + 2};

	restore();
	ram[(PAGES + 3) * PAGE] = 99;		   /* the zygote's alone */
	ram[PAGES * PAGE + 1] = ram[PAGES * PAGE]; /* written, and as it was */
	ram[5 * GRANULE] = 6;			   /* the same */
	put(fds[0], 2 * PAGES, 33);		   /* the base has a 3 there */
	put(fds[0], 2 * PAGES + 1, 44);		   /* and nothing there */
	extent(fds[1], 2);
	ram[5 * GRANULE + 2 * PAGE + 7] = 1;
	ck_assert_int_eq(vmm_reload(&vm, fds, 1), 0);
	ck_assert_uint_eq(registered, 1);
	check_told(changed, 4);
	for (size_t i = 0; i < GRANULES; i++)
		ck_assert_uint_eq(ram[i * GRANULE], i == 2 ? 33 : i + 1);
	ck_assert_uint_eq(ram[2 * GRANULE + PAGE], 44);
	ck_assert_uint_eq(ram[(PAGES + 3) * PAGE], 0);
	ck_assert_uint_eq(ram[5 * GRANULE + 2 * PAGE + 7], 0);
	ck_assert_uint_eq(vm.owner[2], 1);
	ram[2 * GRANULE] = 1; /* its own from now on */
}
END_TEST

/* QEMU's flush that was asked for before a file is closed is made void, until the VM runs, and no other. */
START_TEST(code_is_kept)
{
	int fds[] = {new_file(), new_file()};

	restore();
	ck_assert_int_eq(ftruncate(fds[1], 0), 0);
	tb_ctx.flush_count = 7;
	vmm_reload_closing();
	ck_assert_uint_eq(tb_ctx.flush_count, 7);
	ck_assert_int_eq(vmm_reload(&vm, fds, 1), 0);
	vmm_reload_closing();
	ck_assert_uint_ne(tb_ctx.flush_count, 7);
	vmm_reload_over();
	tb_ctx.flush_count = 7;
	vmm_reload_closing();
	ck_assert_uint_eq(tb_ctx.flush_count, 7);
}
END_TEST

/* A layer that is none: refused, nobody's memory is read. */
START_TEST(bad_layer)
{
	struct vmm_extent e = {SIZE - PAGE, 2 * GRANULE};
	int fds[] = {new_file(), new_file()};

	restore();
	ck_assert_int_eq(ftruncate(fds[1], 0), 0);
	ck_assert_int_eq(pwrite(fds[1], &e, sizeof(e), 0), sizeof(e));
	ck_assert_int_eq(vmm_reload(&vm, fds, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("vsock_reload");
	TCase *tc = tcase_create("reload");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_test(tc, another_image);
	tcase_add_test(tc, code_is_kept);
	tcase_add_test(tc, bad_layer);
	suite_add_tcase(suite, tc);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
