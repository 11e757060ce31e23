# hutch_vmm: the half of hutchd that starts and watches VMMs. Included by CMakeLists.txt beside it.
set(HUTCH_VMM_SOURCES
	accel.c accel_probe.c cgroup.c cgroup_find.c cgroup_vm.c console.c dial_socket.c fdutil.c jail.c jail_enter.c jail_root.c launcher.c launcher_fork.c launcher_main.c launcher_spawn.c
	linebuf.c log.c process.c qcow2.c qmp.c qmp_parse.c seccomp.c sweep.c template.c tsc.c vmm.c vmm_claim.c vmm_connect.c vmm_disk.c
	vmm_end.c vmm_lease.c vmm_ops.c vmm_qemu.c vmm_restore.c vmm_save.c vmm_saving.c
	vmm_traits.c)
list(TRANSFORM HUTCH_VMM_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
if(NOT TARGET hutch_vmm)
	add_library(hutch_vmm STATIC ${HUTCH_VMM_SOURCES})
	target_link_libraries(hutch_vmm PUBLIC hutch_options hutch_protocol PkgConfig::EVENT
		PkgConfig::JANSSON PkgConfig::SECCOMP)
endif()
