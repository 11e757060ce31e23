# The vsock device (host/vsock), against tests/harness/fake_guest.
set(FAKE_GUEST ${CMAKE_CURRENT_LIST_DIR}/../../tests/harness/fake_guest.c)
hutch_unit_test(vsock_virtq SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_hybrid SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_conn SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_hostile SOURCES ${FAKE_GUEST} LIBS hutch_vsock)
hutch_unit_test(vsock_vmm SOURCES ${FAKE_GUEST} $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
target_compile_definitions(test_vsock_vmm PRIVATE HUTCH_VMM_MODULE="$<TARGET_FILE:hutch-vmm>")
add_dependencies(test_vsock_vmm hutch-vmm)
