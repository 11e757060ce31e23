/* SPDX-License-Identifier: Apache-2.0 */
/* Memory images: digests of sparse files, the manifest, links, what is checked and remembered. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/image.h"
#include "host/hutchd/log.h"
#include "host/hutchd/sha256_x86.h"
#include "host/hutchd/verify.h"

#define PAGE 4096
#define BOOT "00000000-0000-4000-8000-000000000001"

static char root[64];
static int dir = -1;

static void set_up(void)
{
	log_setup("test", LOG_LEVEL_ERROR + 1, 0);
	strcpy(root, "/tmp/hutch-image-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	dir = dir_open(AT_FDCWD, root);
	ck_assert_int_ge(dir, 0);
}

static void tear_down(void)
{
	fd_close(&dir);
	ck_assert_int_eq(tree_remove(AT_FDCWD, root), 0);
}

static int make(int at, const char *name, off_t size)
{
	int fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	return fd;
}

static void put(int fd, off_t at, const char *text)
{
	ck_assert_int_eq(pwrite(fd, text, strlen(text), at), (ssize_t)strlen(text));
}

START_TEST(fast_is_the_same)
{
	static uint8_t data[1000];
	char slow_hex[65], fast_hex[65];
	struct sha256 slow, fast;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 31 + i / 7);
	for (size_t len = 0; len < sizeof(data); len++)
		for (size_t cut = 0; cut <= len; cut += 1 + len / 5) {
			sha256_init(&slow);
			sha256_add(&slow, data, len);
			sha256_init(&fast);
			sha256_add_fast(&fast, data, cut);
			sha256_add_fast(&fast, data + cut, len - cut);
			sha256_hex(&slow, slow_hex);
			sha256_hex(&fast, fast_hex);
			ck_assert_str_eq(slow_hex, fast_hex);
		}
}
END_TEST

/* Holes, zeros and the file system's idea of both make no difference; every byte and the size do. */
START_TEST(digest_is_of_the_content)
{
	static const char zeros[3 * PAGE];
	int sparse = make(dir, "sparse", 1 << 20), dense = make(dir, "dense", 0);
	char a[DIGEST_HEX + 1], b[DIGEST_HEX + 1];
	uint64_t bytes = 0;

	put(sparse, 100 * PAGE + 7, "x");
	for (int i = 0; i < 256; i++)
		ck_assert_int_eq(pwrite(dense, zeros, PAGE, (off_t)i * PAGE), PAGE);
	put(dense, 100 * PAGE + 7, "x");
	ck_assert_int_eq(digest_file(sparse, a, &bytes, NULL), 0);
	ck_assert_uint_le(bytes, 64 << 10);
	ck_assert_int_eq(digest_file(dense, b, NULL, NULL), 0);
	ck_assert_str_eq(a, b);
	put(dense, 100 * PAGE + 8, "x");
	ck_assert_int_eq(digest_file(dense, b, NULL, NULL), 0);
	ck_assert_str_ne(a, b);
	ck_assert_int_eq(ftruncate(sparse, (1 << 20) - 1), 0);
	ck_assert_int_eq(digest_file(sparse, b, NULL, NULL), 0);
	ck_assert_str_ne(a, b);
	close(sparse);
	close(dense);
}
END_TEST

START_TEST(digest_of_a_broken_page)
{
	int fd = make(dir, "short", 0);
	char a[DIGEST_HEX + 1], b[DIGEST_HEX + 1];

	put(fd, 0, "abc");
	ck_assert_int_eq(digest_file(fd, a, NULL, NULL), 0);
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(digest_file(fd, b, NULL, NULL), 0);
	ck_assert_str_ne(a, b);
	close(fd);
}
END_TEST

static void fill(struct image *im)
{
	*im = (struct image){.traits = {.vmm = "qemu 7", .memory_mib = 256, .vcpus = 1},
			     .generation = 3,
			     .template_name = "base",
			     .name = "s",
			     .secrets = true,
			     .nlayers = 1,
			     .disk_mib = 64,
			     .disk_layers = 2};
}

/* A directory with all its files. */
static int make_image(const struct image *im, const char *name)
{
	char file[IMAGE_FILE_NAME];
	int at = dir_make(dir, name);

	for (unsigned i = 0; (i = image_next(im, i)) < IMAGE_MAX_FILES; i++) {
		int fd;

		image_file_name(i, file);
		fd = make(at, file, 64 * PAGE);
		put(fd, 5 * PAGE, file);
		close(fd);
	}
	ck_assert_int_eq(image_save(im, at, false), 0);
	return at;
}

