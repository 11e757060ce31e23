/* SPDX-License-Identifier: Apache-2.0 */
/* A small vsnprintf; see format.h. */
#include "guest/format.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MAX_DIGITS 64 /* of a number, padding included */

struct out {
	char *p;
	size_t size, len; /* len may pass size: what would have been written */
};

struct spec {
	bool zero, wide;      /* wide: the argument has 64 bits */
	int width, precision; /* precision -1: none */
};

struct args {
	va_list ap;
};

_Static_assert(sizeof(long) == 8 && sizeof(size_t) == 8 && sizeof(intmax_t) == 8 &&
		       sizeof(ptrdiff_t) == 8,
	       "l, ll, z, j and t are one length");

static void put(struct out *o, const char *s, size_t n)
{
	if (o->len < o->size)
		memcpy(o->p + o->len, s, n < o->size - o->len ? n : o->size - o->len);
	o->len += n;
}

static void put_padded(struct out *o, const struct spec *sp, const char *s, size_t n)
{
	for (size_t pad = n; pad < (size_t)sp->width; pad++)
		put(o, " ", 1);
	put(o, s, n);
}

static void put_string(struct out *o, const struct spec *sp, const char *s)
{
	put_padded(o, sp, s, sp->precision < 0 ? strlen(s) : strnlen(s, (size_t)sp->precision));
}

static void put_number(struct out *o, const struct spec *sp, uint64_t v, bool negative,
		       unsigned base)
{
	char text[MAX_DIGITS + 1], *end = text + sizeof(text), *p = end;
	int digits = sp->precision >= 0 ? sp->precision : 1;

	if (sp->zero && sp->precision < 0 && sp->width - negative > digits)
		digits = sp->width - negative;
	if (digits > MAX_DIGITS)
		digits = MAX_DIGITS;
	for (; v || digits > 0; v /= base, digits--)
		*--p = "0123456789abcdef"[v % base];
	if (negative)
		*--p = '-';
	put_padded(o, sp, p, (size_t)(end - p));
}

static void put_signed(struct out *o, const struct spec *sp, int64_t v)
{
	put_number(o, sp, v < 0 ? -(uint64_t)v : (uint64_t)v, v < 0, 10);
}

/* Decimal, or * for the next argument. */
static int number(const char **f, struct args *a)
{
	int n = 0;

	if (**f == '*') {
		(*f)++;
		return va_arg(a->ap, int);
	}
	for (; **f >= '0' && **f <= '9' && n < 10000; (*f)++)
		n = n * 10 + (**f - '0');
	return n;
}

/* Everything of a conversion but its last character. */
static const char *read_spec(const char *f, struct spec *sp, struct args *a)
{
	*sp = (struct spec){.precision = -1};
	for (; *f == '0'; f++)
		sp->zero = true;
	sp->width = number(&f, a);
	if (*f == '.') {
		f++;
		sp->precision = number(&f, a);
	}
	for (; *f && strchr("lzjt", *f); f++)
		sp->wide = true;
	return f;
}

static void convert(struct out *o, const struct spec *sp, char c, struct args *a, int errnum)
{
	switch (c) {
	case 'd':
		put_signed(o, sp, sp->wide ? va_arg(a->ap, int64_t) : va_arg(a->ap, int));
		break;
	case 'u':
	case 'x':
		put_number(o, sp, sp->wide ? va_arg(a->ap, uint64_t) : va_arg(a->ap, unsigned),
			   false, c == 'u' ? 10 : 16);
		break;
	case 's':
		put_string(o, sp, va_arg(a->ap, const char *));
		break;
	case 'm':
		put_string(o, sp, strerror(errnum));
		break;
	default:
		put(o, &c, 1);
	}
}

int format_text(char *out, size_t size, const char *fmt, va_list ap)
{
	struct out o = {.p = out, .size = size ? size - 1 : 0};
	int saved = errno; /* for %m */
	struct args a;

	va_copy(a.ap, ap);
	while (*fmt) {
		size_t n = strcspn(fmt, "%");
		struct spec sp;

		put(&o, fmt, n);
		fmt += n;
		if (!*fmt)
			break;
		fmt = read_spec(fmt + 1, &sp, &a);
		if (*fmt)
			convert(&o, &sp, *fmt++, &a, saved);
	}
	va_end(a.ap);
	if (size)
		out[o.len < o.size ? o.len : o.size] = '\0';
	errno = saved;
	return (int)o.len;
}
