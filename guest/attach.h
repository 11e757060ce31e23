/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that follow an exec's output: exec.start and exec.attach.
 *
 * Each has its own offset per stream. The owner's offset holds the ring's floor, so it misses nothing; a
 * viewer that falls behind is told the gap. The result follows when the exec is final and all was sent.
 */
#ifndef HUTCH_GUEST_ATTACH_H
#define HUTCH_GUEST_ATTACH_H

#include "guest/exec.h"

/* The owner of a just started exec. input: STDIN frames follow. */
void attach_started(struct conn *c, struct exec *e, bool input, bool notify);
/* A repeated exec.start: as owner, from the start; input that the exec already got is skipped. */
void attach_repeated(struct conn *c, struct exec *e, bool input, bool notify);
void attach_to(struct conn *c, struct exec *e, const struct exec_attach *a, bool input);
/* The program closed its input: tell those that send. */
void attach_stdin_closed(struct exec *e);
/* Put the RESULT of an exec that is final, and end the call. */
void attach_answer(struct conn *c, const struct exec *e);
/* Put the RESULT for a caller that lets the exec go on alone, and end the call. */
void attach_answer_detached(struct conn *c, const struct exec *e);

#endif
