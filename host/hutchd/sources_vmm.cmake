# hutch_vmm: the half of hutchd that starts and watches VMMs. Included by CMakeLists.txt beside it.
set(HUTCH_VMM_SOURCES
	fdutil.c log.c process.c)
list(TRANSFORM HUTCH_VMM_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
if(NOT TARGET hutch_vmm)
	add_library(hutch_vmm STATIC ${HUTCH_VMM_SOURCES})
	target_link_libraries(hutch_vmm PUBLIC hutch_options hutch_protocol PkgConfig::EVENT
		PkgConfig::JANSSON)
endif()
