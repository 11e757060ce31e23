/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors, files, trees and sockets: modes under any umask, deep directories, links that lead
 * outside.
 */
#include "host/hutchd/fdutil.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/vmm_rig.h"

static unsigned mode_of(int dirfd, const char *name)
{
	struct stat st;

	ck_assert_int_eq(fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode & 07777;
}

static bool is_there(int dirfd, const char *name)
{
	return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_cloexec(int fd)
{
	return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

static const mode_t umasks[] = {0, 022, 077, 0277};
#define UMASKS ((int)(sizeof(umasks) / sizeof(umasks[0])))

/* C068: whatever the umask, nothing is wider than the owner, and the owner can use it. */
START_TEST(modes_do_not_depend_on_the_umask)
{
	mode_t old = umask(umasks[_i]);
	int dir = dir_make(rig_dir_fd, "d");
	int sock = unix_listen(rig_dir_fd, "s", SOCK_STREAM, 1);
	int wrote = file_write_atomic(rig_dir_fd, "f", "x", 1, true);

	umask(old);
	ck_assert_int_ge(dir, 0);
	ck_assert_int_ge(sock, 0);
	ck_assert_int_eq(wrote, 0);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "d"), 0700);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "f"), 0600);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "s") & ~0600u, 0);
	ck_assert(is_cloexec(dir) && is_cloexec(sock));
	close(dir);
	close(sock);
}
END_TEST

/* There is no moment between bind and chmod: a socket is born 0600 even under umask 0. */
START_TEST(a_socket_is_born_private)
{
	mode_t old = umask(0);
	int sock = unix_listen(rig_dir_fd, "s", SOCK_SEQPACKET, 1);

	umask(old);
	ck_assert_int_ge(sock, 0);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "s"), 0600);
	close(sock);
}
END_TEST

START_TEST(a_directory_of_a_stranger_or_a_link_is_refused)
{
	int fd;

	ck_assert_int_eq(mkdirat(rig_dir_fd, "wide", 0777), 0);
	ck_assert_int_eq(fchmodat(rig_dir_fd, "wide", 0777, 0), 0);
	fd = dir_make(rig_dir_fd, "wide");
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "wide"), 0700);

	ck_assert_int_eq(symlinkat("wide", rig_dir_fd, "link"), 0);
	ck_assert_int_eq(dir_make(rig_dir_fd, "link"), -1);
	rig_write("file", "x");
	ck_assert_int_eq(dir_make(rig_dir_fd, "file"), -1);
	ck_assert_int_eq(errno, ENOTDIR);
	if (geteuid() == 0) {
		ck_assert_int_eq(fchownat(rig_dir_fd, "wide", 1, 1, 0), 0);
		ck_assert_int_eq(dir_make(rig_dir_fd, "wide"), -1);
		ck_assert_int_eq(errno, EPERM);
	}
}
END_TEST

START_TEST(a_path_is_made_with_its_parents)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/a/b//c/", rig_dir);
	fd = dir_make_path(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "a"), 0700);
	ck_assert_uint_eq(mode_of(rig_dir_fd, "a/b/c"), 0700);
	fd = dir_make_path(path);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(dir_make_path(""), -1);
}
END_TEST

/* C019: the depth of the directory does not count, only the name. */
START_TEST(sockets_in_a_deep_directory)
{
	char part[101], name[UNIX_NAME_MAX + 2];
	int dir = dup(rig_dir_fd), deeper, sock, conn;

	memset(part, 'd', sizeof(part) - 1);
	part[sizeof(part) - 1] = '\0';
	for (int i = 0; i < 4; i++) {
		deeper = dir_make(dir, part);
		ck_assert_int_ge(deeper, 0);
		close(dir);
		dir = deeper;
	}
	memset(name, 's', sizeof(name));
	name[UNIX_NAME_MAX] = '\0';
	sock = unix_listen(dir, name, SOCK_STREAM, 1);
	ck_assert_int_ge(sock, 0);
	conn = unix_connect(dir, name, SOCK_STREAM);
	ck_assert_int_ge(conn, 0);
	ck_assert(is_cloexec(conn));
	close(conn);
	close(sock);
	name[UNIX_NAME_MAX] = 's';
	name[UNIX_NAME_MAX + 1] = '\0';
	ck_assert_int_eq(unix_listen(dir, name, SOCK_STREAM, 1), -1);
	ck_assert_int_eq(errno, ENAMETOOLONG);
	ck_assert_int_eq(unix_connect(dir, name, SOCK_STREAM), -1);
	ck_assert_int_eq(errno, ENAMETOOLONG);
	close(dir);
}
END_TEST

START_TEST(sockets_that_are_there_or_gone)
{
	int sock = unix_listen(rig_dir_fd, "s", SOCK_STREAM, 1);

	ck_assert_int_eq(unix_listen(rig_dir_fd, "s", SOCK_STREAM, 1), -1);
	ck_assert_int_eq(errno, EADDRINUSE);
	close(sock);
	ck_assert_int_eq(unix_connect(rig_dir_fd, "s", SOCK_STREAM), -1);
	ck_assert_int_eq(errno, ECONNREFUSED);
	ck_assert_int_eq(unix_connect(rig_dir_fd, "t", SOCK_STREAM), -1);
	ck_assert_int_eq(errno, ENOENT);
	rig_write("f", "a file of somebody else's");
	ck_assert_int_eq(unix_listen(rig_dir_fd, "f", SOCK_STREAM, 1), -1);
	ck_assert_int_eq(errno, EADDRINUSE);
	ck_assert(is_there(rig_dir_fd, "f"));
}
END_TEST

