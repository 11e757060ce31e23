/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's input and output on the connection: blocking, with one large buffer each way.
 *
 * Input is read as much as there is and parsed in place, so that pieces of STDIN are handed out without a copy. A
 * caller that keeps to the protocol sends nothing behind its END before it has the answer, so nothing of the
 * next call can be among it.
 *
 * Output frames are put one behind the other and leave together when the buffer is full or fs_out_flush is
 * called. A frame is at most 64 KiB with its header: one packet of virtio-vsock.
 */
#include "guest/fs_io.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest/limits.h"

#define MAX_FRAME 65536u
#define IN_SIZE	  (256u << 10)
#define OUT_SIZE  (256u << 10)
/* Of entries in a RESULT's errors. */
#define MAX_NOTES 100u

static struct {
	uint8_t buf[IN_SIZE];
	size_t at, len;
	uint32_t left; /* of the payload that is being read */
	bool skip;     /* it is an EVENT's */
	bool last;     /* it carries END */
	bool ended;    /* END was passed */
} in;

static struct {
	uint8_t buf[OUT_SIZE];
	size_t len;
	size_t frame; /* where the open data frame starts */
	bool open;
} out;

/* Input */

void fs_in_start(bool ended, const uint8_t *bytes, size_t n)
{
	in.at = in.len = in.left = 0;
	in.skip = in.last = false;
	in.ended = ended;
	if (n > sizeof(in.buf))
		n = sizeof(in.buf);
	if (n)
		memcpy(in.buf, bytes, n);
	in.len = n;
}

static int lost(struct fs *fs)
{
	fs->lost = true;
	return -1;
}

static ssize_t receive(struct fs *fs, struct iovec *iov, size_t n)
{
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n};
	ssize_t got;

	do {
		got = recvmsg(fs->conn, &msg, 0);
	} while (got < 0 && errno == EINTR);
	return got;
}

/* Keep what is not parsed yet, and add what is there, up to max bytes. */
static int in_fill(struct fs *fs, size_t max)
{
	struct iovec iov;
	ssize_t n;

	memmove(in.buf, in.buf + in.at, in.len - in.at);
	in.len -= in.at;
	in.at = 0;
	if (max > sizeof(in.buf) - in.len)
		max = sizeof(in.buf) - in.len;
	iov = (struct iovec){in.buf + in.len, max};
	n = receive(fs, &iov, 1);
	if (n <= 0)
		return lost(fs);
	in.len += (size_t)n;
	return 0;
}

/* The header of the next frame; 1: it is not all there yet. */
static int in_header(struct fs *fs)
{
	struct frame f;

	if (in.len - in.at < HUTCH_FRAME_HEADER)
		return 1;
	if (frame_decode(in.buf + in.at, &f, &fs->err) < 0) {
		fs->broken = true;
		return -1;
	}
	if (f.type != FRAME_STDIN && (f.type != FRAME_EVENT || f.flags & FRAME_END)) {
		fs->broken = true;
		return hutch_error_set(&fs->err, HUTCH_E_PROTOCOL, 0, "%s came inside a call",
				       frame_type_name(f.type));
	}
	in.at += HUTCH_FRAME_HEADER;
	in.left = f.length;
	in.skip = f.type == FRAME_EVENT;
	in.last = f.flags & FRAME_END;
	return 0;
}

/* Go on to a piece of STDIN among what is buffered. 0: there is one, or the end; 1: more is needed; -1. */
static int in_step(struct fs *fs)
{
	while (!in.ended) {
		size_t n = in.len - in.at;
		int ret;

		if (in.left && !in.skip)
			return n ? 0 : 1;
		if (n > in.left)
			n = in.left;
		in.at += n; /* of an EVENT */
		in.left -= (uint32_t)n;
		if (in.left)
			return 1;
		in.ended = in.last;
		ret = in.ended ? 0 : in_header(fs);
		if (ret)
			return ret;
	}
	return 0;
}

static size_t in_piece(size_t max)
{
	size_t n = in.len - in.at;

	if (n > in.left)
		n = in.left;
	if (n > max)
		n = max;
	in.at += n;
	in.left -= (uint32_t)n;
	return n;
}

ssize_t fs_in_next(struct fs *fs, const uint8_t **p, size_t max)
{
	int ret;

	while ((ret = in_step(fs)) == 1)
		if (in_fill(fs, SIZE_MAX) < 0)
			return -1;
	if (ret < 0)
		return -1;
	*p = in.buf + in.at;
	return in.ended ? 0 : (ssize_t)in_piece(max);
}

