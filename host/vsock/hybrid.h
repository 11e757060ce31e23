/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hybrid vsock: how a Unix socket names a vsock port (Firecracker, docs/vsock.md).
 *
 * Host to guest: the peer connects to the listening socket and sends "CONNECT <port>\n"; once the
 * guest has accepted it reads "OK <host port>\n", and from there on the stream is the connection. A
 * refusal closes the socket. Guest to host: a guest's connect to CID 2, port P, becomes a connect
 * to the Unix socket <prefix>_P.
 */
#ifndef HUTCH_VSOCK_HYBRID_H
#define HUTCH_VSOCK_HYBRID_H

#include <stddef.h>
#include <stdint.h>

#define HYBRID_LINE_MAX 32 /* a CONNECT line with its newline; "CONNECT 4294967294\n" has 19 */
#define HYBRID_OK_MAX	16 /* "OK 4294967294\n" and a NUL */

/*
 * Looks for a CONNECT line at the start of buf. Returns its length, newline included, with *port
 * set; 0 when more bytes are needed; -1 when it can no longer become a valid line. The port is
 * decimal, 0 to 2^32 - 2, at most ten digits, nothing else on the line.
 */
int hybrid_parse_connect(const char *buf, size_t len, uint32_t *port);

/* Writes "OK <port>\n" to buf, which has HYBRID_OK_MAX bytes; returns the length. */
size_t hybrid_format_ok(char *buf, uint32_t port);

/* Returns 0 when <prefix>_<any port> fits a socket address, else -ENAMETOOLONG. */
int hybrid_check_prefix(const char *prefix);

/*
 * Connects to <prefix>_<port>. Returns a non-blocking socket, or -errno of connect(2), -EAGAIN for
 * a full backlog.
 */
int hybrid_dial(const char *prefix, uint32_t port);

#endif
