/* SPDX-License-Identifier: Apache-2.0 */
/* Where execs are found: three hash tables and two lists; see exec_table.h. */
#include "guest/exec_table.h"

#include <string.h>

#include "guest/limits.h"

#define BUCKETS 128u

static struct list ids[BUCKETS], keys[BUCKETS], pids[BUCKETS];
static struct list living = LIST_INIT(living);
static struct list records = LIST_INIT(records);
static unsigned nliving, nrecords;

static struct list *bucket(struct list *table, uint32_t hash)
{
	struct list *b = &table[hash % BUCKETS];

	if (!b->next)
		list_init(b);
	return b;
}

static uint32_t hash_text(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 16777619u;
	return h;
}

void exec_table_add(struct exec *e)
{
	list_add_tail(&living, &e->link);
	nliving++;
	list_add_tail(bucket(ids, hash_text(e->id)), &e->by_id);
	if (e->key[0])
		list_add_tail(bucket(keys, hash_text(e->key)), &e->by_key);
	list_add_tail(bucket(pids, (uint32_t)e->pid), &e->by_pid);
}

void exec_table_forget_pid(struct exec *e)
{
	list_del(&e->by_pid);
}

void exec_table_ended(struct exec *e)
{
	list_del(&e->link);
	nliving--;
	list_add_tail(&records, &e->link);
	nrecords++;
}

void exec_table_remove(struct exec *e)
{
	list_del(&e->link);
	list_del(&e->by_id);
	list_del(&e->by_key);
	list_del(&e->by_pid);
	if (e->state == EXEC_ENDED)
		nrecords--;
	else
		nliving--;
}

struct exec *exec_find(const char *id)
{
	list_for_each(it, bucket(ids, hash_text(id))) {
		struct exec *e = container_of(it, struct exec, by_id);

		if (strcmp(e->id, id) == 0)
			return e;
	}
	return NULL;
}

struct exec *exec_find_key(const char *key)
{
	list_for_each(it, bucket(keys, hash_text(key))) {
		struct exec *e = container_of(it, struct exec, by_key);

		if (strcmp(e->key, key) == 0)
			return e;
	}
	return NULL;
}

struct exec *exec_find_pid(pid_t pid)
{
	list_for_each(it, bucket(pids, (uint32_t)pid)) {
		struct exec *e = container_of(it, struct exec, by_pid);

		if (e->pid == pid)
			return e;
	}
	return NULL;
}

/* The newest first: it is mostly the one that ended last. */
struct exec *exec_table_record(uint64_t serial)
{
	for (struct list *it = records.prev; it != &records; it = it->prev) {
		struct exec *e = container_of(it, struct exec, link);

		if (e->serial == serial)
			return e;
	}
	return NULL;
}

/* One that was collected goes before one that was not, but not while its survivors may still be of interest. */
struct exec *exec_table_oldest(void)
{
	uint64_t recent = loop_now() - AGENT_COLLECTED_MS * 1000000ull;
	struct exec *oldest = NULL;

	list_for_each(it, &records) {
		struct exec *e = container_of(it, struct exec, link);

		if (!list_empty(&e->links) || e->killing)
			continue;
		if (e->collected && e->ended_ns < recent)
			return e;
		if (!oldest)
			oldest = e;
	}
	return oldest;
}

struct exec *exec_table_any(void)
{
	struct list *l = !list_empty(&living) ? &living : &records;

	return list_empty(l) ? NULL : container_of(l->next, struct exec, link);
}

unsigned exec_living(void)
{
	return nliving;
}

unsigned exec_table_records(void)
{
	return nrecords;
}

void exec_each(bool (*fn)(struct exec *e, void *arg), void *arg)
{
	list_for_each(it, &living)
		if (!fn(container_of(it, struct exec, link), arg))
			return;
	exec_each_record(fn, arg);
}

void exec_each_record(bool (*fn)(struct exec *e, void *arg), void *arg)
{
	list_for_each(it, &records)
		if (!fn(container_of(it, struct exec, link), arg))
			return;
}