/* Nothing of the payload is buffered. */
static ssize_t in_direct(struct fs *fs, uint8_t *to, size_t max)
{
	size_t want = in.left < max ? in.left : max;
	/* The next frame's header with it; of more than that too much would have to be copied. */
	struct iovec iov[2] = {{to, want},
			       {in.buf, want < in.left || in.last ? 0 : HUTCH_FRAME_HEADER}};
	ssize_t n;

	in.at = in.len = 0;
	n = receive(fs, iov, 2);
	if (n < 0 && errno == EFAULT)
		return -1;
	if (n <= 0)
		return lost(fs);
	if ((size_t)n > want) {
		in.len = (size_t)n - want;
		n = (ssize_t)want;
	}
	in.left -= (uint32_t)n;
	return n;
}

ssize_t fs_in_into(struct fs *fs, uint8_t *to, size_t max)
{
	int ret;

	errno = 0;
	while ((ret = in_step(fs)) == 1) {
		if (in.left && !in.skip)
			return in_direct(fs, to, max);
		if (in_fill(fs, HUTCH_FRAME_HEADER - (in.len - in.at)) < 0)
			return -1;
	}
	if (ret < 0 || in.ended)
		return ret;
	errno = EFAULT;
	return -1;
}

bool fs_in_drained(void)
{
	return in.at == in.len;
}

/* Pass over what is buffered. */
static int in_skip(struct fs *fs)
{
	int ret;

	while ((ret = in_step(fs)) == 0 && !in.ended)
		in_piece(SIZE_MAX);
	return ret < 0 ? -1 : 0;
}

int fs_in_discard(struct fs *fs, bool *ended)
{
	if (in_skip(fs) == 0 && !in.ended && in_fill(fs, SIZE_MAX) == 0)
		in_skip(fs);
	*ended = in.ended;
	return fs->lost || fs->broken ? -1 : 0;
}

bool fs_in_ended(void)
{
	return in.ended;
}

int fs_in_rest(struct fs *fs, bool *ended, struct conn_rest *rest)
{
	if (in_skip(fs) < 0)
		return -1;
	*ended = in.ended;
	if (in.ended && in.at < in.len) {
		fs->broken = true;
		return hutch_error_set(&fs->err, HUTCH_E_PROTOCOL, 0,
				       "a frame came after END and before the result");
	}
	memset(rest, 0, sizeof(*rest));
	rest->data_left = in.left;
	rest->in_data = in.left > 0;
	rest->data_end = in.last;
	if (!in.ended && !in.left) {
		rest->head_len = (uint8_t)(in.len - in.at);
		memcpy(rest->head, in.buf + in.at, rest->head_len);
	}
	return 0;
}

/* Output */

void fs_out_start(void)
{
	out.len = 0;
	out.open = false;
}

static int send_all(struct fs *fs, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t sent = send(fs->conn, p, n, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return lost(fs);
		p += sent;
		n -= (size_t)sent;
	}
	return 0;
}

static void close_frame(void)
{
	struct frame f = {.type = FRAME_STDOUT};

	if (!out.open)
		return;
	f.length = (uint32_t)(out.len - out.frame - HUTCH_FRAME_HEADER);
	out.open = false;
	if (f.length == 0)
		out.len = out.frame;
	else
		frame_encode(out.buf + out.frame, &f);
}

int fs_out_flush(struct fs *fs)
{
	size_t n;

	close_frame();
	n = out.len;
	out.len = 0;
	return fs->lost ? -1 : send_all(fs, out.buf, n);
}

uint8_t *fs_out_room(struct fs *fs, size_t *n)
{
	if (out.open && out.len - out.frame == MAX_FRAME)
		close_frame();
	if (!out.open && OUT_SIZE - out.len < MAX_FRAME && fs_out_flush(fs) < 0)
		return NULL;
	if (!out.open) {
		out.open = true;
		out.frame = out.len;
		out.len += HUTCH_FRAME_HEADER;
	}
	*n = out.frame + MAX_FRAME - out.len;
	return out.buf + out.len;
}

void fs_out_added(size_t n)
{
	out.len += n;
}

int fs_out_bytes(struct fs *fs, const void *p, size_t n)
{
	const uint8_t *from = p;

	while (n > 0) {
		size_t room;
		uint8_t *to = fs_out_room(fs, &room);

		if (!to)
			return -1;
		if (room > n)
			room = n;
		memcpy(to, from, room);
		fs_out_added(room);
		from += room;
		n -= room;
	}
	return 0;
}

