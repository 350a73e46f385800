# find_package(uwork) defines the targets uwork::uwork, uwork::static, and uwork::kernel, which is uwork::uwork with
# the kernel-compatible headers.
get_filename_component(uwork_libdir "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
get_filename_component(uwork_prefix "${uwork_libdir}/@PREFIX_FROM_LIBDIR@" ABSOLUTE)
set(uwork_KERNEL_INCLUDE_DIR "${uwork_prefix}/include/uwork/kernel")
find_package(Threads REQUIRED)

if(NOT TARGET uwork::uwork)
  add_library(uwork::uwork SHARED IMPORTED)
  set_target_properties(uwork::uwork PROPERTIES
    IMPORTED_LOCATION "${uwork_libdir}/libuwork.so"
    IMPORTED_SONAME "libuwork.so.@MAJOR@"
    INTERFACE_INCLUDE_DIRECTORIES "${uwork_prefix}/include")

  add_library(uwork::static STATIC IMPORTED)
  set_target_properties(uwork::static PROPERTIES
    IMPORTED_LOCATION "${uwork_libdir}/libuwork.a"
    INTERFACE_INCLUDE_DIRECTORIES "${uwork_prefix}/include"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;m;${CMAKE_DL_LIBS}")

  add_library(uwork::kernel INTERFACE IMPORTED)
  set_target_properties(uwork::kernel PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${uwork_KERNEL_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS
      "__KERNEL__=1;MODULE=1;CONFIG_SMP=1;$<$<EQUAL:${CMAKE_SIZEOF_VOID_P},8>:CONFIG_64BIT=1>"
    INTERFACE_LINK_LIBRARIES uwork::uwork)
endif()