START_TEST(manifest_round_trip)
{
	struct image im, *again;
	struct hutch_error err;
	char *before, *after;
	size_t len;
	int at;

	fill(&im);
	memset(im.digests[IMAGE_FILE_LAYERS + 1], 'a', DIGEST_HEX);
	at = make_image(&im, "im");
	before = file_read(at, IMAGE_MANIFEST, 1 << 16, &len);
	again = image_load(at, &err);
	ck_assert_ptr_nonnull(again);
	ck_assert_str_eq(again->name, im.name);
	ck_assert_uint_eq(again->generation, im.generation);
	ck_assert_uint_eq(again->nlayers, im.nlayers);
	ck_assert_int_eq(again->secrets, im.secrets);
	ck_assert_str_eq(again->digests[0], "");
	ck_assert_str_eq(again->digests[IMAGE_FILE_LAYERS + 1], im.digests[IMAGE_FILE_LAYERS + 1]);
	ck_assert_int_eq(image_save(again, at, false), 0);
	after = file_read(at, IMAGE_MANIFEST, 1 << 16, &len);
	ck_assert_ptr_nonnull(before);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
	free(again);
	close(at);
}
END_TEST

/* An older broker's: it knew of no disks. */
START_TEST(manifest_without_a_disk)
{
	struct image im, *again;
	struct hutch_error err;
	char *text, *found;
	size_t len;
	int at;

	fill(&im);
	im.disk_mib = im.disk_layers = 0;
	at = make_image(&im, "im");
	text = file_read(at, IMAGE_MANIFEST, 1 << 16, &len);
	found = strstr(text, "\"disk_mib\"");
	ck_assert_ptr_nonnull(found);
	memset(found, ' ', strlen("\"disk_mib\": 0,"));
	found = strstr(text, "\"disk_layers\"");
	memset(found, ' ', strlen("\"disk_layers\": 0,"));
	ck_assert_int_eq(file_write_atomic(at, IMAGE_MANIFEST, text, len, false), 0);
	again = image_load(at, &err);
	ck_assert_msg(again, "%s", err.message);
	ck_assert_uint_eq(again->disk_mib, 0);
	ck_assert_uint_eq(image_next(again, IMAGE_FILE_DEVICE + 1), IMAGE_FILE_LAYERS);
	free(text);
	free(again);
	close(at);
}
END_TEST

static const struct {
	const char *from, *to, *want;
} refusals[] = {
	{"\"layers\": 1", "\"layers\": 101", "'layers'"},
	{"\"layers\": 1", "\"layers\": 2", "'layer-1'"},
	{"\"layers\": 1", "\"layers\": -1", "'layers'"},
	{"\"disk_layers\": 2", "\"disk_layers\": 33", "'disk_layers'"},
	{"\"disk_layers\": 2", "\"disk_layers\": 3", "'disk-2'"},
	{"\"disk_mib\": 64", "\"disk_mib\": 0", "'disk_layers'"},
	{"\"disk_mib\": 64", "\"disk_mib\": 65537", "'disk_mib'"},
	{"\"generation\": 3", "\"generation\": \"3\"", "'generation'"},
	{"\"vmm\"", "\"vm\"", "line"},
	{"\"version\": 1", "\"version\": 2", "'version'"},
	{"\"layer-0\": \"\"", "\"layer-0\": \"xyz\"", "'layer-0'"},
	{"\"secrets\": true", "\"secrets\": 1", "'secrets'"},
};

START_TEST(manifest_is_refused)
{
	char out[8192];
	struct image im;
	struct hutch_error err;
	size_t len = 0;
	char *text, *found;
	int at;

	fill(&im);
	at = make_image(&im, "im");
	text = file_read(at, IMAGE_MANIFEST, 8000, &len);
	found = strstr(text, refusals[_i].from);
	ck_assert_ptr_nonnull(found);
	snprintf(out, sizeof(out), "%.*s%s%s", (int)(found - text), text, refusals[_i].to,
		 found + strlen(refusals[_i].from));
	ck_assert_int_eq(file_write_atomic(at, IMAGE_MANIFEST, out, strlen(out), false), 0);
	hutch_error_clear(&err);
	ck_assert_ptr_null(image_load(at, &err));
	ck_assert_int_eq(err.kind, HUTCH_E_INVALID);
	ck_assert_msg(strstr(err.message, refusals[_i].want) != NULL, "%s", err.message);
	free(text);
	close(at);
}
END_TEST

