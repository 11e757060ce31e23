/* SPDX-License-Identifier: Apache-2.0 */
/* libcapstone.so.4: QEMU disassembles for its logs (-d in_asm) and for its monitor's x/i, which no VM has. */
#include "host/vsock/hollow.h"

/* clang-format off */
HOLLOW(cs_version)
HOLLOW(cs_support)
HOLLOW(cs_open)
HOLLOW(cs_close)
HOLLOW(cs_option)
HOLLOW(cs_errno)
HOLLOW(cs_strerror)
HOLLOW(cs_disasm)
HOLLOW(cs_free)
HOLLOW(cs_malloc)
HOLLOW(cs_disasm_iter)
HOLLOW(cs_reg_name)
HOLLOW(cs_insn_name)
HOLLOW(cs_group_name)
HOLLOW(cs_insn_group)
HOLLOW(cs_reg_read)
HOLLOW(cs_reg_write)
HOLLOW(cs_op_count)
HOLLOW(cs_op_index)
HOLLOW(cs_regs_access)
