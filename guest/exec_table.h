/* SPDX-License-Identifier: Apache-2.0 */
/* Where execs are found: by id, key, pid; the living in order of start, the records in order of end. */
#ifndef HUTCH_GUEST_EXEC_TABLE_H
#define HUTCH_GUEST_EXEC_TABLE_H

#include "guest/exec.h"

/* e->id, key and pid are set. */
void exec_table_add(struct exec *e);
void exec_table_remove(struct exec *e);
/* The pid was reaped: it may be anyone's now. */
void exec_table_forget_pid(struct exec *e);
/* From the living to the records. */
void exec_table_ended(struct exec *e);

struct exec *exec_find(const char *id);
struct exec *exec_find_key(const char *key);
struct exec *exec_find_pid(pid_t pid);
struct exec *exec_table_record(uint64_t serial);
struct exec *exec_table_oldest(void); /* the record that is to go first; NULL: none may */
struct exec *exec_table_any(void);
unsigned exec_living(void);
unsigned exec_table_records(void);

/* fn is called until it returns false. It must not remove. */
void exec_each(bool (*fn)(struct exec *e, void *arg), void *arg);
void exec_each_record(bool (*fn)(struct exec *e, void *arg), void *arg);

#endif
