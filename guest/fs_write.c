/* SPDX-License-Identifier: Apache-2.0 */
/* fs.write and fs.append: the bytes of STDIN into a file. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "guest/fs.h"
#include "guest/fs_data.h"
#include "guest/fs_new.h"
#include "guest/sha256.h"

#define HUGE_PAGE (2u << 20)

struct target {
	struct fs_at at;
	struct stat st; /* of what is there */
	bool there;
};

static int find_target(struct fs *fs, struct target *t, unsigned walk)
{
	if (fs_place(&fs->root, fs->p.path, walk, &t->at) < 0)
		return fs_fail(fs, "cannot find the directory of", NULL);
	t->there = fstatat(t->at.dir, t->at.name, &t->st, AT_SYMLINK_NOFOLLOW) == 0;
	return t->there || errno == ENOENT ? 0 : fs_fail(fs, "cannot look at", NULL);
}

/* The target's directory and name, and that it is a regular file or nothing. */
static int open_target(struct fs *fs, struct target *t)
{
	unsigned walk = fs->p.parents ? FS_PARENTS : 0;

	if (find_target(fs, t, walk) < 0)
		return -1;
	if (t->there && S_ISLNK(t->st.st_mode) && !fs->p.if_absent) {
		fs_at_close(&t->at);
		if (find_target(fs, t, walk | FS_FOLLOW) < 0)
			return -1;
	}
	if (t->there && fs->p.if_absent)
		return fs_fail_errno(fs, EEXIST, "cannot make", NULL);
	if (t->there && S_ISDIR(t->st.st_mode))
		return fs_fail_errno(fs, EISDIR, "cannot write", NULL);
	if (t->there && !S_ISREG(t->st.st_mode))
		return fs_refuse(fs, NULL, "is not a regular file");
	return 0;
}

/* Where the caller said how much will come, see that there is room. Some file systems do not tell. */
static int check_room(struct fs *fs, int dir, uint64_t freed)
{
	struct statvfs v;
	uint64_t room;

	if (!(fs->p.given & FS_P_SIZE) || fstatvfs(dir, &v) < 0 || v.f_blocks == 0)
		return 0;
	room = (geteuid() == 0 ? v.f_bfree : v.f_bavail) * v.f_frsize + freed;
	return fs->p.size > room ? fs_fail_errno(fs, ENOSPC, "there is no room for", NULL) : 0;
}

/*
 * The whole of a file that got a huge page with its first bytes: the rest is received right into such pages. Of small
 * ones each would cost a fault, which is more than write(2) costs. NULL: it is not such a file.
 */
static uint8_t *map_huge(const struct fs *fs, int fd)
{
	struct stat st;
	uint8_t *map;

	if (!(fs->p.given & FS_P_SIZE) || !fs->p.atomic || fs->p.size < 2 * HUGE_PAGE ||
	    fstat(fd, &st) < 0 || (uint64_t)st.st_blocks * 512 < HUGE_PAGE)
		return NULL;
	map = mmap(NULL, fs->p.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return map == MAP_FAILED ? NULL : map;
}

/* Input behind at right into the file. How much; the rest is for write(2). -1: fs->lost or broken. */
static int64_t take_mapped(struct fs *fs, int fd, uint64_t at, struct sha256 *sha)
{
	uint8_t *map = map_huge(fs, fd);
	uint64_t to = at;
	ssize_t n = 0;

	if (!map)
		return 0;
	while (to < fs->p.size && (n = fs_in_into(fs, map + to, fs->p.size - to)) > 0) {
		if (sha)
			sha256_add(sha, map + to, (size_t)n);
		to += (uint64_t)n;
	}
	munmap(map, fs->p.size);
	if (n < 0 && errno != EFAULT)
		return -1;
	return lseek(fd, (off_t)to, SEEK_SET) < 0 ? fs_fail(fs, "cannot seek in", NULL)
						  : (int64_t)(to - at);
}

/* All the input into fd; sha NULL: no digest is wanted. Its length, or -1. */
static int64_t take_input(struct fs *fs, int fd, struct sha256 *sha)
{
	uint64_t total = 0;
	int64_t mapped = 0;
	const uint8_t *p;
	ssize_t n;

	while ((n = fs_in_next(fs, &p, SIZE_MAX)) > 0) {
		if (sha)
			sha256_add(sha, p, (size_t)n);
		if (fs_write_all(fd, p, (size_t)n) < 0)
			return fs_fail(fs, "cannot write", NULL);
		total += (uint64_t)n;
		if (mapped || !fs_in_drained())
			continue;
		mapped = take_mapped(fs, fd, total, sha);
		if (mapped < 0)
			return -1;
		total += (uint64_t)mapped;
	}
	if (n < 0)
		return -1;
	if ((fs->p.given & FS_P_SIZE) && total != fs->p.size) {
		hutch_error_set(&fs->err, HUTCH_E_INVALID, 0, "%s: %llu bytes came, size says %llu",
				fs->p.path, (unsigned long long)total,
				(unsigned long long)fs->p.size);
		return -1;
	}
	return (int64_t)total;
}

static int synced(struct fs *fs, int fd)
{
	if (fs->p.sync != FS_SYNC_NONE && fsync(fd) < 0)
		return fs_fail(fs, "cannot sync", NULL);
	return 0;
}

static int sync_directory(struct fs *fs, int dir)
{
	int fd, ret;

	if (fs->p.sync != FS_SYNC_ALL)
		return 0;
	fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ret = fd < 0 ? -1 : fsync(fd);
	if (ret < 0)
		fs_fail(fs, "cannot sync the directory of", NULL);
	if (fd >= 0)
		close(fd);
	return ret;
}

/* Atomic writes */

static int check_digest(struct fs *fs, struct sha256 *sha, const char *wanted,
			enum hutch_error_kind kind, const char *what)
{
	char hex[65];

	sha256_hex(sha, hex);
	if (strcmp(hex, wanted) == 0)
		return 0;
	return hutch_error_set(&fs->err, kind, 0, "%s: the SHA-256 of %s is %s, not %s", fs->p.path,
			       what, hex, wanted);
}

static int check_old_digest(struct fs *fs, const struct target *t)
{
	static uint8_t buf[65536];
	struct sha256 sha;
	ssize_t n = 0;
	int fd = fs_open(&t->at, O_RDONLY | O_NONBLOCK);

	sha256_init(&sha);
	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0)
		sha256_add(&sha, buf, (size_t)n);
	if (fd < 0 || n < 0)
		fs_fail(fs, "cannot read", NULL);
	if (fd < 0)
		return -1;
	close(fd);
	return n < 0 ? -1
		     : check_digest(fs, &sha, fs->p.if_sha256, HUTCH_E_STATE, "the old content");
}

