/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs.watch: what happens to a file or directory, by inotify(7).
 *
 * inotify knows directories by number, so a table leads from its numbers to paths. A directory that appears is
 * watched first and then read, and what is in it by then is told as made: nothing is missed, some is told
 * twice. A directory that is moved within the tree keeps its watches, and the paths of all below it change with
 * the second half of the move; when the next event is no such half, it was moved out, and its watches go.
 *
 * The queue is the kernel's and bounded by it (max_queued_events). When it overflows the tree is walked again for
 * directories that were missed, and only then the caller is told to look for itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "guest/agent.h"
#include "guest/fs.h"
#include "guest/fs_tree.h"

#define BUCKETS 256u
/* An EVENT of changes is sent when it has grown to this. */
#define BATCH (32u << 10)
/* Longer paths, below the watched one, are not told; such a change counts as lost. */
#define LONGEST ((size_t)PATH_MAX)

#define MASK                                                                              \
	(IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | \
	 IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF)

struct node {
	struct node *next;
	int wd;
	char path[];
};

static struct watching {
	struct fs *fs;
	int fd, top;	    /* the instance; the watched path's number */
	bool is_dir;	    /* the watched path */
	bool tell;	    /* what a walk finds is told as made */
	bool open;	    /* an EVENT is being made */
	bool lost;	    /* changes were */
	const char *reason; /* it is over */
	uint32_t cookie;    /* of a directory that was moved away last; 0: none */
	char from[PATH_MAX];
	struct node *bucket[BUCKETS];
} w;

static const struct {
	uint32_t bit;
	char name[12];
} kinds[] = {
	{IN_CREATE, "create"},		 {IN_MODIFY, "modify"}, {IN_ATTRIB, "attrib"},
	{IN_CLOSE_WRITE, "close_write"}, {IN_DELETE, "delete"}, {IN_MOVED_FROM, "move_from"},
	{IN_MOVED_TO, "move_to"},
};

/* The table */

static struct node **find(int wd)
{
	struct node **at = &w.bucket[(unsigned)wd % BUCKETS];

	while (*at && (*at)->wd != wd)
		at = &(*at)->next;
	return at;
}

static void forget(struct node **at)
{
	struct node *n = *at;

	*at = n->next;
	free(n);
}

static int remember(int wd, const char *path)
{
	size_t len = strlen(path) + 1;
	struct node **at = find(wd), *n = malloc(sizeof(*n) + len);

	if (!n)
		return -1;
	if (*at)
		forget(at);
	n->next = *at;
	n->wd = wd;
	memcpy(n->path, path, len);
	*at = n;
	return 0;
}

static void forget_all(void)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		while (w.bucket[i])
			forget(&w.bucket[i]);
}

/* What of path lies behind dir: "" for itself, or "/..."; NULL: it is elsewhere. */
static const char *behind(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && (path[n] == '/' || !path[n]) ? path + n : NULL;
}

/* One watched directory of those that were moved from w.from to to; NULL: out of the tree. */
static void move_node(struct node *n, const char *to, const char *rest)
{
	char path[2 * PATH_MAX];

	if (!to) {
		inotify_rm_watch(w.fd, n->wd); /* IN_IGNORED will take it off the table */
		return;
	}
	strcpy(stpcpy(path, to), rest);
	if (strlen(path) >= LONGEST || remember(n->wd, path) < 0)
		w.lost = true;
}

static void moved(const char *to)
{
	w.cookie = 0;
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct node *n = w.bucket[i], *next; n; n = next) {
			const char *rest = behind(n->path, w.from);

			next = n->next;
			if (rest && n->wd != w.top)
				move_node(n, to, rest);
		}
	}
}

/* Telling */

static int send_changes(void)
{
	if (!w.open)
		return 0;
	w.open = false;
	mp_array_end(&w.fs->map);
	if (fs_map_end(w.fs, FRAME_EVENT) < 0)
		return -1;
	return fs_out_flush(w.fs);
}

static int tell(const char *kind, const char *path, bool dir, uint32_t cookie)
{
	struct mp_buf *b = &w.fs->map;

	if (!w.open) {
		w.open = true;
		fs_map_begin(w.fs);
		mp_kv_str(b, "event", "changes");
		mp_key(b, "changes");
		mp_array_begin(b);
	}
	mp_map_begin(b);
	mp_kv_str(b, "kind", kind);
	mp_kv_str(b, "path", path);
	mp_kv_true(b, "dir", dir);
	mp_kv_uint_unless(b, "cookie", cookie, 0);
	mp_map_end(b);
	return b->len > BATCH ? send_changes() : 0;
}

