/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that detach a terminal; see keys.h. */
#include <ctype.h>
#include <string.h>

#include "tools/hutch/keys.h"

/* One key, len bytes of text; -1: it is none. */
static int parse_key(const char *text, size_t len)
{
	if (len == 1)
		return (unsigned char)text[0];
	if (len != 6 || strncmp(text, "ctrl-", 5) != 0)
		return -1;
	if (isalpha((unsigned char)text[5]) || strchr("@[\\]^_", text[5]) != NULL)
		return toupper((unsigned char)text[5]) & 0x1f;
	return -1;
}

int keys_parse(struct keys *k, const char *text)
{
	*k = (struct keys){0};
	while (*text != '\0') {
		size_t len = strcspn(text, ",");
		int key = parse_key(text, len);

		if (key < 0 || k->len == KEYS_MAX)
			return -1;
		k->seq[k->len++] = (unsigned char)key;
		text += len;
		if (*text == ',' && *++text == '\0')
			return -1;
	}
	return 0;
}

/* The least number of held keys to let go, so that the rest is a beginning of the keys again. */
static size_t shift(const struct keys *k)
{
	size_t n = 1;

	while (memcmp(k->seq + n, k->seq, k->at - n) != 0)
		n++;
	return n;
}

size_t keys_filter(struct keys *k, const char *in, size_t n, char *out, bool *detach)
{
	size_t len = 0;

	*detach = false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)in[i];

		while (k->at > 0 && k->seq[k->at] != c) {
			size_t go = shift(k);

			memcpy(out + len, k->seq, go);
			len += go;
			k->at -= go;
		}
		if (k->len == 0 || k->seq[k->at] != c) {
			out[len++] = in[i];
			continue;
		}
		if (++k->at == k->len) {
			k->at = 0;
			*detach = true;
			break;
		}
	}
	return len;
}

size_t keys_flush(struct keys *k, char *out)
{
	size_t len = k->at;

	memcpy(out, k->seq, len);
	k->at = 0;
	return len;
}