/* The rest of a frame of which at bytes were sent, before the file was cut or something stopped it. */
static int end_frame(struct fs *fs, const uint8_t *head, const uint8_t *payload, size_t at)
{
	ssize_t n;

	if (at < HUTCH_FRAME_HEADER) {
		if (send_all(fs, head + at, HUTCH_FRAME_HEADER - at) < 0)
			return -1;
		at = HUTCH_FRAME_HEADER;
	}
	for (payload -= HUTCH_FRAME_HEADER; at < MAX_FRAME; at += (size_t)n) {
		n = send(fs->conn, payload + at, MAX_FRAME - at, MSG_NOSIGNAL);
		if (n < 0 && errno == EFAULT)
			break;
		if (n <= 0)
			return lost(fs);
	}
	if (at == MAX_FRAME)
		return 0;
	memset(out.buf, 0, MAX_FRAME - at);
	send_all(fs, out.buf, MAX_FRAME - at);
	return fs_fail_errno(fs, EIO, "cannot read (it was cut meanwhile)", NULL);
}

int fs_out_direct(struct fs *fs, const uint8_t *p)
{
	const struct frame f = {.type = FRAME_STDOUT, .length = MAX_FRAME - HUTCH_FRAME_HEADER};
	uint8_t head[HUTCH_FRAME_HEADER];
	struct iovec iov[2 * FS_DIRECT / (MAX_FRAME - HUTCH_FRAME_HEADER)];
	struct msghdr msg = {.msg_iov = iov};
	size_t whole, at;
	ssize_t n;

	if (fs_out_flush(fs) < 0)
		return -1;
	frame_encode(head, &f);
	for (at = 0; at < FS_DIRECT; at += f.length) {
		iov[msg.msg_iovlen++] = (struct iovec){head, sizeof(head)};
		iov[msg.msg_iovlen++] = (struct iovec){(void *)(uintptr_t)(p + at), f.length};
	}
	n = sendmsg(fs->conn, &msg, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EFAULT ? 0 : lost(fs);
	whole = (size_t)n / MAX_FRAME * f.length;
	at = (size_t)n % MAX_FRAME;
	if (!at)
		return (int)whole;
	return end_frame(fs, head, p + whole, at) < 0 ? -1 : (int)(whole + f.length);
}

void fs_map_begin(struct fs *fs)
{
	mp_buf_reset(&fs->map);
	fs->map_start = mp_frame_begin(&fs->map);
	mp_map_begin(&fs->map);
}

int fs_out_map(struct fs *fs)
{
	close_frame();
	if (OUT_SIZE - out.len < fs->map.len && fs_out_flush(fs) < 0)
		return -1;
	if (OUT_SIZE < fs->map.len)
		return send_all(fs, fs->map.data, fs->map.len);
	memcpy(out.buf + out.len, fs->map.data, fs->map.len);
	out.len += fs->map.len;
	return 0;
}

int fs_map_end(struct fs *fs, enum frame_type type)
{
	mp_map_end(&fs->map);
	return fs_frame_end(fs, type);
}

int fs_frame_end(struct fs *fs, enum frame_type type)
{
	unsigned flags = type == FRAME_EVENT ? 0 : FRAME_END;

	if (mp_frame_finish(&fs->map, fs->map_start, type, flags) < 0)
		return hutch_error_set(&fs->err, HUTCH_E_INTERNAL, ENOMEM, "no memory to answer");
	return fs_out_map(fs);
}

int fs_result(struct fs *fs)
{
	uint32_t kept = fs->error_count < MAX_NOTES ? fs->error_count : MAX_NOTES;

	mp_key(&fs->map, "errors");
	mp_array_begin(&fs->map);
	for (uint32_t i = 1; i < kept; i++)
		mp_put_raw(&fs->map, "", 0); /* counts one; all of them follow at once */
	if (kept)
		mp_put_raw(&fs->map, fs->errors.data, fs->errors.len);
	mp_array_end(&fs->map);
	mp_kv_uint(&fs->map, "error_count", fs->error_count);
	return fs_map_end(fs, FRAME_RESULT);
}

int fs_result_empty(struct fs *fs)
{
	fs_map_begin(fs);
	return fs_map_end(fs, FRAME_RESULT);
}

void fs_note(struct fs *fs, const char *path, int errnum)
{
	if (fs->error_count++ >= MAX_NOTES)
		return;
	mp_map_begin(&fs->errors);
	mp_key(&fs->errors, "path");
	mp_put_strn(&fs->errors, path, strnlen(path, HUTCH_MAX_PATH));
	mp_kv_uint(&fs->errors, "errno", (uint64_t)errnum);
	mp_kv_text(&fs->errors, "errno_name", hutch_errno_name(errnum));
	mp_map_end(&fs->errors);
}

bool fs_peer_waits(struct fs *fs)
{
	struct pollfd p = {.fd = fs->conn};

	if (!fs->lost && poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
		fs->lost = true;
	return !fs->lost;
}