static int tell_event(const char *event)
{
	if (send_changes() < 0)
		return -1;
	fs_map_begin(w.fs);
	mp_kv_str(&w.fs->map, "event", event);
	if (fs_map_end(w.fs, FRAME_EVENT) < 0)
		return -1;
	return fs_out_flush(w.fs);
}

/* Watching */

/* inotify_add_watch takes no descriptor: so by its name in /proc, which is the working directory meanwhile. */
static int add(int fd, const char *path)
{
	char name[32];
	int wd;

	snprintf(name, sizeof(name), "self/fd/%d", fd);
	wd = inotify_add_watch(w.fd, name, MASK);
	if (wd >= 0 && remember(wd, path) == 0)
		return wd;
	w.lost = true;
	return -1;
}

static int found(void *arg, const struct fs_entry *e)
{
	bool dir = e->type == FS_TYPE_DIR;
	int fd;

	(void)arg;
	if (e->path_len >= LONGEST) {
		w.lost = true;
		return 0;
	}
	if (w.tell && tell("create", e->path, dir, 0) < 0)
		return -1;
	if (!dir)
		return 0;
	fd = openat(e->dir, e->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return 0;
	add(fd, e->path);
	close(fd);
	return FS_TREE_ENTER;
}

/* What vanishes or is not for this user to read is not watched. */
static void unreadable(void *arg, const struct fs_entry *e)
{
	(void)arg;
	(void)e;
}

/* Watch all below dir, which is taken over and has this path. */
static int walk(int dir, const char *path)
{
	static const struct fs_tree_ops ops = {.entry = found, .failed = unreadable};

	return fs_tree_walk(w.fs, dir, path, &ops, NULL);
}

/* path: below the watched one, "" for itself. A descriptor, or -1 with errno. */
static int open_path(const char *path, int flags)
{
	char full[2 * PATH_MAX + 2];
	struct fs_at at;
	int fd, saved;

	/* The working directory is not "/", where relative paths start. */
	snprintf(full, sizeof(full), "%s%s/%s", w.fs->root.fd < 0 ? "/" : "", w.fs->p.path, path);
	if (!*path)
		full[strlen(full) - 1] = '\0';
	if (strlen(full) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (fs_find(&w.fs->root, full, !*path, &at) < 0)
		return -1;
	fd = fs_open(&at, flags);
	saved = errno;
	fs_at_close(&at);
	errno = saved;
	return fd;
}

/* A directory appeared. */
static int appeared(const char *path)
{
	int fd = open_path(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);

	if (fd < 0) {
		w.lost |= errno != ENOENT && errno != ENOTDIR && errno != EACCES;
		return 0;
	}
	add(fd, path);
	w.tell = true;
	return walk(fd, path);
}

/* Events were lost: watch what was missed, then say so. */
static int recover(void)
{
	int fd = w.fs->p.recursive && w.is_dir ? open_path("", O_RDONLY | O_DIRECTORY | O_NONBLOCK)
					       : -1;

	w.tell = w.lost = false;
	w.cookie = 0;
	if (fd >= 0 && walk(fd, "") < 0)
		return -1;
	w.lost = false; /* a second time says no more */
	return tell_event("overflow");
}

/* Events */

/* About the watched path itself. */
static int top_event(uint32_t mask)
{
	struct stat st;
	int fd;

	if (mask & (IN_DELETE_SELF | IN_MOVE_SELF))
		w.reason = "removed";
	if (mask & IN_UNMOUNT)
		w.reason = "unmounted";
	if (!w.reason && (mask & IN_ATTRIB) && !w.is_dir) { /* another name of it may live on */
		fd = open_path("", O_PATH);
		if (fd < 0 || fstat(fd, &st) < 0)
			w.reason = "removed";
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

static int tell_kinds(uint32_t mask, const char *path, uint32_t cookie)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (mask & kinds[i].bit && tell(kinds[i].name, path, mask & IN_ISDIR, cookie) < 0)
			return -1;
	return 0;
}

static int directory_event(uint32_t mask, const char *path, uint32_t cookie)
{
	if (mask & IN_MOVED_FROM) {
		strcpy(w.from, path);
		w.cookie = cookie;
	} else if (mask & IN_MOVED_TO && w.cookie == cookie) {
		moved(path);
	} else if (mask & (IN_CREATE | IN_MOVED_TO)) {
		return appeared(path);
	}
	return 0;
}

/*
 * The kernel tells of a file that has no name (O_TMPFILE) as "#" and a number, which none can open. A real one of that
 * name is there, or its end is told.
 */
static bool is_unnamed(const struct inotify_event *ev, const char *path)
{
	int fd;

	if (ev->name[0] != '#' || !(ev->mask & (IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE)))
		return false;
	fd = open_path(path, O_PATH);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static int event(const struct inotify_event *ev)
{
	struct node **at = find(ev->wd);
	char path[PATH_MAX + NAME_MAX + 2];
	bool top = ev->wd == w.top, named = ev->len > 0 && ev->name[0];

	if (w.cookie && !(ev->mask & IN_MOVED_TO && ev->cookie == w.cookie))
		moved(NULL);
	if (ev->mask & IN_Q_OVERFLOW)
		w.lost = true;
	if (!*at)
		return 0;
	if (ev->mask & IN_IGNORED) {
		forget(at);
		return 0;
	}
	if (!named && (!top || top_event(ev->mask) < 0 || w.reason))
		return 0; /* of a directory below, its own directory tells the same */
	snprintf(path, sizeof(path), "%s%s%s", (*at)->path, (*at)->path[0] && named ? "/" : "",
		 named ? ev->name : "");
	if (strlen(path) >= LONGEST) {
		w.lost = true;
		return 0;
	}
	if (named && is_unnamed(ev, path))
		return 0;
	if (tell_kinds(ev->mask, path, ev->cookie) < 0)
		return -1;
	return named && w.fs->p.recursive && ev->mask & IN_ISDIR
		       ? directory_event(ev->mask, path, ev->cookie)
		       : 0;
}

static int read_events(void)
{
	static _Alignas(struct inotify_event) char buf[65536];
	ssize_t n = read(w.fd, buf, sizeof(buf));

	if (n < 0)
		return errno == EINTR ? 0 : fs_fail(w.fs, "cannot watch", NULL);
	for (ssize_t at = 0; at < n && !w.reason;) {
		const struct inotify_event *ev = (const void *)(buf + at);

		if (event(ev) < 0)
			return -1;
		at += (ssize_t)(sizeof(*ev) + ev->len);
	}
	if (send_changes() < 0)
		return -1;
	return w.lost && !w.reason ? recover() : 0;
}

/* Until it is over. */
static int serve(void)
{
	bool ended = fs_in_ended(), watch_end = !ended;

	while (!w.reason) {
		struct pollfd p[2] = {{.fd = w.fd, .events = POLLIN},
				      {.fd = w.fs->conn, .events = watch_end ? POLLIN : 0}};

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return fs_fail(w.fs, "cannot watch", NULL);
		if (p[1].revents && !watch_end)
			w.fs->lost = true;
		else if (p[1].revents && fs_in_discard(w.fs, &ended) < 0)
			return -1;
		if (w.fs->lost || (p[0].revents && read_events() < 0))
			return -1;
		if (watch_end && ended)
			w.reason = "stopped";
	}
	return 0;
}

static int start(void)
{
	struct stat st;
	int fd = open_path("", O_PATH);

	if (fd < 0 || fstat(fd, &st) < 0 || (w.top = add(fd, "")) < 0) {
		fs_fail(w.fs, "cannot watch", NULL);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	close(fd); /* it would keep the file alive */
	w.is_dir = S_ISDIR(st.st_mode);
	if (w.fs->p.recursive && w.is_dir) {
		fd = open_path("", O_RDONLY | O_DIRECTORY | O_NONBLOCK);
		if (fd < 0)
			return fs_fail(w.fs, "cannot open", NULL);
		if (walk(fd, "") < 0)
			return -1;
	}
	if (w.lost)
		return fs_fail_errno(w.fs, ENOSPC, "there are not enough inotify watches for",
				     NULL);
	return tell_event("watching");
}

static int run(void)
{
	if (start() < 0 || serve() < 0 || send_changes() < 0)
		return -1;
	fs_map_begin(w.fs);
	mp_kv_str(&w.fs->map, "reason", w.reason);
	return fs_map_end(w.fs, FRAME_RESULT);
}

int fs_watch(struct fs *fs)
{
	int ret;

	w.fs = fs;
	w.tell = w.open = w.lost = false;
	w.reason = NULL;
	w.cookie = 0;
	w.fd = inotify_init1(IN_CLOEXEC);
	if (w.fd < 0 || agent.proc_fd < 0 || fchdir(agent.proc_fd) < 0) {
		ret = fs_fail(fs, "cannot watch", NULL);
	} else {
		ret = run();
		(void)!chdir("/");
	}
	if (w.fd >= 0)
		close(w.fd);
	forget_all();
	return ret;
}
