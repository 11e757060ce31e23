# host/hutchd, the half that starts and watches VMMs. vmm_rig is a helper.
foreach(part vmm vmm_save launcher accel)
	hutch_unit_test(${part} SOURCES vmm_rig.c vmm_player.c LIBS hutch_vmm)
endforeach()
foreach(part cgroup fdutil logs template vmm_qemu qmp)
	hutch_unit_test(${part} SOURCES vmm_rig.c LIBS hutch_vmm)
endforeach()
# The logs that the in-VMM library keeps small, as the broker reads them.
hutch_unit_test(vmm_logs SOURCES vmm_rig.c ${CMAKE_SOURCE_DIR}/host/vsock/vmm_logs.c LIBS hutch_vmm hutch_vsock)
hutch_unit_test(qcow2 LIBS hutch_vmm)
hutch_unit_test(seccomp LIBS hutch_vmm)
