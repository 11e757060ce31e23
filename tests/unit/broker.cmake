# The broker's own parts (host/hutchd, hutch_core), against peers that the tests play themselves.
foreach(name call_ends vm_state config image)
	hutch_unit_test(${name} LIBS hutch_core)
endforeach()
foreach(name guest_link broker_client relay stream)
	hutch_unit_test(${name} SOURCES broker_rig.c LIBS hutch_core)
endforeach()
hutch_unit_test(snapshot_size SOURCES vmm_rig.c LIBS hutch_core)
target_link_options(test_stream PRIVATE -Wl,--wrap=send)
