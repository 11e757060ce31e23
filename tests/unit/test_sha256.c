/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against the examples of FIPS 180-4 and NIST's test vectors, in pieces of every size. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "guest/sha256.h"

static const struct {
	const char *text;
	unsigned times;
	const char *hex;
} vectors[] = {
	{"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
	 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
	{"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
};

START_TEST(known)
{
	struct sha256 s;
	char hex[65];

	sha256_init(&s);
	for (unsigned i = 0; i < vectors[_i].times; i++)
		sha256_add(&s, vectors[_i].text, strlen(vectors[_i].text));
	sha256_hex(&s, hex);
	ck_assert_str_eq(hex, vectors[_i].hex);
}
END_TEST

START_TEST(pieces)
{
	uint8_t data[300];
	char whole[65], hex[65];
	struct sha256 s;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7);
	for (size_t n = 0; n <= sizeof(data); n++) {
		sha256_init(&s);
		sha256_add(&s, data, n);
		sha256_hex(&s, whole);
		for (size_t piece = 1; piece < 140; piece += 13) {
			sha256_init(&s);
			for (size_t at = 0; at < n; at += piece)
				sha256_add(&s, data + at, n - at < piece ? n - at : piece);
			sha256_hex(&s, hex);
			ck_assert_str_eq(hex, whole);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sha256");
	TCase *t = tcase_create("sha256");
	SRunner *sr = srunner_create(s);
	int failed;

	tcase_add_loop_test(t, known, 0, sizeof(vectors) / sizeof(vectors[0]));
	tcase_add_test(t, pieces);
	suite_add_tcase(s, t);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