START_TEST(links_and_descriptors)
{
	struct image_fds fds;
	struct hutch_error err;
	struct image im;
	uint64_t own;
	int from, to;

	fill(&im);
	from = make_image(&im, "from");
	to = dir_make(dir, "to");
	hutch_error_clear(&err);
	ck_assert_uint_gt(image_bytes(&im, from, &own), 0);
	ck_assert_uint_eq(own, image_bytes(&im, from, NULL));
	ck_assert_int_eq(image_link(&im, from, to, true, &err), 0);
	image_bytes(&im, from, &own);
	ck_assert_uint_eq(own, 0);
	ck_assert_int_eq(image_open(&im, to, &fds, &err), 0);
	ck_assert_int_eq(fcntl(fds.layers[0].data_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	image_close(&fds);
	unlinkat(to, "layer-0", 0);
	ck_assert_int_eq(symlinkat("memory", to, "layer-0"), 0);
	ck_assert_int_eq(image_open(&im, to, &fds, &err), -1);
	ck_assert_str_eq(err.path, "layer-0");
	unlinkat(from, "device", 0);
	tree_remove(dir, "other");
	close(to);
	to = dir_make(dir, "other");
	hutch_error_clear(&err);
	ck_assert_int_eq(image_link(&im, from, to, true, &err), -1);
	ck_assert_int_eq(err.kind, HUTCH_E_STATE);
	ck_assert_str_eq(err.path, "device");
	close(from);
	close(to);
}
END_TEST

static struct loop loop;
static struct {
	int calls;
	struct hutch_error err;
	uint64_t bytes;
} told;

static void on_done(void *arg, const struct hutch_error *err, uint64_t bytes)
{
	(void)arg;
	told.calls++;
	hutch_error_clear(&told.err);
	if (err)
		told.err = *err;
	told.bytes = bytes;
}

static void check_now(struct verified *v, struct worker *w, struct image *im, int at,
		      enum verify_mode mode)
{
	struct hutch_error err;
	int before = told.calls;

	hutch_error_clear(&err);
	ck_assert_ptr_nonnull(verify_start(v, w, im, at, mode, on_done, NULL, &err));
	while (told.calls == before)
		event_base_loop(loop.base, EVLOOP_ONCE);
}

START_TEST(digests_are_taken_checked_and_remembered)
{
	struct verified *v = verified_load(dir, BOOT), *next;
	struct worker *w;
	struct image im;
	int at, fd;

	ck_assert_int_eq(loop_init(&loop), 0);
	w = worker_new(&loop);
	fill(&im);
	at = make_image(&im, "im");
	ck_assert(!verify_is_known(v, &im, at));
	check_now(v, w, &im, at, VERIFY_TAKE);
	ck_assert(!told.err.kind && verify_is_known(v, &im, at));
	ck_assert_uint_eq(strlen(im.digests[IMAGE_FILE_LAYERS + 1]), DIGEST_HEX);
	check_now(v, w, &im, at, VERIFY_UNKNOWN);
	ck_assert(!told.err.kind && told.bytes == 0);

	next = verified_load(dir, BOOT);
	ck_assert(verify_is_known(next, &im, at));
	verified_free(next);
	next = verified_load(dir, "00000000-0000-4000-8000-000000000002");
	ck_assert(!verify_is_known(next, &im, at));
	check_now(next, w, &im, at, VERIFY_UNKNOWN);
	ck_assert(!told.err.kind && told.bytes > 0 && verify_is_known(next, &im, at));
	verified_free(next);

	fd = openat(at, "layer-0", O_WRONLY | O_CLOEXEC);
	put(fd, 6 * PAGE, "y");
	close(fd);
	ck_assert(!verify_is_known(v, &im, at));
	check_now(v, w, &im, at, VERIFY_UNKNOWN);
	ck_assert_int_eq(told.err.kind, HUTCH_E_STATE);
	ck_assert_str_eq(told.err.path, "layer-0");
	ck_assert_str_eq(told.err.stage, "digest");
	worker_free(w);
	verified_free(v);
	loop_free(&loop);
	close(at);
}
END_TEST

START_TEST(a_check_can_be_canceled)
{
	struct verified *v = verified_load(dir, BOOT);
	struct hutch_error err;
	struct worker *w;
	struct image im;
	int at, before = told.calls;

	ck_assert_int_eq(loop_init(&loop), 0);
	w = worker_new(&loop);
	fill(&im);
	at = make_image(&im, "im");
	for (int i = 0; i < 20; i++) {
		struct verify *j = verify_start(v, w, &im, at, VERIFY_ALL, on_done, NULL, &err);

		ck_assert_ptr_nonnull(j);
		verify_cancel(j);
	}
	ck_assert_ptr_nonnull(verify_start(v, w, &im, at, VERIFY_ALL, on_done, NULL, &err));
	worker_free(w); /* that one is canceled with it, or was run */
	ck_assert_int_eq(told.calls, before);
	verified_free(v);
	loop_free(&loop);
	close(at);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("image");
	TCase *tc = tcase_create("image");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, fast_is_the_same);
	tcase_add_test(tc, digest_is_of_the_content);
	tcase_add_test(tc, digest_of_a_broken_page);
	tcase_add_test(tc, manifest_round_trip);
	tcase_add_test(tc, manifest_without_a_disk);
	tcase_add_loop_test(tc, manifest_is_refused, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tc, links_and_descriptors);
	tcase_add_test(tc, digests_are_taken_checked_and_remembered);
	tcase_add_test(tc, a_check_can_be_canceled);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
