/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand-ins for libraries that QEMU is linked with and that no VM of hutch ever calls. The dynamic linker takes one that is
 * preloaded for the real one by its soname (ld.so(8), DT_SONAME), which is then not loaded, nor what that one needs.
 *
 * Debian's QEMU spends most of its start on relocations: 236 000, of them a third are tables of its disassembler (capstone),
 * and 23 000 are of libcrypto, which is there because libpmem wants libndctl wants libkmod wants it. Each VM has the pages
 * that they change for itself, 1.9 MiB.
 *
 * All functions of the real one are here, so that another QEMU finds its own. A call ends the VMM: nothing is pretended.
 */
#ifndef HUTCH_HOST_HOLLOW_H
#define HUTCH_HOST_HOLLOW_H

#define HOLLOW(name)                                            \
	__attribute__((visibility("default"))) void name(void); \
	void name(void)                                         \
	{                                                       \
		__builtin_trap();                               \
	}

#endif
