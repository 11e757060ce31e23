/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are one call, and whose output is its answer. */
#ifndef HUTCH_ANSWER_H
#define HUTCH_ANSWER_H

#include "tools/hutch/cmd.h"
#include "tools/hutch/text.h"

/*
 * One call, as cli_request; the answer is printed as JSON with --json, else by show (NULL: nothing). Returns the command's status.
 */
int answer_print(struct cli *cli, const char *method, const char *vm,
		 const struct hutch_pair *params, size_t count, uint64_t timeout_ms,
		 void (*show)(const struct hutch_value *answer));

/*
 * The same call for each of the names (NULL ends them), also after one that failed. by says what a name is: "id" a VM's, else the
 * parameter it goes into. With --json a {by: name} for each that succeeded.
 */
int answer_each(struct cli *cli, const char *method, const char *by, char *const *names,
		uint64_t timeout_ms);

/* A table of what is in list, below a head of as many columns; NULL or no array: the head alone. */
void answer_table(const char *const *head, unsigned columns, const struct hutch_value *list,
		  void (*row)(struct table *t, const struct hutch_value *item));
/* The id of each that is in list, one a line. */
void answer_ids(const struct hutch_value *list);
void answer_vm_ids(const struct hutch_value *answer); /* of its vms */

#define ANSWER_TABLE(head, list, row) \
	answer_table(head, (unsigned)(sizeof(head) / sizeof(*(head))), list, row)

#endif
