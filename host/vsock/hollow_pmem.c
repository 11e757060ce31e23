/* SPDX-License-Identifier: Apache-2.0 */
/* libpmem.so.1: for memory backends with pmem=on. */
#include "host/vsock/hollow.h"

/* clang-format off */
HOLLOW(pmem_map_file)
HOLLOW(pmem_unmap)
HOLLOW(pmem_is_pmem)
HOLLOW(pmem_persist)
HOLLOW(pmem_msync)
HOLLOW(pmem_flush)
HOLLOW(pmem_drain)
HOLLOW(pmem_deep_flush)
HOLLOW(pmem_deep_drain)
HOLLOW(pmem_deep_persist)
HOLLOW(pmem_has_hw_drain)
HOLLOW(pmem_has_auto_flush)
HOLLOW(pmem_memmove_persist)
HOLLOW(pmem_memcpy_persist)
HOLLOW(pmem_memset_persist)
HOLLOW(pmem_memmove_nodrain)
HOLLOW(pmem_memcpy_nodrain)
HOLLOW(pmem_memset_nodrain)
HOLLOW(pmem_memmove)
HOLLOW(pmem_memcpy)
HOLLOW(pmem_memset)
HOLLOW(pmem_check_version)
HOLLOW(pmem_errormsg)
