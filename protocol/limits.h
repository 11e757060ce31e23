/* SPDX-License-Identifier: Apache-2.0 */
/* Every maximum of the wire protocol (wire.md), in one place. */
#ifndef HUTCH_PROTOCOL_LIMITS_H
#define HUTCH_PROTOCOL_LIMITS_H

#define HUTCH_PROTO_VERSION 1

/* vsock ports; below 1024, so that only root in the guest can bind or use them as its own. */
#define HUTCH_PORT_AGENT 520u /* the agent listens */
#define HUTCH_PORT_HELLO 521u /* the broker listens */

#define HUTCH_FRAME_HEADER 8u
#define HUTCH_MAX_HELLO	   (4u << 10)
#define HUTCH_MAX_CALL	   (1u << 20)
#define HUTCH_MAX_PARAMS   (HUTCH_MAX_CALL - 1024u) /* a relay puts another envelope around them */
#define HUTCH_MAX_RESULT   (1u << 20)
#define HUTCH_MAX_ERROR	   (64u << 10)
#define HUTCH_MAX_EVENT	   (64u << 10)
#define HUTCH_MAX_DATA	   (64u << 10)
#define HUTCH_MAX_DEPTH	   16u
#define HUTCH_MAX_VALUES \
	65536u /* MessagePack values in one payload, keys included: bounds the decoded tree */

#define HUTCH_MAX_METHOD	63u /* bytes, as all texts below, without the NUL */
#define HUTCH_MAX_ID		64u
#define HUTCH_MAX_KEY		64u
#define HUTCH_MAX_PEER_NAME	64u
#define HUTCH_MAX_VM_NAME	128u
#define HUTCH_MAX_GROUP_NAME	64u
#define HUTCH_MAX_TEMPLATE_NAME 64u
#define HUTCH_MAX_SNAPSHOT_NAME 64u
#define HUTCH_MAX_FORK		64u
#define HUTCH_MAX_POOL		64u
#define HUTCH_UUID_LEN		36u

#define HUTCH_MAX_ARGV		      4096u
#define HUTCH_MAX_ENV		      4096u
#define HUTCH_MAX_METADATA	      64u
#define HUTCH_MAX_METADATA_BYTES      4096u
#define HUTCH_MAX_TTL_MS	      (30ull * 24 * 3600 * 1000)
#define HUTCH_DEFAULT_TTL_MS	      (3600ull * 1000)
#define HUTCH_MIN_IDLE_MS	      1000u
#define HUTCH_DEFAULT_BOOT_TIMEOUT_MS 60000ull
#define HUTCH_DEFAULT_DRAIN_MS	      50u
#define HUTCH_MAX_DRAIN_MS	      10000u
#define HUTCH_MAX_GRACE_MS	      30000u
#define HUTCH_MAX_FREEZE_MS	      1000u
#define HUTCH_MAX_TIMEOUT_MS	      (3650ull * 24 * 3600 * 1000) /* ten years; ns fit int64_t */
#define HUTCH_MAX_BOOT_TIMEOUT_MS     (3600ull * 1000)
#define HUTCH_MAX_UINT		      0x7fffffffffffffffull /* of every wire uint without another limit */
#define HUTCH_MAX_PATH		      4095u
#define HUTCH_MAX_USER		      256u
#define HUTCH_MAX_FS_NAMES	      4096u
#define HUTCH_MAX_FS_EXCLUDE	      256u
#define HUTCH_MAX_TERM		      64u
#define HUTCH_MAX_PIDS		      4194304u /* PID_MAX_LIMIT, proc(5) */
#define HUTCH_MAX_CPU_PERCENT	      100000u
#define HUTCH_MIN_MEMORY_MIB	      64u
#define HUTCH_MAX_MEMORY_MIB	      65536u
#define HUTCH_MIN_DISK_MIB	      16u
#define HUTCH_MAX_DISK_MIB	      65536u
#define HUTCH_MAX_VCPUS		      32u
#define HUTCH_MAX_SIGNAL	      64u
#define HUTCH_MAX_HOSTNAME	      64u
#define HUTCH_MIN_ENTROPY	      32u
#define HUTCH_MAX_ENTROPY	      512u

#endif
