/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: states, credit, and the table that finds them. */
#include "host/vsock/conn.h"

#include <stddef.h>

static const char *const state_names[] = {
	[CONN_HANDSHAKE] = "handshake", [CONN_REQUESTED] = "requested", [CONN_OPEN] = "open",
	[CONN_DRAINING] = "draining",	[CONN_RESETTING] = "resetting", [CONN_DEAD] = "dead",
};

_Static_assert(sizeof(state_names) / sizeof(state_names[0]) == CONN_STATES, "one name per state");

/* Bit s of row f: f -> s. */
static const uint8_t transitions[CONN_STATES] = {
	[CONN_HANDSHAKE] = 1 << CONN_REQUESTED | 1 << CONN_OPEN | 1 << CONN_DEAD,
	[CONN_REQUESTED] = 1 << CONN_OPEN | 1 << CONN_RESETTING | 1 << CONN_DEAD,
	[CONN_OPEN] = 1 << CONN_DRAINING | 1 << CONN_RESETTING | 1 << CONN_DEAD,
	[CONN_DRAINING] = 1 << CONN_DEAD,
	[CONN_RESETTING] = 1 << CONN_DEAD,
};

const char *conn_state_name(enum conn_state state)
{
	return state_names[state];
}

bool conn_may_become(enum conn_state from, enum conn_state to)
{
	return transitions[from] >> to & 1;
}

uint32_t conn_credit(const struct conn *c)
{
	uint32_t window = c->peer_alloc < CONN_CREDIT ? c->peer_alloc : CONN_CREDIT;
	uint32_t in_flight = c->sent - c->peer_fwd;

	return in_flight < window ? window - in_flight : 0;
}

uint32_t conn_granted(const struct conn *c)
{
	return c->alloc - (c->received - c->fwd);
}

bool conn_update_due(const struct conn *c)
{
	uint32_t believed = c->alloc - (c->received - c->fwd_told);
	uint32_t freed = c->fwd - c->fwd_told;

	return freed > 0 && believed < c->alloc / 2 &&
	       (freed >= c->alloc / 4 || c->fwd == c->received);
}

static uint32_t mix(uint32_t x)
{
	/* A finaliser in the manner of MurmurHash3: every input bit reaches every output bit. */
	x ^= x >> 16;
	x *= 0x85ebca6bU;
	x ^= x >> 13;
	x *= 0xc2b2ae35U;
	return x ^ x >> 16;
}

static uint32_t bucket_of(const struct conn_table *t, uint32_t host_port, uint32_t guest_port)
{
	uint32_t h = mix(host_port ^ t->seed);

	if (!conn_port_is_ours(host_port))
		h = mix(h ^ guest_port);
	return h % CONN_BUCKETS;
}

struct conn *conn_find(const struct conn_table *t, uint32_t host_port, uint32_t guest_port)
{
	struct conn *c = t->bucket[bucket_of(t, host_port, guest_port)];

	while (c && (c->host_port != host_port || c->guest_port != guest_port))
		c = c->next;
	return c;
}

bool conn_host_port_used(const struct conn_table *t, uint32_t host_port)
{
	const struct conn *c = t->bucket[bucket_of(t, host_port, 0)];

	while (c && c->host_port != host_port)
		c = c->next;
	return c != NULL;
}

void conn_insert(struct conn_table *t, struct conn *c)
{
	struct conn **b = &t->bucket[bucket_of(t, c->host_port, c->guest_port)];

	c->next = *b;
	*b = c;
	c->in_table = true;
}

void conn_remove(struct conn_table *t, struct conn *c)
{
	struct conn **p = &t->bucket[bucket_of(t, c->host_port, c->guest_port)];

	if (!c->in_table)
		return;
	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->in_table = false;
}
