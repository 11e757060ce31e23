/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of hutchd's VMM half share: a private directory, and an event loop with a time
 * limit.
 */
#ifndef HUTCH_TEST_VMM_RIG_H
#define HUTCH_TEST_VMM_RIG_H

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/*
 * A new empty directory; rig_dir_fd is open on it. Removed by rig_remove, which also checks that it
 * can be.
 */
extern char rig_dir[64];
extern int rig_dir_fd;
void rig_make(void);
void rig_remove(void);

/* Write a file into the directory. */
void rig_write(const char *name, const char *text);

/* Run the loop until *flag is set; the test fails when that takes longer than 20 s. */
void rig_run(struct event_base *base, const bool *flag);

/* Processes whose environment holds HUTCH_VM=<id>, zombies left out. */
int rig_count_marked(const char *id);
/* Wait until there are that many; the test fails when that takes longer than 10 s. */
void rig_await_marked(const char *id, int count);
/* Descriptors that are open in this process. */
int rig_count_fds(void);

#endif