/* What the caller says about the file that is to be replaced. */
static int check_old(struct fs *fs, const struct target *t)
{
	if (!(fs->p.given & (FS_P_IF_SIZE | FS_P_IF_SHA256)))
		return 0;
	if (!t->there)
		return fs_fail_errno(fs, ENOENT, "cannot compare", NULL);
	if ((fs->p.given & FS_P_IF_SIZE) && (uint64_t)t->st.st_size != fs->p.if_size)
		return hutch_error_set(&fs->err, HUTCH_E_STATE, 0, "%s has %llu bytes, not %llu",
				       fs->p.path, (unsigned long long)t->st.st_size,
				       (unsigned long long)fs->p.if_size);
	return fs->p.if_sha256 ? check_old_digest(fs, t) : 0;
}

/* It was compared, and nobody may have changed it since. */
static int check_unchanged(struct fs *fs, const struct target *t)
{
	const struct stat *was = &t->st;
	struct stat st = {0};

	if (!(fs->p.given & (FS_P_IF_SIZE | FS_P_IF_SHA256)))
		return 0;
	if (fstatat(t->at.dir, t->at.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == was->st_ino && st.st_size == was->st_size &&
	    st.st_mtim.tv_sec == was->st_mtim.tv_sec && st.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
		return 0;
	return hutch_error_set(&fs->err, HUTCH_E_STATE, 0, "%s was changed meanwhile", fs->p.path);
}

/* The old file's mode and owner, unless others are asked for. */
static int set_attributes(struct fs *fs, struct fs_new *n, const struct target *t)
{
	bool mode_given = fs->p.given & FS_P_MODE;
	uid_t uid = fs->p.uid;
	gid_t gid = fs->p.gid;
	struct stat st = {0};

	if (t->there && fstat(n->fd, &st) == 0) {
		if (uid == FS_NO_ID && t->st.st_uid != st.st_uid)
			uid = t->st.st_uid;
		if (gid == FS_NO_ID && t->st.st_gid != st.st_gid)
			gid = t->st.st_gid;
	}
	if (fs_new_attributes(n, uid, gid,
			      t->there && !mode_given ? t->st.st_mode & 07777 : fs->p.mode) == 0)
		return 0;
	return fs_fail(fs, "cannot set owner and mode (or keep them; \"atomic\": false does) of",
		       NULL);
}

static int write_new(struct fs *fs, struct fs_new *n, const struct target *t, int64_t *bytes)
{
	struct sha256 sha;

	/* Where the size is known, a tmpfs may take huge pages, at half the cost (tmpfs(5), huge=within_size). */
	if ((fs->p.given & FS_P_SIZE) && ftruncate(n->fd, (off_t)fs->p.size) < 0)
		return fs_fail(fs, "cannot write", NULL);
	sha256_init(&sha);
	*bytes = take_input(fs, n->fd, fs->p.sha256 ? &sha : NULL);
	if (*bytes < 0)
		return -1;
	if (fs->p.sha256 && check_digest(fs, &sha, fs->p.sha256, HUTCH_E_INVALID, "what came") < 0)
		return -1;
	if (set_attributes(fs, n, t) < 0 || synced(fs, n->fd) < 0 || check_unchanged(fs, t) < 0)
		return -1;
	if (fs_new_place(n, t->at.name,
			 fs->p.if_absent ? FS_NEW_ALONE
			 : t->there	 ? FS_NEW_REPLACES
					 : FS_NEW_EITHER) < 0)
		return fs_fail(fs, "cannot put the new file in the place of", NULL);
	return sync_directory(fs, t->at.dir);
}

static int write_atomic(struct fs *fs, const struct target *t, int64_t *bytes)
{
	struct fs_new n;
	int ret;

	if (check_old(fs, t) < 0)
		return -1;
	if (t->there && geteuid() != 0 && faccessat(t->at.dir, t->at.name, W_OK, 0) < 0)
		return fs_fail(fs, "cannot write", NULL);
	if (check_room(fs, t->at.dir, 0) < 0)
		return -1;
	if (fs_new_open(&n, t->at.dir) < 0)
		return fs_fail(fs, "cannot make a file beside", NULL);
	ret = write_new(fs, &n, t, bytes);
	fs_new_close(&n);
	return ret;
}

/* Writes in place */

static int open_in_place(struct fs *fs, struct target *t, int flags)
{
	struct stat st = {0};
	int fd;

	flags |= O_WRONLY | O_NONBLOCK | (t->there ? 0 : O_CREAT) | (fs->p.if_absent ? O_EXCL : 0);
	fd = openat(t->at.dir, t->at.name, flags | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, fs->p.mode);
	if (fd < 0)
		return fs_fail(fs, "cannot open", NULL);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		fs_refuse(fs, NULL, "is not a regular file");
	else if ((fs->p.given & (FS_P_UID | FS_P_GID)) && fchown(fd, fs->p.uid, fs->p.gid) < 0)
		fs_fail(fs, "cannot set the owner of", NULL);
	else if (((fs->p.given & FS_P_MODE) || !t->there) && fchmod(fd, fs->p.mode) < 0)
		fs_fail(fs, "cannot set the mode of", NULL);
	else
		return fd;
	close(fd);
	return -1;
}

static int write_in_place(struct fs *fs, struct target *t, int64_t *bytes)
{
	off_t offset = (off_t)fs->p.offset;
	bool cut = fs->p.truncate;
	int fd, ret = -1;

	if (check_room(fs, t->at.dir, t->there ? (uint64_t)t->st.st_blocks * 512 : 0) < 0)
		return -1;
	fd = open_in_place(fs, t, cut && offset == 0 ? O_TRUNC : 0);
	if (fd < 0)
		return -1;
	if (cut && offset && ftruncate(fd, offset) < 0)
		fs_fail(fs, "cannot cut", NULL);
	else if (offset && lseek(fd, offset, SEEK_SET) < 0)
		fs_fail(fs, "cannot seek in", NULL);
	else
		ret = (*bytes = take_input(fs, fd, NULL)) < 0 ? -1 : synced(fs, fd);
	close(fd);
	return ret < 0 ? -1 : sync_directory(fs, t->at.dir);
}

int fs_write(struct fs *fs)
{
	struct target t;
	int64_t bytes = 0;
	int ret;

	if (open_target(fs, &t) < 0)
		ret = -1;
	else if (fs->p.atomic)
		ret = write_atomic(fs, &t, &bytes);
	else
		ret = write_in_place(fs, &t, &bytes);
	fs_at_close(&t.at);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "bytes", (uint64_t)bytes);
	mp_kv_bool(&fs->map, "created", !t.there);
	return fs_map_end(fs, FRAME_RESULT);
}

static int append(struct fs *fs, struct target *t, int64_t *bytes, struct stat *st)
{
	int fd, ret = -1;

	if (check_room(fs, t->at.dir, 0) < 0)
		return -1;
	fd = open_in_place(fs, t, O_APPEND);
	if (fd < 0)
		return -1;
	*bytes = take_input(fs, fd, NULL);
	if (*bytes >= 0 && synced(fs, fd) == 0)
		ret = fstat(fd, st) < 0 ? fs_fail(fs, "cannot look at", NULL) : 0;
	close(fd);
	return ret < 0 ? -1 : sync_directory(fs, t->at.dir);
}

int fs_append(struct fs *fs)
{
	struct target t;
	int64_t bytes = 0;
	struct stat st = {0};
	int ret = open_target(fs, &t);

	if (ret == 0)
		ret = append(fs, &t, &bytes, &st);
	fs_at_close(&t.at);
	if (ret < 0)
		return -1;
	fs_map_begin(fs);
	mp_kv_uint(&fs->map, "bytes", (uint64_t)bytes);
	mp_kv_uint(&fs->map, "size", (uint64_t)st.st_size);
	mp_kv_bool(&fs->map, "created", !t.there);
	return fs_map_end(fs, FRAME_RESULT);
}
