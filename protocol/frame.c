/* SPDX-License-Identifier: Apache-2.0 */
/* The frame header: one table of types, encode, decode. */
#include "protocol/frame.h"

struct frame_kind {
	uint8_t type;
	bool data;
	uint32_t max;
	char name[8];
};

static const struct frame_kind kinds[] = {
	{FRAME_HELLO, false, HUTCH_MAX_HELLO, "HELLO"},
	{FRAME_CALL, false, HUTCH_MAX_CALL, "CALL"},
	{FRAME_RESULT, false, HUTCH_MAX_RESULT, "RESULT"},
	{FRAME_ERROR, false, HUTCH_MAX_ERROR, "ERROR"},
	{FRAME_EVENT, false, HUTCH_MAX_EVENT, "EVENT"},
	{FRAME_STDIN, true, HUTCH_MAX_DATA, "STDIN"},
	{FRAME_STDOUT, true, HUTCH_MAX_DATA, "STDOUT"},
	{FRAME_STDERR, true, HUTCH_MAX_DATA, "STDERR"},
};

static const struct frame_kind *find_kind(unsigned type)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].type == type)
			return &kinds[i];
	return NULL;
}

void frame_encode(uint8_t out[HUTCH_FRAME_HEADER], const struct frame *f)
{
	out[0] = (uint8_t)(f->length >> 24);
	out[1] = (uint8_t)(f->length >> 16);
	out[2] = (uint8_t)(f->length >> 8);
	out[3] = (uint8_t)f->length;
	out[4] = (uint8_t)f->type;
	out[5] = f->flags;
	out[6] = 0;
	out[7] = 0;
}

int frame_decode(const uint8_t in[HUTCH_FRAME_HEADER], struct frame *f, struct hutch_error *err)
{
	uint32_t length = (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 |
			  in[3];
	const struct frame_kind *kind = find_kind(in[4]);

	if (!kind)
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0, "frame: type %u is unknown",
				       in[4]);
	if (in[5] & ~FRAME_END)
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0,
				       "%s frame: flags are 0x%02x; only END (0x01) may be set",
				       kind->name, in[5]);
	if (in[6] || in[7])
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0,
				       "%s frame: reserved bytes are 0x%02x%02x; they must be 0",
				       kind->name, in[6], in[7]);
	if (length > kind->max)
		return hutch_error_set(err, HUTCH_E_PROTOCOL, 0,
				       "%s frame: payload is %u bytes; it must be at most %u",
				       kind->name, (unsigned)length, (unsigned)kind->max);
	f->type = (enum frame_type)in[4];
	f->flags = in[5];
	f->length = length;
	return 0;
}

uint32_t frame_max(unsigned type)
{
	const struct frame_kind *kind = find_kind(type);

	return kind ? kind->max : 0;
}

const char *frame_type_name(unsigned type)
{
	const struct frame_kind *kind = find_kind(type);

	return kind ? kind->name : "?";
}

bool frame_is_data(enum frame_type type)
{
	const struct frame_kind *kind = find_kind(type);

	return kind && kind->data;
}
