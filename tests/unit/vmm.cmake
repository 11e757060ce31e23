# host/hutchd, the half that starts and watches VMMs. vmm_rig is a helper.
foreach(part vmm launcher accel)
	hutch_unit_test(${part} SOURCES vmm_rig.c vmm_player.c LIBS hutch_vmm)
endforeach()
foreach(part fdutil logs template vmm_qemu qmp)
	hutch_unit_test(${part} SOURCES vmm_rig.c LIBS hutch_vmm)
endforeach()
