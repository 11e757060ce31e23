/* SPDX-License-Identifier: Apache-2.0 */
/* The END rules of one call on one connection. */
#include "host/hutchd/call_ends.h"

static enum call_verdict fault(const char **why, const char *text)
{
	*why = text;
	return CALL_FAULT;
}

/* The next CALL may come once both halves have ended. */
static void settle(struct call_ends *c)
{
	if (c->caller_ended && c->callee_ended)
		*c = (struct call_ends){.open = false};
}

enum call_verdict call_from_caller(struct call_ends *c, const struct frame *f, const char **why)
{
	bool end = f->flags & FRAME_END;

	if (f->type == FRAME_CALL) {
		if (c->open)
			return fault(why, c->caller_ended
						  ? "a CALL before the answer to the last one"
						  : "a CALL before the END of the last one");
		*c = (struct call_ends){.open = true, .caller_ended = end};
		return CALL_TAKE;
	}
	if (f->type != FRAME_STDIN && f->type != FRAME_EVENT)
		return fault(why, "a frame that a caller does not send");
	if (!c->open || c->caller_ended)
		return fault(why, c->open ? "input behind the END" : "input without a CALL");
	if (f->type == FRAME_EVENT && end)
		return fault(why, "END on an EVENT");
	c->caller_ended = end;
	if (!c->callee_ended)
		return CALL_TAKE;
	settle(c);
	return CALL_DISCARD;
}

enum call_verdict call_from_callee(struct call_ends *c, const struct frame *f, const char **why)
{
	bool end = f->flags & FRAME_END;

	if (!c->open)
		return fault(why, "an answer without a CALL");
	if (c->callee_ended)
		return fault(why, "a frame behind the result");
	switch (f->type) {
	case FRAME_EVENT:
	case FRAME_STDOUT:
	case FRAME_STDERR:
		if (end)
			return fault(why, "END on a frame that is no result");
		return CALL_TAKE;
	case FRAME_RESULT:
	case FRAME_ERROR:
		if (!end)
			return fault(why, "a result without END");
		c->callee_ended = true;
		settle(c);
		return CALL_TAKE;
	default:
		return fault(why, "a frame that a callee does not send");
	}
}
