# The vsock device (host/vsock).
hutch_fuzz_target(vsock_rings LIBS hutch_vsock)
hutch_fuzz_target(vsock_hybrid SOURCES $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
hutch_fuzz_target(vsock_layers SOURCES $<TARGET_OBJECTS:hutch_vmm_objects> LIBS hutch_vsock)
