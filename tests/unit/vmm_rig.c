/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of hutchd's VMM half share. */
#include "tests/unit/vmm_rig.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/hutchd/fdutil.h"
#include "host/hutchd/process.h"

char rig_dir[64];
int rig_dir_fd = -1;

void rig_make(void)
{
	snprintf(rig_dir, sizeof(rig_dir), "/tmp/hutch-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(rig_dir));
	rig_dir_fd = dir_open(AT_FDCWD, rig_dir);
	ck_assert_int_ge(rig_dir_fd, 0);
}

void rig_remove(void)
{
	fd_close(&rig_dir_fd);
	ck_assert_int_eq(tree_remove(AT_FDCWD, rig_dir), 0);
	ck_assert_int_ne(access(rig_dir, F_OK), 0);
}

void rig_write(const char *name, const char *text)
{
	int fd = openat(rig_dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write_all(fd, text, strlen(text)), 0);
	fd_close(&fd);
}

static void on_time_is_up(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	ck_abort_msg("what the test waits for did not happen");
}

void rig_run(struct event_base *base, const bool *flag)
{
	static const struct timeval limit = {.tv_sec = 20};
	struct event *timer = event_new(base, -1, 0, on_time_is_up, NULL);

	event_add(timer, &limit);
	while (!*flag)
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	event_free(timer);
}

static bool is_marked(const char *pid, const char *want)
{
	char path[300];
	size_t len;
	char *env;
	bool found = false;

	snprintf(path, sizeof(path), "/proc/%s/environ", pid);
	env = file_read(AT_FDCWD, path, 1u << 20, &len);
	for (size_t at = 0; env && at < len; at += strlen(env + at) + 1)
		found |= strcmp(env + at, want) == 0;
	free(env);
	return found;
}

int rig_count_marked(const char *id)
{
	DIR *proc = opendir("/proc");
	struct process_stat st;
	struct dirent *e;
	char want[80];
	int count = 0;

	snprintf(want, sizeof(want), "HUTCH_VM=%s", id);
	ck_assert_ptr_nonnull(proc);
	while ((e = readdir(proc)) != NULL) {
		if (e->d_name[0] < '1' || e->d_name[0] > '9' || !is_marked(e->d_name, want))
			continue;
		if (process_read((pid_t)atol(e->d_name), &st) == 0 && st.state != 'Z')
			count++;
	}
	closedir(proc);
	return count;
}

void rig_await_marked(const char *id, int count)
{
	const struct timespec pause = {.tv_nsec = 2000000};

	for (int i = 0; i < 5000; i++) {
		if (rig_count_marked(id) == count)
			return;
		nanosleep(&pause, NULL);
	}
	ck_abort_msg("there are %d processes of VM %s, not %d", rig_count_marked(id), id, count);
}

int rig_count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = -1; /* the directory's own */

	ck_assert_ptr_nonnull(dir);
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		count += e->d_name[0] != '.';
	closedir(dir);
	return count;
}