START_TEST(files_are_read_up_to_a_limit)
{
	char *text = malloc(10001);
	size_t len = 0;
	char *got;

	memset(text, 'x', 10000);
	text[10000] = '\0';
	rig_write("f", text);
	got = file_read(rig_dir_fd, "f", 10000, &len);
	ck_assert_ptr_nonnull(got);
	ck_assert_uint_eq(len, 10000);
	ck_assert_str_eq(got, text);
	free(got);
	ck_assert_ptr_null(file_read(rig_dir_fd, "f", 9999, &len));
	ck_assert_int_eq(errno, EFBIG);
	ck_assert_ptr_null(file_read(rig_dir_fd, "g", 9999, &len));
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(symlinkat("f", rig_dir_fd, "l"), 0);
	ck_assert_ptr_null(file_read(rig_dir_fd, "l", 10000, &len));
	ck_assert_int_eq(errno, ELOOP);
	free(text);
}
END_TEST

START_TEST(a_failed_write_leaves_the_old_file_and_nothing_else)
{
	rig_write("f", "old");
	ck_assert_int_eq(mkdirat(rig_dir_fd, "dir", 0700), 0);
	ck_assert_int_eq(file_write_atomic(rig_dir_fd, "dir", "x", 1, false), -1);
	ck_assert(!is_there(rig_dir_fd, ".dir.new"));
	ck_assert_int_eq(file_write_atomic(rig_dir_fd, "no/f", "x", 1, false), -1);
	ck_assert(is_there(rig_dir_fd, "f"));
}
END_TEST

START_TEST(a_tree_is_removed_without_following_links)
{
	ck_assert_int_eq(mkdirat(rig_dir_fd, "keep", 0700), 0);
	rig_write("keep/file", "x");
	ck_assert_int_eq(mkdirat(rig_dir_fd, "t", 0700), 0);
	ck_assert_int_eq(mkdirat(rig_dir_fd, "t/sub", 0700), 0);
	rig_write("t/sub/file", "x");
	ck_assert_int_eq(symlinkat("../keep", rig_dir_fd, "t/link"), 0);
	ck_assert_int_eq(symlinkat("/nowhere", rig_dir_fd, "t/sub/broken"), 0);
	ck_assert_int_eq(mkfifoat(rig_dir_fd, "t/fifo", 0600), 0);
	close(unix_listen(rig_dir_fd, "t/sock", SOCK_STREAM, 1));
	ck_assert_int_eq(tree_remove(rig_dir_fd, "t"), 0);
	ck_assert(!is_there(rig_dir_fd, "t"));
	ck_assert(is_there(rig_dir_fd, "keep/file"));
	ck_assert_int_eq(tree_remove(rig_dir_fd, "t"), 0);
	ck_assert_int_eq(symlinkat("keep", rig_dir_fd, "l"), 0);
	ck_assert_int_eq(tree_remove(rig_dir_fd, "l"), 0);
	ck_assert(is_there(rig_dir_fd, "keep/file"));
}
END_TEST

START_TEST(descriptors_are_passed)
{
	int pair[2], sent[2], got[2] = {-1, -1};
	size_t n = 2;
	char data[16];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	ck_assert_int_eq(pipe(sent), 0);
	ck_assert_int_eq(fd_send(pair[0], "hello", 5, sent, 2), 0);
	ck_assert_int_eq(fd_recv(pair[1], data, sizeof(data), got, &n), 5);
	ck_assert_uint_eq(n, 2);
	ck_assert(is_cloexec(got[0]) && is_cloexec(got[1]));
	ck_assert_int_eq(write(got[1], "x", 1), 1);
	ck_assert_int_eq(read(sent[0], data, 1), 1);
	close(got[0]);
	close(got[1]);
	close(sent[0]);
	close(sent[1]);
	close(pair[0]);
	n = 2;
	ck_assert_int_eq(fd_recv(pair[1], data, sizeof(data), got, &n), 0);
	close(pair[1]);
}
END_TEST

START_TEST(surplus_descriptors_are_closed)
{
	int pair[2], sent[3], got[2];
	size_t n = 2;
	int before;
	char data[4];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	for (int i = 0; i < 3; i++)
		sent[i] = dup(0);
	before = rig_count_fds();
	ck_assert_int_eq(fd_send(pair[0], "abc", 3, sent, 3), 0);
	ck_assert_int_eq(fd_recv(pair[1], data, sizeof(data), got, &n), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(rig_count_fds(), before);
	n = 2;
	ck_assert_int_eq(fd_send(pair[0], "abcdef", 6, sent, 1), 0); /* more data than fits */
	ck_assert_int_eq(fd_recv(pair[1], data, sizeof(data), got, &n), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_int_eq(rig_count_fds(), before);
	for (int i = 0; i < 3; i++)
		close(sent[i]);
	close(pair[0]);
	close(pair[1]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fdutil");
	TCase *tc = tcase_create("fdutil");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, rig_make, rig_remove);
	tcase_add_loop_test(tc, modes_do_not_depend_on_the_umask, 0, UMASKS);
	tcase_add_test(tc, a_socket_is_born_private);
	tcase_add_test(tc, a_directory_of_a_stranger_or_a_link_is_refused);
	tcase_add_test(tc, a_path_is_made_with_its_parents);
	tcase_add_test(tc, sockets_in_a_deep_directory);
	tcase_add_test(tc, sockets_that_are_there_or_gone);
	tcase_add_test(tc, files_are_read_up_to_a_limit);
	tcase_add_test(tc, a_failed_write_leaves_the_old_file_and_nothing_else);
	tcase_add_test(tc, a_tree_is_removed_without_following_links);
	tcase_add_test(tc, descriptors_are_passed);
	tcase_add_test(tc, surplus_descriptors_are_closed);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
