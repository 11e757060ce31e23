# The vsock device (host/vsock), against tests/harness/fake_guest.
set(FAKE_GUEST ${CMAKE_CURRENT_LIST_DIR}/../../tests/harness/fake_guest.c)
hutch_unit_test(vsock_virtq SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_hybrid SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_conn SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_hostile SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_vmm SOURCES ${FAKE_GUEST} $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
target_compile_definitions(test_vsock_vmm PRIVATE HUTCH_VMM_MODULE="$<TARGET_FILE:hutch-vmm>")
add_dependencies(test_vsock_vmm hutch-vmm)
hutch_unit_test(vsock_ram SOURCES $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
# Its functions play QEMU's, which the library looks for in the program.
hutch_unit_test(vsock_reload SOURCES $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
set_target_properties(test_vsock_reload PROPERTIES ENABLE_EXPORTS ON C_VISIBILITY_PRESET default)
