/* SPDX-License-Identifier: Apache-2.0 */
/* The counters behind alloc_watch.h. */
#include "tests/unit/alloc_watch.h"

#include <stdbool.h>
#include <stdlib.h>

static struct alloc_watch seen;
static bool watching;

static void count(size_t size)
{
	if (!watching)
		return;
	seen.count++;
	seen.bytes += size;
}

#if defined(__SANITIZE_ADDRESS__)

int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *, size_t),
					      void (*on_free)(const volatile void *));

static void on_malloc(const volatile void *p, size_t size)
{
	(void)p;
	count(size);
}

static void on_free(const volatile void *p)
{
	(void)p;
}

static void install(void)
{
	static bool installed;

	if (!installed && !__sanitizer_install_malloc_and_free_hooks(on_malloc, on_free))
		abort();
	installed = true;
}

#else

void *__libc_malloc(size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_calloc(size_t n, size_t size);

void *malloc(size_t size)
{
	count(size);
	return __libc_malloc(size);
}

void *realloc(void *p, size_t size)
{
	count(size);
	return __libc_realloc(p, size);
}

void *calloc(size_t n, size_t size)
{
	count(n * size);
	return __libc_calloc(n, size);
}

static void install(void)
{
}

#endif

void alloc_watch_start(void)
{
	install();
	seen = (struct alloc_watch){0};
	watching = true;
}

struct alloc_watch alloc_watch_stop(void)
{
	watching = false;
	return seen;
}
